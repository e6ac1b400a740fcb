WITH run AS (
    INSERT INTO runs (id, kind, session, idempotency_key, new, created_at) VALUES ($1, $2, $3, $4, $5, $6)
    ON CONFLICT DO NOTHING RETURNING num
), head AS (
    INSERT INTO heads (num, state, epoch, kills, owner, lease_until, first_seq, last_seq, ended_at, outcome)
    SELECT num, $7, $8, $9, $10, CASE WHEN $11::double precision IS NULL THEN 0
        ELSE wall_clock($12) + $11 END, $13, $14, $15, $16 FROM run
), entries AS (
    INSERT INTO batches (run, first_seq, last_seq, attempt, crc, events, at)
    SELECT run.num, b.* FROM run, unnest($17::integer[], $18::integer[], $19::integer[], $20::bigint[],
        $21::bytea[], $22::double precision[]) AS b
)
SELECT num FROM run
