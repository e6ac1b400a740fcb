CREATE TABLE runs (
    num bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id text COLLATE "C" NOT NULL UNIQUE,
    kind text NOT NULL,
    session text NOT NULL,
    idempotency_key text UNIQUE,
    new bytea NOT NULL,
    created_at double precision NOT NULL
);
CREATE INDEX runs_by_session ON runs (session, id);
CREATE INDEX runs_by_kind ON runs (kind, id, session);
CREATE TABLE heads (
    num bigint PRIMARY KEY,
    epoch integer NOT NULL,
    kills integer NOT NULL,
    first_seq integer NOT NULL,
    last_seq integer,
    claimed_seq integer NOT NULL DEFAULT 0,
    lease_until double precision NOT NULL,
    ended_at double precision,
    state text NOT NULL,
    owner text NOT NULL,
    outcome bytea,
    output_seqs bytea
) WITH (fillfactor = 70);
CREATE INDEX heads_unfinished ON heads (num) WHERE ended_at IS NULL;
CREATE INDEX heads_failed ON heads (num) WHERE state IN ('failed', 'incomplete', 'parked', 'stopped');
CREATE INDEX heads_ended ON heads (ended_at) WHERE ended_at IS NOT NULL;
CREATE INDEX heads_uncompacted ON heads (ended_at) WHERE ended_at IS NOT NULL AND first_seq = 1;
CREATE TABLE batches (
    run bigint NOT NULL,
    crc bigint NOT NULL,
    first_seq integer NOT NULL,
    last_seq integer NOT NULL,
    attempt integer NOT NULL,
    events bytea NOT NULL,
    at double precision,
    PRIMARY KEY (run, first_seq)
);
CREATE TABLE snapshots (
    run bigint PRIMARY KEY,
    crc bigint NOT NULL,
    seq integer NOT NULL,
    attempt integer NOT NULL,
    state bytea NOT NULL
);
CREATE TABLE signals (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run bigint NOT NULL,
    name text NOT NULL,
    payload bytea NOT NULL,
    sender text NOT NULL
);
CREATE INDEX signals_by_run ON signals (run, id);
CREATE TABLE key_values (
    namespace text NOT NULL,
    key text NOT NULL,
    value bytea NOT NULL,
    PRIMARY KEY (namespace, key)
);
CREATE TABLE counters (
    name text COLLATE "C" PRIMARY KEY,
    value double precision NOT NULL
) WITH (fillfactor = 50);
CREATE TABLE writers (
    id text PRIMARY KEY,
    number bigint NOT NULL,
    seen_at timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 50);
CREATE FUNCTION wall_clock(instead double precision) RETURNS double precision LANGUAGE sql VOLATILE
    AS 'SELECT coalesce(instead, extract(epoch FROM clock_timestamp())::double precision)';
CREATE FUNCTION newest_in_session(named text) RETURNS text LANGUAGE plpgsql VOLATILE AS $$
    BEGIN
        PERFORM pg_advisory_xact_lock(hashtextextended(named, hashtext(current_schema)));
        RETURN (SELECT max(id) FROM runs WHERE session = named);  -- as it is after the wait
    END
$$;
