-- Runs that a person ended before their plan was through.

ALTER TABLE runs ADD COLUMN ended_early_json TEXT CHECK (ended_early_json IS NULL OR json_valid(ended_early_json)); -- how, by whom, when, what was not run

-- A run that was stopped, beside one that was cancelled. SQLite changes no check of a table that exists, and making the table anew would take
-- every row that refers to it along; a check concerns nothing that is stored, so the table's text is changed (sqlite.org/lang_altertable.html).
-- After the new column: adding one goes by the text as it was read before.
PRAGMA writable_schema = ON;
UPDATE sqlite_schema SET sql = replace(sql, '''done'', ''failed'', ''cancelled'')', '''done'', ''failed'', ''cancelled'', ''stopped'')')
    WHERE type = 'table' AND name = 'runs';
PRAGMA writable_schema = RESET;
