-- The store of one data directory.
--
-- Times are UTC, RFC 3339 with six decimals, unless a column's name ends in _ns (nanoseconds) or says otherwise.
-- Counts, bytes and nanoseconds are at most 2^63 - 1. Histograms are HdrHistogram V2 deflate blobs, empty where the count is 0.
-- Checks of columns that may be null say so: `PRAGMA integrity_check` of SQLite 3.40 takes a check that is null for a failed one.

PRAGMA application_id = 1178808628; -- "FC14" read as a big-endian number

CREATE TABLE runs (
    id               TEXT PRIMARY KEY, -- UUID version 7: sorts by time of creation
    name             TEXT NOT NULL,
    state            TEXT NOT NULL CHECK (state IN ('planned', 'provisioning', 'enrolling', 'filling', 'preconditioning',
                         'sampling', 'tearing-down', 'done', 'failed', 'cancelled')),
    started          TEXT NOT NULL,
    finished         TEXT,
    complete         INTEGER NOT NULL DEFAULT 0 CHECK (complete IN (0, 1)),
    reason           TEXT,
    plan_yaml        TEXT NOT NULL,
    plan_json        TEXT NOT NULL CHECK (json_valid(plan_json)),
    environment_json TEXT NOT NULL CHECK (json_valid(environment_json)),
    warnings_json    TEXT NOT NULL DEFAULT '[]' CHECK (json_valid(warnings_json)),
    seed             TEXT NOT NULL -- decimal: a seed has 64 bits
) STRICT;

CREATE TABLE run_transitions (
    id     INTEGER PRIMARY KEY,
    run_id TEXT NOT NULL REFERENCES runs (id),
    state  TEXT NOT NULL,
    at     TEXT NOT NULL
) STRICT;
CREATE INDEX run_transitions_by_run ON run_transitions (run_id, id);

CREATE TABLE events (
    id      INTEGER PRIMARY KEY,
    run_id  TEXT NOT NULL REFERENCES runs (id),
    at      TEXT NOT NULL,
    level   TEXT NOT NULL CHECK (level IN ('info', 'warning', 'error')),
    message TEXT NOT NULL
) STRICT;
CREATE INDEX events_by_run ON events (run_id, id);

-- Calls that change a hypervisor. A row is committed before the call is sent; its task id and its outcome follow.
CREATE TABLE journal (
    id           INTEGER PRIMARY KEY,
    run_id       TEXT NOT NULL REFERENCES runs (id),
    kind         TEXT NOT NULL, -- name of the call
    effect       TEXT NOT NULL CHECK (effect IN ('create', 'change', 'destroy')),
    object       TEXT, -- recorded id of what the call is about; of a create, known at the latest with its outcome
    intent_json  TEXT NOT NULL CHECK (json_valid(intent_json)),
    created_at   TEXT NOT NULL,
    task_json    TEXT CHECK (task_json IS NULL OR json_valid(task_json)),
    succeeded    INTEGER CHECK (succeeded IS NULL OR succeeded IN (0, 1)),
    outcome_json TEXT CHECK (outcome_json IS NULL OR json_valid(outcome_json)),
    finished_at  TEXT,
    CHECK ((succeeded IS NULL) = (finished_at IS NULL))
) STRICT;
CREATE INDEX journal_by_run ON journal (run_id, id);

CREATE TABLE workers (
    run_id      TEXT NOT NULL REFERENCES runs (id),
    name        TEXT NOT NULL,
    uuid        TEXT NOT NULL,
    hello_json  TEXT NOT NULL CHECK (json_valid(hello_json)),
    engine_json TEXT CHECK (engine_json IS NULL OR json_valid(engine_json)), -- of its latest Ready
    PRIMARY KEY (run_id, name)
) STRICT;

-- The new bytes of a footprint, by disk.
CREATE TABLE fills (
    run_id          TEXT NOT NULL,
    footprint_bytes INTEGER NOT NULL,
    worker          TEXT NOT NULL,
    disk            TEXT NOT NULL,
    bytes           INTEGER NOT NULL,
    seconds         REAL NOT NULL,
    verified_blocks INTEGER NOT NULL,
    PRIMARY KEY (run_id, footprint_bytes, worker, disk),
    FOREIGN KEY (run_id, worker) REFERENCES workers (run_id, name)
) STRICT;

-- The time that the fill of a footprint took over all workers.
CREATE TABLE fill_times (
    run_id          TEXT NOT NULL REFERENCES runs (id),
    footprint_bytes INTEGER NOT NULL,
    seconds         REAL NOT NULL,
    PRIMARY KEY (run_id, footprint_bytes)
) STRICT;

CREATE TABLE cases (
    id                   INTEGER PRIMARY KEY,
    run_id               TEXT NOT NULL REFERENCES runs (id),
    ordinal              INTEGER NOT NULL, -- place in the plan's order, from 0
    footprint            TEXT NOT NULL, -- as the plan spells it
    footprint_bytes      INTEGER NOT NULL,
    region_bytes         INTEGER NOT NULL,
    effective_bytes      INTEGER NOT NULL,
    workload_json        TEXT NOT NULL CHECK (json_valid(workload_json)),
    precondition_seconds INTEGER NOT NULL,
    sample_seconds       INTEGER NOT NULL,
    expected_workers     INTEGER NOT NULL,
    reads_unwritten      INTEGER NOT NULL CHECK (reads_unwritten IN (0, 1)),
    started              TEXT, -- of preconditioning
    t0                   TEXT, -- the window [t0, t1)
    t1                   TEXT,
    state                TEXT NOT NULL DEFAULT 'running'
        CHECK (state IN ('running', 'complete', 'incomplete', 'failed', 'cancelled')),
    reason               TEXT,
    warnings_json        TEXT NOT NULL DEFAULT '[]' CHECK (json_valid(warnings_json)),
    figures_json         TEXT CHECK (figures_json IS NULL OR json_valid(figures_json)), -- none while it runs
    UNIQUE (run_id, ordinal)
) STRICT;

-- Workers that a case was given to, with what each said at its end.
CREATE TABLE case_workers (
    case_id            INTEGER NOT NULL REFERENCES cases (id),
    worker             TEXT NOT NULL,
    ordinal            INTEGER NOT NULL,
    disks_json         TEXT NOT NULL CHECK (json_valid(disks_json)), -- serials in the order of Prepare
    engine_json        TEXT CHECK (engine_json IS NULL OR json_valid(engine_json)),
    start_at_worker_ns INTEGER,
    offset_start_ns    INTEGER, -- orchestrator's clock minus worker's
    offset_end_ns      INTEGER,
    failure            TEXT,
    started_worker_ns  INTEGER,
    ended_worker_ns    INTEGER,
    finished_complete  INTEGER CHECK (finished_complete IS NULL OR finished_complete IN (0, 1)), -- none until Finished came
    finished_reason    TEXT,
    thread_cpu_json    TEXT CHECK (thread_cpu_json IS NULL OR json_valid(thread_cpu_json)),
    steal              REAL,
    warnings_json      TEXT CHECK (warnings_json IS NULL OR json_valid(warnings_json)),
    PRIMARY KEY (case_id, worker)
) STRICT;

CREATE TABLE case_disks (
    id                   INTEGER PRIMARY KEY,
    case_id              INTEGER NOT NULL,
    worker               TEXT NOT NULL,
    ordinal              INTEGER NOT NULL,
    serial               TEXT NOT NULL,
    unfinished           INTEGER NOT NULL,
    oldest_unfinished_ns INTEGER NOT NULL,
    device_json          TEXT CHECK (device_json IS NULL OR json_valid(device_json)),
    pacing_json          TEXT CHECK (pacing_json IS NULL OR json_valid(pacing_json)),
    stalls_json          TEXT NOT NULL CHECK (json_valid(stalls_json)),
    errors_json          TEXT NOT NULL CHECK (json_valid(errors_json)),
    UNIQUE (case_id, worker, serial),
    FOREIGN KEY (case_id, worker) REFERENCES case_workers (case_id, worker)
) STRICT;

-- Totals over the window, by disk (of a case_disk) or of the cluster (of a case).
CREATE TABLE case_totals (
    id           INTEGER PRIMARY KEY,
    case_id      INTEGER NOT NULL REFERENCES cases (id),
    case_disk_id INTEGER REFERENCES case_disks (id), -- none: the cluster
    timing       TEXT NOT NULL CHECK (timing IN ('response', 'service')),
    op           TEXT NOT NULL CHECK (op IN ('read', 'write')),
    count        INTEGER NOT NULL,
    bytes        INTEGER NOT NULL,
    errors       INTEGER NOT NULL,
    sum_ns       INTEGER NOT NULL,
    min_ns       INTEGER NOT NULL,
    max_ns       INTEGER NOT NULL,
    over_range   INTEGER NOT NULL,
    histogram    BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX case_totals_by_case ON case_totals (case_id, ifnull(case_disk_id, 0), timing, op);

-- One sample of one worker.
CREATE TABLE worker_seconds (
    case_id          INTEGER NOT NULL,
    worker           TEXT NOT NULL,
    number           INTEGER NOT NULL,
    phase            TEXT NOT NULL CHECK (phase IN ('precondition', 'sample')),
    second           INTEGER NOT NULL,
    whole            INTEGER NOT NULL CHECK (whole IN (0, 1)),
    read_count       INTEGER NOT NULL,
    read_bytes       INTEGER NOT NULL,
    read_errors      INTEGER NOT NULL,
    read_sum_ns      INTEGER NOT NULL,
    read_min_ns      INTEGER NOT NULL,
    read_max_ns      INTEGER NOT NULL,
    read_over_range  INTEGER NOT NULL,
    write_count      INTEGER NOT NULL,
    write_bytes      INTEGER NOT NULL,
    write_errors     INTEGER NOT NULL,
    write_sum_ns     INTEGER NOT NULL,
    write_min_ns     INTEGER NOT NULL,
    write_max_ns     INTEGER NOT NULL,
    write_over_range INTEGER NOT NULL,
    PRIMARY KEY (case_id, worker, number),
    FOREIGN KEY (case_id, worker) REFERENCES case_workers (case_id, worker)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX worker_seconds_by_second ON worker_seconds (case_id, phase, second, worker);

-- The large part of a sample: needed until the case is merged, and deleted then, so that a long run stays small.
CREATE TABLE second_histograms (
    case_id         INTEGER NOT NULL,
    worker          TEXT NOT NULL,
    number          INTEGER NOT NULL,
    read_histogram  BLOB NOT NULL,
    write_histogram BLOB NOT NULL,
    disks           BLOB NOT NULL, -- by disk in the order of Prepare: reads, writes, sum_ns, max_ns, errors, 8 bytes each, little-endian
    PRIMARY KEY (case_id, worker, number),
    FOREIGN KEY (case_id, worker, number) REFERENCES worker_seconds (case_id, worker, number)
) STRICT;

-- The cluster by second, for seconds that every worker of the case measured whole. An operation without I/O is null.
CREATE TABLE cluster_seconds (
    case_id         INTEGER NOT NULL REFERENCES cases (id),
    phase           TEXT NOT NULL CHECK (phase IN ('precondition', 'sample')),
    second          INTEGER NOT NULL,
    read_iops       REAL,
    read_mib_per_s  REAL,
    read_mean_us    REAL,
    read_p50_us     REAL,
    read_p99_us     REAL,
    read_max_us     REAL,
    write_iops      REAL,
    write_mib_per_s REAL,
    write_mean_us   REAL,
    write_p50_us    REAL,
    write_p99_us    REAL,
    write_max_us    REAL,
    PRIMARY KEY (case_id, phase, second)
) STRICT, WITHOUT ROWID;
