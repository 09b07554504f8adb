//! Every SQL statement of the store. A test prepares each against the migrated schema.

/// Declares the statements and, for the test, their list.
macro_rules! statements {
    ($($(#[doc = $doc:literal])* $name:ident = $sql:literal;)*) => {
        $($(#[doc = $doc])* pub(crate) const $name: &str = $sql;)*

        #[cfg(test)]
        pub(crate) const ALL: &[(&str, &str)] = &[$((stringify!($name), $sql)),*];
    };
}

statements! {
    BEGIN_IMMEDIATE = "BEGIN IMMEDIATE";
    APPLICATION_ID = "PRAGMA application_id";
    COUNT_TABLES = "SELECT count(*) FROM sqlite_schema";
    HAS_MIGRATIONS = "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = '_sqlx_migrations'";
    SCHEMA_VERSION = "SELECT coalesce(max(version), 0) FROM _sqlx_migrations";

    INSERT_RUN = "INSERT INTO runs (id, name, state, started, plan_yaml, plan_json, environment_json, seed, rehearsal, planned_cases) \
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";
    SELECT_RUN_STATE = "SELECT state FROM runs WHERE id = ?1";
    UPDATE_RUN_STATE = "UPDATE runs SET state = ?2 WHERE id = ?1";
    INSERT_TRANSITION = "INSERT INTO run_transitions (run_id, state, at) VALUES (?1, ?2, ?3)";
    UPDATE_RUN_END = "UPDATE runs SET finished = ?2, complete = ?3, reason = ?4 WHERE id = ?1";
    SELECT_ENVIRONMENT = "SELECT environment_json FROM runs WHERE id = ?1";
    UPDATE_ENVIRONMENT = "UPDATE runs SET environment_json = ?2 WHERE id = ?1";
    APPEND_RUN_WARNING = "UPDATE runs SET warnings_json = json_insert(warnings_json, '$[#]', ?2) WHERE id = ?1 \
        AND NOT EXISTS (SELECT 1 FROM json_each(warnings_json) WHERE value = ?2)";
    INSERT_EVENT = "INSERT INTO events (run_id, at, level, message) VALUES (?1, ?2, ?3, ?4)";
    COUNT_CASES = "SELECT count(*) FROM cases WHERE run_id = ?1";
    COUNT_COMPLETE_CASES = "SELECT count(*) FROM cases WHERE run_id = ?1 AND state = 'complete'";

    INSERT_INTENT = "INSERT INTO journal (run_id, kind, effect, object, intent_json, created_at) \
        VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
    UPDATE_TASK = "UPDATE journal SET task_json = ?2 WHERE id = ?1 AND finished_at IS NULL";
    UPDATE_OUTCOME = "UPDATE journal SET succeeded = ?2, object = coalesce(?3, object), outcome_json = ?4, finished_at = ?5 \
        WHERE id = ?1 AND finished_at IS NULL";
    OPEN_INTENTS = "SELECT id, run_id, kind, effect, object, intent_json, created_at, task_json, succeeded, outcome_json \
        FROM journal WHERE run_id = ?1 AND finished_at IS NULL ORDER BY id";
    #[doc = "Creations that had their effect and are followed by no destruction of the same object that had its effect."]
    LIVING_OBJECTS = "SELECT id, run_id, kind, effect, object, intent_json, created_at, task_json, succeeded, outcome_json \
        FROM journal AS made WHERE run_id = ?1 AND effect = 'create' AND succeeded = 1 AND NOT EXISTS ( \
            SELECT 1 FROM journal AS gone WHERE gone.run_id = made.run_id AND gone.effect = 'destroy' \
            AND gone.succeeded = 1 AND gone.object = made.object AND gone.id > made.id) ORDER BY id";

    ALL_INTENTS = "SELECT id, run_id, kind, effect, object, intent_json, created_at, task_json, succeeded, outcome_json \
        FROM journal WHERE run_id = ?1 ORDER BY id";

    INSERT_WORKER = "INSERT INTO workers (run_id, name, uuid, hello_json, host) VALUES (?1, ?2, ?3, ?4, ?5) \
        ON CONFLICT (run_id, name) DO UPDATE SET uuid = excluded.uuid, hello_json = excluded.hello_json, host = excluded.host";
    UPDATE_WORKER_ENGINE = "UPDATE workers SET engine_json = ?3 WHERE name = ?2 \
        AND run_id = (SELECT run_id FROM cases WHERE id = ?1)";

    INSERT_FILL_TIME = "INSERT INTO fill_times (run_id, footprint_bytes, seconds) VALUES (?1, ?2, ?3) \
        ON CONFLICT (run_id, footprint_bytes) DO UPDATE SET seconds = excluded.seconds";
    INSERT_FILL = "INSERT INTO fills (run_id, footprint_bytes, worker, disk, bytes, seconds, verified_blocks) \
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT (run_id, footprint_bytes, worker, disk) \
        DO UPDATE SET bytes = excluded.bytes, seconds = excluded.seconds, verified_blocks = excluded.verified_blocks";

    INSERT_CASE = "INSERT INTO cases (run_id, ordinal, footprint, footprint_bytes, region_bytes, effective_bytes, workload_json, \
        precondition_seconds, sample_seconds, expected_workers, reads_unwritten) \
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)";
    INSERT_CASE_WORKER = "INSERT INTO case_workers (case_id, worker, ordinal, disks_json) VALUES (?1, ?2, ?3, ?4)";
    UPDATE_CASE_ENGINE = "UPDATE case_workers SET engine_json = ?3 WHERE case_id = ?1 AND worker = ?2";
    UPDATE_CASE_WINDOW = "UPDATE cases SET started = ?2, t0 = ?3, t1 = ?4 WHERE id = ?1";
    UPDATE_WORKER_START = "UPDATE case_workers SET start_at_worker_ns = ?3, offset_start_ns = ?4 \
        WHERE case_id = ?1 AND worker = ?2";
    UPDATE_WORKER_FAILURE = "UPDATE case_workers SET failure = coalesce(failure, ?3) WHERE case_id = ?1 AND worker = ?2";
    UPDATE_WORKER_FINISHED = "UPDATE case_workers SET started_worker_ns = ?3, ended_worker_ns = ?4, finished_complete = ?5, \
        finished_reason = ?6, thread_cpu_json = ?7, steal = ?8, warnings_json = ?9, offset_end_ns = ?10, io_wq_cpu = ?11 \
        WHERE case_id = ?1 AND worker = ?2 AND finished_complete IS NULL";
    SELECT_WORKER_FINISHED = "SELECT finished_complete FROM case_workers WHERE case_id = ?1 AND worker = ?2";
    INSERT_CASE_DISK = "INSERT INTO case_disks (case_id, worker, ordinal, serial, unfinished, oldest_unfinished_ns, device_json, \
        pacing_json, stalls_json, errors_json, flushes) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)";
    INSERT_TOTALS = "INSERT INTO case_totals (case_id, case_disk_id, timing, op, count, bytes, errors, sum_ns, min_ns, max_ns, \
        over_range, histogram) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)";

    INSERT_HOST_SAMPLE = "INSERT INTO host_samples (case_id, at, hosts_json, storage_json) VALUES (?1, ?2, ?3, ?4)";
    LATEST_HOST_SAMPLE = "SELECT at, hosts_json, storage_json FROM host_samples WHERE case_id = ?1 ORDER BY id DESC LIMIT 1";

    SELECT_CASE_STATE = "SELECT state FROM cases WHERE id = ?1";
    INSERT_WORKER_SECOND = "INSERT INTO worker_seconds (case_id, worker, number, phase, second, whole, \
        read_count, read_bytes, read_errors, read_sum_ns, read_min_ns, read_max_ns, read_over_range, \
        write_count, write_bytes, write_errors, write_sum_ns, write_min_ns, write_max_ns, write_over_range) \
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20) \
        ON CONFLICT DO NOTHING";
    INSERT_SECOND_HISTOGRAMS = "INSERT INTO second_histograms (case_id, worker, number, read_histogram, write_histogram, disks) \
        VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
    SELECT_SAMPLE_OF_SECOND = "SELECT number FROM worker_seconds \
        WHERE case_id = ?1 AND worker = ?2 AND phase = ?3 AND second = ?4";
    SELECT_SAMPLE_OF_NUMBER = "SELECT number FROM worker_seconds WHERE case_id = ?1 AND worker = ?2 AND number = ?3";

    UPDATE_CASE_END = "UPDATE cases SET state = ?2, reason = ?3, warnings_json = ?4, figures_json = ?5, per_disk_json = ?6, \
        brief_disks_json = ?7, storage_json = (SELECT '[' || coalesce(group_concat('[\"' || at || '\",[],' || \
        coalesce(storage_json, 'null') || ']', ','), '') || ']' \
        FROM (SELECT at, storage_json FROM host_samples WHERE case_id = ?1 ORDER BY id)) WHERE id = ?1";
    INSERT_SERIES = "INSERT INTO case_series (case_id, seconds) VALUES (?1, ?2)";
    SELECT_SERIES = "SELECT seconds FROM case_series WHERE case_id = ?1";
    DELETE_SECOND_HISTOGRAMS = "DELETE FROM second_histograms WHERE case_id = ?1";

    SELECT_CASE_INPUT = "SELECT workload_json, precondition_seconds, sample_seconds, \
        expected_workers, reads_unwritten FROM cases WHERE id = ?1";
    SELECT_CASE_WORKERS = "SELECT worker, disks_json, engine_json, start_at_worker_ns, offset_start_ns, offset_end_ns, failure, \
        started_worker_ns, ended_worker_ns, finished_complete, finished_reason, thread_cpu_json, steal, warnings_json, io_wq_cpu, \
        (SELECT host FROM workers WHERE run_id = (SELECT run_id FROM cases WHERE id = ?1) AND name = worker) AS host \
        FROM case_workers WHERE case_id = ?1 ORDER BY ordinal";
    SELECT_CASE_DISKS = "SELECT id, worker, serial, unfinished, oldest_unfinished_ns, device_json, pacing_json, stalls_json, \
        errors_json, flushes FROM case_disks WHERE case_id = ?1 ORDER BY worker, ordinal";
    SELECT_DISK_TOTALS = "SELECT case_disk_id, timing, op, count, bytes, errors, sum_ns, min_ns, max_ns, over_range, histogram \
        FROM case_totals WHERE case_id = ?1 AND case_disk_id IS NOT NULL";
    SELECT_CLUSTER_TOTALS = "SELECT op, count, bytes, errors, sum_ns, min_ns, max_ns, over_range, histogram \
        FROM case_totals WHERE case_id = ?1 AND case_disk_id IS NULL AND timing = ?2";
    SELECT_MARKS = "SELECT worker, phase, second, whole, read_count, write_count FROM worker_seconds WHERE case_id = ?1 \
        ORDER BY worker, number";
    #[doc = "The samples of a stretch of seconds, with histograms, second by second."]
    SELECT_SECONDS = "SELECT s.worker, s.number, s.second, s.whole, s.read_count, s.read_bytes, s.read_errors, s.read_sum_ns, \
        s.read_min_ns, s.read_max_ns, s.read_over_range, s.write_count, s.write_bytes, s.write_errors, s.write_sum_ns, \
        s.write_min_ns, s.write_max_ns, s.write_over_range, h.read_histogram, h.write_histogram, h.disks \
        FROM worker_seconds AS s JOIN second_histograms AS h \
        ON h.case_id = s.case_id AND h.worker = s.worker AND h.number = s.number \
        WHERE s.case_id = ?1 AND s.phase = ?2 AND s.second >= ?3 AND s.second < ?4 ORDER BY s.second, s.worker";

    LIST_CASES = "SELECT id, ordinal, footprint_bytes, json_extract(workload_json, '$.name') AS workload, state \
        FROM cases WHERE run_id = ?1 ORDER BY ordinal";

    #[doc = "Optional: ?2 only ids before it, ?3 a part of name or note, ?4 a state as `RunFilter` has them."]
    LIST_RUNS = "SELECT id, name, state, complete, reason, started, finished, note, rehearsal, \
        (SELECT count(*) FROM cases WHERE run_id = runs.id) AS cases, \
        (SELECT count(*) FROM cases WHERE run_id = runs.id AND state = 'complete') AS complete_cases, planned_cases \
        FROM runs WHERE deleted IS NULL AND (?2 IS NULL OR id < ?2) \
        AND (?3 IS NULL OR instr(lower(name), lower(?3)) > 0 OR instr(lower(note), lower(?3)) > 0) \
        AND (?4 IS NULL OR ?4 = CASE WHEN state IN ('failed', 'cancelled', 'stopped') THEN state WHEN state <> 'done' THEN 'going-on' \
            WHEN complete THEN 'complete' ELSE 'incomplete' END) \
        ORDER BY id DESC LIMIT ?1";
    UNFINISHED_RUNS = "SELECT id, name, state, complete, reason, started, finished, note, rehearsal, \
        (SELECT count(*) FROM cases WHERE run_id = runs.id) AS cases, \
        (SELECT count(*) FROM cases WHERE run_id = runs.id AND state = 'complete') AS complete_cases, planned_cases \
        FROM runs WHERE state NOT IN ('done', 'failed', 'cancelled', 'stopped') ORDER BY id";
    SELECT_RUN_SUMMARY = "SELECT id, name, state, complete, reason, started, finished, note, rehearsal, \
        (SELECT count(*) FROM cases WHERE run_id = runs.id) AS cases, \
        (SELECT count(*) FROM cases WHERE run_id = runs.id AND state = 'complete') AS complete_cases, planned_cases \
        FROM runs WHERE id = ?1 AND deleted IS NULL";
    LATEST_RUN = "SELECT id FROM runs WHERE deleted IS NULL ORDER BY id DESC LIMIT 1";
    #[doc = "Ids that begin with ?1; ?2 is the first text after all of those."]
    RUNS_WITH_PREFIX = "SELECT id FROM runs WHERE id >= ?1 AND id < ?2 AND deleted IS NULL ORDER BY id DESC LIMIT ?3";

    EXPORT_RUN = "SELECT id, name, state, complete, reason, started, finished, plan_yaml, plan_json, environment_json, \
        warnings_json, seed, rehearsal, note, ended_early_json FROM runs WHERE id = ?1 AND deleted IS NULL";
    SELECT_EARLY_END = "SELECT ended_early_json FROM runs WHERE id = ?1";
    UPDATE_EARLY_END = "UPDATE runs SET ended_early_json = ?2 WHERE id = ?1";
    #[doc = "The cases of a run's plan, in its order, from place ?2 on."]
    SELECT_PLANNED_CASES = "SELECT footprint.value ->> '$.label' AS footprint, workload.value ->> '$.name' AS workload \
        FROM runs, json_each(plan_json, '$.footprints') AS footprint, json_each(plan_json, '$.workloads') AS workload \
        WHERE runs.id = ?1 ORDER BY footprint.key, workload.key LIMIT -1 OFFSET ?2";
    SELECT_PLAN_YAML = "SELECT plan_yaml FROM runs WHERE id = ?1 AND deleted IS NULL";
    SELECT_RUN_WARNINGS = "SELECT warnings_json FROM runs WHERE id = ?1";
    EXPORT_EVENTS = "SELECT at, level, message FROM events WHERE run_id = ?1 ORDER BY id";
    EXPORT_TRANSITIONS = "SELECT state, at FROM run_transitions WHERE run_id = ?1 ORDER BY id";
    EXPORT_WORKERS = "SELECT name, host, hello_json, engine_json FROM workers WHERE run_id = ?1 ORDER BY name";
    EXPORT_FILLS = "SELECT t.footprint_bytes, t.seconds, coalesce(sum(f.bytes), 0) AS bytes, \
        coalesce(sum(f.verified_blocks), 0) AS verified_blocks FROM fill_times AS t LEFT JOIN fills AS f \
        ON f.run_id = t.run_id AND f.footprint_bytes = t.footprint_bytes WHERE t.run_id = ?1 GROUP BY t.footprint_bytes, t.seconds";
    #[doc = "All of a run, or the one at place ?2. Whole disks where the run has at most ?3 of them, seconds if ?4. The samples as one text, "]
    #[doc = "`[[at, hosts, storage], …]`, since a long run has thousands: if ?5 is `all`, or without the hosts if it is `storage`."]
    EXPORT_CASES = "SELECT c.id, ordinal, footprint, footprint_bytes, region_bytes, effective_bytes, workload_json, \
        expected_workers, started, t0, t1, state, reason, warnings_json, figures_json, brief_disks_json, \
        CASE WHEN ?3 >= (SELECT coalesce(sum(json_array_length(brief_disks_json)), 0) FROM cases WHERE run_id = ?1) \
            THEN per_disk_json END AS per_disk_json, \
        CASE WHEN ?4 THEN s.seconds END AS seconds, \
        CASE ?5 \
        WHEN 'all' THEN (SELECT '[' || coalesce(group_concat('[\"' || at || '\",' || hosts_json || ',' || \
            coalesce(h.storage_json, 'null') || ']', ','), '') || ']' \
            FROM (SELECT at, hosts_json, storage_json FROM host_samples WHERE case_id = c.id ORDER BY id) AS h) \
        WHEN 'storage' THEN coalesce(c.storage_json, (SELECT '[' || coalesce(group_concat('[\"' || at || '\",[],' || \
            coalesce(h.storage_json, 'null') || ']', ','), '') || ']' \
            FROM (SELECT at, storage_json FROM host_samples WHERE case_id = c.id ORDER BY id) AS h)) \
        END AS samples \
        FROM cases AS c LEFT JOIN case_series AS s ON s.case_id = c.id \
        WHERE run_id = ?1 AND (?2 IS NULL OR ordinal = ?2) ORDER BY ordinal";
    EVENTS_AFTER = "SELECT id, at, level, message FROM events WHERE run_id = ?1 AND id > ?2 ORDER BY id LIMIT ?3";
    #[doc = "The case that was started last, with the newest second of each phase."]
    LIVE_CASE = "SELECT id, ordinal, started, precondition_seconds, sample_seconds, state <> 'running' AS ended, \
        (SELECT max(second) FROM worker_seconds WHERE case_id = cases.id AND phase = 'precondition') AS newest_precondition, \
        (SELECT max(second) FROM worker_seconds WHERE case_id = cases.id AND phase = 'sample') AS newest_sample \
        FROM cases WHERE run_id = ?1 ORDER BY ordinal DESC LIMIT 1";
    LIVE_CASE_WORKERS = "SELECT worker, disks_json, failure IS NOT NULL OR finished_complete IS NOT NULL AS ended \
        FROM case_workers WHERE case_id = ?1 ORDER BY ordinal";

    LIST_PROFILES = "SELECT name, yaml, changed FROM profiles ORDER BY name";
    PUT_PROFILE = "INSERT INTO profiles (name, yaml, changed) VALUES (?1, ?2, ?3) \
        ON CONFLICT (name) DO UPDATE SET yaml = excluded.yaml, changed = excluded.changed";
    DELETE_PROFILE = "DELETE FROM profiles WHERE name = ?1";
    COUNT_PROFILES = "SELECT count(*) FROM profiles WHERE name <> ?1";

    EXPORT_CLUSTER_SECONDS = "SELECT phase, second, read_iops, read_mib_per_s, read_mean_us, read_p50_us, read_p99_us, read_max_us, \
        write_iops, write_mib_per_s, write_mean_us, write_p50_us, write_p99_us, write_max_us \
        FROM cluster_seconds WHERE case_id = ?1 ORDER BY phase, second";

    UPDATE_NOTE = "UPDATE runs SET note = ?2 WHERE id = ?1 AND deleted IS NULL";
    MARK_DELETED = "UPDATE runs SET deleted = ?2 WHERE id = ?1 AND deleted IS NULL";
    MARKED_RUNS = "SELECT id FROM runs WHERE deleted IS NOT NULL";
    PURGE_HISTOGRAMS = "DELETE FROM second_histograms WHERE (case_id, worker, number) IN (SELECT case_id, worker, number \
        FROM second_histograms WHERE case_id IN (SELECT id FROM cases WHERE run_id = ?1) LIMIT ?2)";
    PURGE_WORKER_SECONDS = "DELETE FROM worker_seconds WHERE (case_id, worker, number) IN (SELECT case_id, worker, number \
        FROM worker_seconds WHERE case_id IN (SELECT id FROM cases WHERE run_id = ?1) LIMIT ?2)";
    PURGE_CLUSTER_SECONDS = "DELETE FROM cluster_seconds WHERE (case_id, phase, second) IN (SELECT case_id, phase, second \
        FROM cluster_seconds WHERE case_id IN (SELECT id FROM cases WHERE run_id = ?1) LIMIT ?2)";
    PURGE_HOST_SAMPLES = "DELETE FROM host_samples WHERE id IN (SELECT id FROM host_samples \
        WHERE case_id IN (SELECT id FROM cases WHERE run_id = ?1) LIMIT ?2)";
    PURGE_SERIES = "DELETE FROM case_series WHERE case_id IN (SELECT id FROM cases WHERE run_id = ?1)";
    PURGE_TOTALS = "DELETE FROM case_totals WHERE case_id IN (SELECT id FROM cases WHERE run_id = ?1)";
    PURGE_DISKS = "DELETE FROM case_disks WHERE case_id IN (SELECT id FROM cases WHERE run_id = ?1)";
    PURGE_CASE_WORKERS = "DELETE FROM case_workers WHERE case_id IN (SELECT id FROM cases WHERE run_id = ?1)";
    PURGE_CASES = "DELETE FROM cases WHERE run_id = ?1";
    PURGE_FILLS = "DELETE FROM fills WHERE run_id = ?1";
    PURGE_FILL_TIMES = "DELETE FROM fill_times WHERE run_id = ?1";
    PURGE_WORKERS = "DELETE FROM workers WHERE run_id = ?1";
    PURGE_JOURNAL = "DELETE FROM journal WHERE run_id = ?1";
    PURGE_EVENTS = "DELETE FROM events WHERE run_id = ?1";
    PURGE_TRANSITIONS = "DELETE FROM run_transitions WHERE run_id = ?1";
    PURGE_RUN = "DELETE FROM runs WHERE id = ?1";

    LIST_USERS = "SELECT id, name, role, password_hash, created, last_login FROM users ORDER BY name";
    SELECT_USER = "SELECT id, name, role, password_hash, created, last_login FROM users WHERE id = ?1";
    SELECT_USER_BY_NAME = "SELECT id, name, role, password_hash, created, last_login FROM users WHERE name = ?1";
    INSERT_USER = "INSERT INTO users (id, name, role, password_hash, created) VALUES (?1, ?2, ?3, ?4, ?5)";
    UPDATE_ROLE = "UPDATE users SET role = ?2 WHERE id = ?1";
    UPDATE_PASSWORD = "UPDATE users SET password_hash = ?2 WHERE id = ?1";
    UPDATE_LAST_LOGIN = "UPDATE users SET last_login = ?2 WHERE id = ?1";
    DELETE_USER = "DELETE FROM users WHERE id = ?1";
    #[doc = "Administrators who can log in."]
    COUNT_ADMINS = "SELECT count(*) FROM users WHERE role = 'admin' AND password_hash IS NOT NULL";

    UPSERT_PASSWORD_LINK = "INSERT INTO password_links (user_id, hash, expires) VALUES (?1, ?2, ?3) \
        ON CONFLICT (user_id) DO UPDATE SET hash = excluded.hash, expires = excluded.expires";
    SELECT_PASSWORD_LINK = "SELECT u.id, u.name, u.role, u.password_hash, u.created, u.last_login FROM password_links AS l \
        JOIN users AS u ON u.id = l.user_id WHERE l.hash = ?1 AND l.expires > ?2";
    DELETE_PASSWORD_LINK = "DELETE FROM password_links WHERE user_id = ?1";

    INSERT_SESSION = "INSERT INTO sessions (hash, user_id, created, last_seen, expires) VALUES (?1, ?2, ?3, ?3, ?4)";
    #[doc = "?2 is now, ?3 the time since which the session must have been seen."]
    SELECT_SESSION = "SELECT s.user_id, s.last_seen, u.id, u.name, u.role, u.password_hash, u.created, u.last_login \
        FROM sessions AS s LEFT JOIN users AS u ON u.id = s.user_id WHERE s.hash = ?1 AND s.expires > ?2 AND s.last_seen > ?3";
    UPDATE_LAST_SEEN = "UPDATE sessions SET last_seen = ?2 WHERE hash = ?1";
    DELETE_SESSION = "DELETE FROM sessions WHERE hash = ?1";
    DELETE_SESSIONS_OF = "DELETE FROM sessions WHERE user_id = ?1 AND hash IS NOT ?2";
    DELETE_EXPIRED_SESSIONS = "DELETE FROM sessions WHERE expires <= ?1 OR last_seen <= ?2";
    #[doc = "All but the ?2 newest of a user; of the terminal's links where ?1 is null."]
    DELETE_OLD_SESSIONS = "DELETE FROM sessions WHERE user_id IS ?1 AND hash NOT IN \
        (SELECT hash FROM sessions WHERE user_id IS ?1 ORDER BY created DESC LIMIT ?2)";

    INSERT_TOKEN = "INSERT INTO api_tokens (id, user_id, name, role, hash, created, expires) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
    COUNT_TOKENS = "SELECT count(*) FROM api_tokens WHERE user_id = ?1";
    #[doc = "Of the user ?1, or of all."]
    LIST_TOKENS = "SELECT t.id, t.user_id, u.name AS user_name, t.name, t.role, t.created, t.expires, t.last_used \
        FROM api_tokens AS t JOIN users AS u ON u.id = t.user_id WHERE ?1 IS NULL OR t.user_id = ?1 ORDER BY t.id DESC";
    SELECT_TOKEN = "SELECT t.id AS token_id, t.role AS token_role, t.last_used, u.id, u.name, u.role, u.password_hash, u.created, \
        u.last_login FROM api_tokens AS t JOIN users AS u ON u.id = t.user_id WHERE t.hash = ?1 AND t.expires > ?2";
    UPDATE_LAST_USED = "UPDATE api_tokens SET last_used = ?2 WHERE id = ?1";
    #[doc = "Of the user ?2, or of anybody."]
    DELETE_TOKEN = "DELETE FROM api_tokens WHERE id = ?1 AND (?2 IS NULL OR user_id = ?2)";
}
