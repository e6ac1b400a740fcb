SELECT w.id, r.num, h.output_seqs, s.seq, s.attempt, s.crc, s.state,
    b.first_seq, b.last_seq, b.attempt, b.crc, b.events
FROM unnest($1::text[], $2::integer[]) AS w(id, after)
JOIN runs AS r ON r.id = w.id JOIN heads AS h ON h.num = r.num
LEFT JOIN snapshots AS s ON s.run = r.num AND s.seq > w.after
LEFT JOIN LATERAL (
    SELECT * FROM (
        SELECT c.*, sum(octet_length(c.events)) OVER (ORDER BY c.first_seq) - octet_length(c.events) AS bytes_before
        FROM batches AS c
        WHERE c.run = r.num AND c.first_seq <= w.after + $3 AND c.last_seq > w.after AND c.first_seq >= coalesce(
            (SELECT max(d.first_seq) FROM batches AS d WHERE d.run = r.num AND d.first_seq <= w.after + 1), 0)
    ) AS bounded WHERE bytes_before < $4
) AS b ON s.seq IS NULL
ORDER BY w.id, b.first_seq
