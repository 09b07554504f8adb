-- What a case leaves for pages to read, when it ends. A case that an earlier version ended has none of it: its disks are in figures_json,
-- and its samples are read one by one.

ALTER TABLE cases ADD COLUMN per_disk_json TEXT CHECK (per_disk_json IS NULL OR json_valid(per_disk_json)); -- figures of each data disk
-- Each data disk's name, and its figures where something is to be told of it (store/src/brief.rs).
ALTER TABLE cases ADD COLUMN brief_disks_json TEXT CHECK (brief_disks_json IS NULL OR json_valid(brief_disks_json));
ALTER TABLE cases ADD COLUMN storage_json TEXT CHECK (storage_json IS NULL OR json_valid(storage_json)); -- of its host_samples, without the hosts
