-- Who may use the web interface, and what the engineer says of a run.
-- Secrets (of sessions, links, API tokens) have 256 random bits; only their SHA-256 is here.

CREATE TABLE users (
    id            TEXT PRIMARY KEY, -- UUID version 7
    name          TEXT NOT NULL UNIQUE COLLATE NOCASE,
    role          TEXT NOT NULL CHECK (role IN ('viewer', 'admin')),
    password_hash TEXT, -- PHC string; none until the user has set a password
    created       TEXT NOT NULL,
    last_login    TEXT
) STRICT;

-- The link with which a user sets a password: the newest alone.
CREATE TABLE password_links (
    user_id TEXT PRIMARY KEY REFERENCES users (id) ON DELETE CASCADE,
    hash    BLOB NOT NULL UNIQUE,
    expires TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE sessions (
    hash      BLOB PRIMARY KEY,
    user_id   TEXT REFERENCES users (id) ON DELETE CASCADE, -- none: opened by a link on the terminal, a viewer
    created   TEXT NOT NULL,
    last_seen TEXT NOT NULL,
    expires   TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX sessions_by_user ON sessions (user_id, created);

CREATE TABLE api_tokens (
    id        TEXT PRIMARY KEY, -- UUID version 7
    user_id   TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    name      TEXT NOT NULL,
    role      TEXT NOT NULL CHECK (role IN ('viewer', 'admin')), -- at most; never more than its user's
    hash      BLOB NOT NULL UNIQUE,
    created   TEXT NOT NULL,
    expires   TEXT NOT NULL,
    last_used TEXT
) STRICT;
CREATE INDEX api_tokens_by_user ON api_tokens (user_id, id);

ALTER TABLE runs ADD COLUMN note TEXT NOT NULL DEFAULT '';
ALTER TABLE runs ADD COLUMN deleted TEXT; -- when its deletion was asked for: its rows go in steps, and it is shown no more
