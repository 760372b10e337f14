"""Who may decide at this moment: asked anew for every claim, and cheaply, since a claim asks about fifty cases."""

from collections.abc import Collection
from pathlib import Path

from accounts.sql import Queries

QUERIES = Queries(Path(__file__).with_name("queries.sql"))


def may_decide(pairs: Collection[tuple[int, int]]) -> set[tuple[int, int]]:
    """Those of the (member id, agent id) pairs in which the member is an active reviewer and does not own the agent."""
    members, agents = [member for member, _agent in pairs], [agent for _member, agent in pairs]
    return {
        (row.member_id, row.agent_id) for row in QUERIES.rows("may_decide", members=members, agents=agents)
    }
