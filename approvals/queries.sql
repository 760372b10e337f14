-- The statements that move cases in sets, beside the claim and the recording (docs/protocol.md).

-- name: lock_cases
-- Promises those of the cases that nobody is deciding on at this moment, locked, with all that the claim's checks read.
-- Safe because a busy case is skipped, never waited for: the claim waits for nobody.
-- The deadline is asked first without the time that the organisation stood still: it is nearly always enough.
SELECT c.id, c.state, c.revision, c.reference, c.action, c.target, c.step, p.material, p.rationale, p.evidence, p.sentence,
       p.fingerprint, p.digest, p.tool_version_id, policy.version AS policy_version, policy.approvals_required,
       p.expires_at <= clock_timestamp() AND p.expires_at
           + halted_time(c.tenant_id, c.tool_id, p.created_at, clock_timestamp()) <= clock_timestamp() AS late
FROM approvals_case c
JOIN approvals_proposal p ON p.id = c.proposal_id
JOIN approvals_policy policy ON policy.id = p.policy_id
WHERE c.id = ANY(%(cases)s)
ORDER BY c.id
FOR NO KEY UPDATE OF c SKIP LOCKED;

-- name: cases_to_stand
-- Promises the same of the cases that are being carried out, without a lock.
SELECT c.id, c.state, c.revision, c.reference, c.action, c.target, c.step, p.material, p.rationale, p.evidence, p.sentence,
       p.fingerprint, p.digest, p.tool_version_id, policy.version AS policy_version, policy.approvals_required,
       p.expires_at <= clock_timestamp() AND p.expires_at
           + halted_time(c.tenant_id, c.tool_id, p.created_at, clock_timestamp()) <= clock_timestamp() AS late
FROM approvals_case c
JOIN approvals_proposal p ON p.id = c.proposal_id
JOIN approvals_policy policy ON policy.id = p.policy_id
WHERE c.id = ANY(%(cases)s) AND c.state IN ('executing', 'unknown');

-- name: last_votes
-- Promises each reviewer's latest word on the wanted revision of each case, with who stands behind the proposal.
SELECT DISTINCT ON (v.case_id, v.reviewer_id) v.case_id, v.reviewer_id, v.verdict, c.agent_id, c.opened_by_id
FROM unnest(%(cases)s::bigint[], %(revisions)s::int[]) AS wanted (case_id, revision)
JOIN approvals_vote v ON v.case_id = wanted.case_id AND v.revision = wanted.revision
JOIN approvals_case c ON c.id = v.case_id
ORDER BY v.case_id, v.reviewer_id, v.id DESC;

-- name: traces
-- Promises the trace that each case's agent has named for what is being carried out, where there is one.
SELECT c.id, p.trace_id FROM approvals_case c JOIN approvals_proposal p ON p.id = c.proposal_id
WHERE c.id = ANY(%(cases)s) AND p.trace_id <> '';

-- name: advance_cases
-- Promises that the cases in one of the source states move, each one revision up with its Revision row.
-- Safe because the source states are in the WHERE and the answer is counted: a case that is elsewhere is missing in it.
WITH moved AS (
    UPDATE approvals_case c SET state = %(state)s, revision = c.revision + 1
    WHERE c.id = ANY(%(cases)s) AND c.state = ANY(%(sources)s)
    RETURNING c.id, c.revision, c.proposal_id
)
INSERT INTO approvals_revision (case_id, number, state, act, proposal_id, actor_kind, actor_id, actor_name, reason_code, at)
SELECT id, revision, %(state)s, %(act)s, proposal_id, 'system', 0, %(actor)s,
       coalesce((%(reasons)s::text[])[array_position(%(cases)s::bigint[], id)], ''), clock_timestamp()
FROM moved ORDER BY id
RETURNING case_id, number;
