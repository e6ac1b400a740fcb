CREATE TABLE runs (
    num INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    kind TEXT NOT NULL,
    session TEXT NOT NULL,
    idempotency_key TEXT UNIQUE,
    new BLOB NOT NULL,
    created_at REAL NOT NULL
);
CREATE INDEX runs_by_session ON runs (session, id);
CREATE INDEX runs_by_kind ON runs (kind, id, session);
CREATE TABLE heads (
    num INTEGER PRIMARY KEY REFERENCES runs,
    state TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    kills INTEGER NOT NULL,
    owner TEXT NOT NULL,
    pipe TEXT NOT NULL,
    lease_until REAL NOT NULL,
    first_seq INTEGER NOT NULL,
    last_seq INTEGER,
    ended_at REAL,
    outcome BLOB,
    output_seqs BLOB,
    claimed_seq INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX heads_unfinished ON heads (num) WHERE ended_at IS NULL;
CREATE INDEX heads_failed ON heads (num) WHERE state IN ('failed', 'incomplete', 'parked', 'stopped');
CREATE INDEX heads_ended ON heads ((first_seq > 1), ended_at) WHERE ended_at IS NOT NULL;
CREATE TABLE batches (
    id INTEGER PRIMARY KEY,
    run INTEGER NOT NULL REFERENCES runs,
    first_seq INTEGER NOT NULL,
    last_seq INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    crc INTEGER NOT NULL,
    events BLOB NOT NULL,
    at REAL
);
CREATE TABLE places (
    run INTEGER NOT NULL,
    first_seq INTEGER NOT NULL,
    id INTEGER NOT NULL,
    PRIMARY KEY (run, first_seq)
) WITHOUT ROWID;
CREATE TABLE indexed (
    one INTEGER PRIMARY KEY,
    upto INTEGER NOT NULL
);
CREATE TABLE snapshots (
    run INTEGER PRIMARY KEY REFERENCES runs,
    seq INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    crc INTEGER NOT NULL,
    state BLOB NOT NULL
);
CREATE TABLE signals (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    run INTEGER NOT NULL REFERENCES runs,
    name TEXT NOT NULL,
    payload BLOB NOT NULL,
    sender TEXT NOT NULL
);
CREATE INDEX signals_by_run ON signals (run, id);
CREATE TABLE key_values (
    namespace TEXT NOT NULL,
    key TEXT NOT NULL,
    value BLOB NOT NULL,
    PRIMARY KEY (namespace, key)
) WITHOUT ROWID;
CREATE TABLE counters (
    name TEXT PRIMARY KEY,
    value REAL NOT NULL
) WITHOUT ROWID;
