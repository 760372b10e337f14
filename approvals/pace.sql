-- How people decide. Reads the votes of an organisation's members in a range of time, by `votes_of_a_reviewer`.
-- `took`: seconds from the revision's arrival. `looked`: the longest its reviewer can have looked at it, which is since
-- it arrived, or since the same person's word before it.

-- name: spread
-- Promises how many decisions there were by verdict and by how long they took, 0 being below the first of the edges,
-- and how many of them were looked at for less than `below` seconds.
SELECT verdict, width_bucket(took, %(edges)s::float8[]) AS bin, count(*) AS n,
       count(*) FILTER (WHERE looked < %(below)s) AS hasty
FROM (
    SELECT v.verdict, extract(epoch FROM v.at - r.at)::float8 AS took,
           extract(epoch FROM v.at - greatest(r.at, lag(v.at) OVER words_of_one))::float8 AS looked
    FROM approvals_vote v JOIN approvals_revision r ON r.case_id = v.case_id AND r.number = v.revision
    WHERE v.reviewer_id = ANY(%(members)s) AND v.at > %(since)s AND v.at <= %(until)s
    WINDOW words_of_one AS (PARTITION BY v.reviewer_id ORDER BY v.at, v.id)
) word
WHERE verdict = ANY(%(verdicts)s)
GROUP BY verdict, bin;

-- name: percentiles
-- Promises the time that half of the decisions took at most, and 95 in 100; nothing where there were none.
SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY took) AS median,
       percentile_cont(0.95) WITHIN GROUP (ORDER BY took) AS most
FROM (
    SELECT extract(epoch FROM v.at - r.at)::float8 AS took
    FROM approvals_vote v JOIN approvals_revision r ON r.case_id = v.case_id AND r.number = v.revision
    WHERE v.reviewer_id = ANY(%(members)s) AND v.at > %(since)s AND v.at <= %(until)s
      AND v.verdict = ANY(%(verdicts)s)
) word;

-- name: decisions
-- Promises up to `most` decisions of the range before the vote `before`, the newest first; those looked at for less
-- than `below` seconds where it is given.
SELECT id, case_id, revision, verdict, reviewer_id, at, took, looked
FROM (
    SELECT v.id, v.case_id, v.revision, v.verdict, v.reviewer_id, v.at,
           extract(epoch FROM v.at - r.at)::float8 AS took,
           extract(epoch FROM v.at - greatest(r.at, lag(v.at) OVER words_of_one))::float8 AS looked
    FROM approvals_vote v JOIN approvals_revision r ON r.case_id = v.case_id AND r.number = v.revision
    WHERE v.reviewer_id = ANY(%(members)s) AND v.at > %(since)s AND v.at <= %(until)s
    WINDOW words_of_one AS (PARTITION BY v.reviewer_id ORDER BY v.at, v.id)
) word
WHERE verdict = ANY(%(verdicts)s) AND id < %(before)s
  AND (%(below)s::float8 IS NULL OR (verdict = 'approve' AND looked < %(below)s))
ORDER BY id DESC LIMIT %(most)s;
