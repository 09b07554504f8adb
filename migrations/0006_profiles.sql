-- Workload profiles that users keep beside the shipped ones; plans call them own/NAME.

CREATE TABLE profiles (
    name    TEXT PRIMARY KEY,
    yaml    TEXT NOT NULL, -- as written
    changed TEXT NOT NULL
) STRICT;
