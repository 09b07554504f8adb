-- What lists and reports read often, in forms that are quick to read.

ALTER TABLE runs ADD COLUMN rehearsal INTEGER NOT NULL DEFAULT 0 CHECK (rehearsal IN (0, 1));
ALTER TABLE runs ADD COLUMN planned_cases INTEGER; -- footprints × workloads; none in a plan without lists of them
UPDATE runs SET planned_cases = json_array_length(plan_json, '$.footprints') * json_array_length(plan_json, '$.workloads');

-- All that a list shows of runs: apart from their plans and environments, which are large.
CREATE INDEX runs_listed ON runs (id, name, state, complete, rehearsal, reason, started, finished, note, planned_cases, deleted)
    WHERE deleted IS NULL;
CREATE INDEX cases_by_state ON cases (run_id, state);

ALTER TABLE workers ADD COLUMN host TEXT; -- that it was put on; none where the place has one host

-- The cluster by second of a case that has ended, both phases in one piece (store/src/series.rs). A case that an earlier version
-- ended has its rows in cluster_seconds instead.
CREATE TABLE case_series (
    case_id INTEGER PRIMARY KEY REFERENCES cases (id),
    seconds BLOB NOT NULL
) STRICT;
