-- After a backup was restored (docs/restore.md).

-- name: skip_case_numbers
-- Promises that numbers given since the backup are not given to other cases.
SELECT setval(sequence, nextval(sequence) + %(skipped)s)
FROM pg_get_serial_sequence('approvals_case', 'id') AS sequence;
