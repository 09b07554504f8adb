-- Hosts and storage cluster as they were during a case, about every 10 s.

CREATE TABLE host_samples (
    id           INTEGER PRIMARY KEY,
    case_id      INTEGER NOT NULL REFERENCES cases (id),
    at           TEXT NOT NULL,
    hosts_json   TEXT NOT NULL CHECK (json_valid(hosts_json)), -- each with its name; what the place does not tell is null
    storage_json TEXT CHECK (storage_json IS NULL OR json_valid(storage_json)) -- health; none where there is no cluster, or it was silent
) STRICT;
CREATE INDEX host_samples_by_case ON host_samples (case_id, id);
