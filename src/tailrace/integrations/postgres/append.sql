WITH held AS MATERIALIZED (
    SELECT h.num
    FROM unnest($1::bigint[], $2::integer[], $3::text[], $4::integer[]) AS w(num, epoch, owner, first_seq)
    JOIN heads AS h ON h.num = w.num AND h.epoch = w.epoch AND h.owner = w.owner
    WHERE w.first_seq - 1 = (
        SELECT b.last_seq FROM batches AS b WHERE b.run = w.num AND b.first_seq < w.first_seq
        ORDER BY b.first_seq DESC LIMIT 1)
    FOR NO KEY UPDATE OF h
), entries AS (
    INSERT INTO batches (run, first_seq, last_seq, attempt, crc, events, at)
    SELECT b.* FROM unnest($5::bigint[], $6::integer[], $7::integer[], $8::integer[], $9::bigint[], $10::bytea[],
        $11::double precision[]) AS b(run, first_seq, last_seq, attempt, crc, events, at)
    WHERE (b.run IN (SELECT num FROM held)) IS TRUE -- no join: that would compare each row with each run
    ON CONFLICT (run, first_seq) DO NOTHING
)
SELECT ARRAY(SELECT num FROM held), CASE WHEN $13::text <> '' THEN pg_notify($12::text, $13::text) END
