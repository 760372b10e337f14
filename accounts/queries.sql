-- What a claim asks about people, in sets (docs/protocol.md, Claim).

-- name: may_decide
-- Promises those of the (member, agent) pairs in which the member is an active reviewer now and does not own the agent.
SELECT wanted.member_id, wanted.agent_id
FROM unnest(%(members)s::bigint[], %(agents)s::bigint[]) AS wanted (member_id, agent_id)
JOIN accounts_member m ON m.id = wanted.member_id
JOIN accounts_user u ON u.id = m.user_id
JOIN accounts_agent a ON a.id = wanted.agent_id
WHERE m.is_active AND u.is_active AND 'reviewer' = ANY(m.roles) AND a.owner_id IS DISTINCT FROM m.id;
