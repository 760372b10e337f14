"""Who may decide at this moment: asked anew for every claim, and cheaply, since a claim asks about fifty cases."""

from collections.abc import Collection

from django.db import connection

from accounts.models import Role

_REVIEWERS = """
SELECT m.id FROM accounts_member m JOIN accounts_user u ON u.id = m.user_id
WHERE m.id = ANY(%s) AND m.is_active AND u.is_active AND %s = ANY(m.roles)
"""
_OWNERS = "SELECT id, owner_id FROM accounts_agent WHERE id = ANY(%s)"


def reviewers_among(member_ids: Collection[int]) -> set[int]:
    """Those of the members who are active and hold the reviewer's role now."""
    with connection.cursor() as cursor:
        cursor.execute(_REVIEWERS, [list(member_ids), Role.REVIEWER.value])
        return {member_id for (member_id,) in cursor.fetchall()}


def owners_of(agent_ids: Collection[int]) -> dict[int, int]:
    """{agent id: the member who stands behind it}."""
    with connection.cursor() as cursor:
        cursor.execute(_OWNERS, [list(agent_ids)])
        return dict(cursor.fetchall())
