"""Many cases at once, each as the product itself would have made it: one is made by it, the others after that one.

Set-based, so that ten thousand take seconds. Whatever column a table has is taken from the model case, but for those
that name the case; all constraints and triggers see every row.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from django.db import connection, models, transaction

from approvals import proposals
from approvals.models import Case, Proposal, Revision, Vote
from approvals.proposals import Content, Facts
from ledger import tools
from ledger.identity import idempotency_key
from ledger.models import Operation, Order

PENDING, APPROVED = 1, 2
"""The revisions at which a case is one or the other, by the shortest way."""


@dataclass(frozen=True, slots=True)
class Named:
    """What tells a case from its model: the customer's own number, and what it touches."""

    reference: str
    target: str


def cases_like(model: Case, names: Sequence[Named], *, approved: bool) -> list[int]:
    """Cases with the model's content under these names, pending or approved; their numbers in the names' order.

    The model is approved, and has been proposed and approved once.
    """
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(_NAMES, [list(column) for column in zip(*_named(model, names), strict=True)])
        _after(cursor, Proposal, {"digest": "s.digest"}, "id = %(proposal)s", model)
        _after(cursor, Case, _AS_PROPOSED, "id = %(case)s", model, join=_PROPOSAL)
        cursor.execute(_COUNT)
        cursor.execute(_KEEP_NUMBERS)
        _after(cursor, Revision, _OF_THE_CASE, f"case_id = %(case)s AND number = {PENDING}", model)
        if approved:
            cursor.execute(
                f"UPDATE approvals_case SET state = 'approved', revision = {APPROVED}"
                " WHERE id IN (SELECT case_id FROM seeded)"
            )
            _after(cursor, Revision, _OF_THE_CASE, f"case_id = %(case)s AND number = {APPROVED}", model)
            voted = {"case_id": "s.case_id", "digest": "s.digest"}
            _after(cursor, Vote, voted, f"case_id = %(case)s AND revision = {PENDING}", model)
            _approve(cursor, model)
        cursor.execute("SELECT case_id FROM seeded ORDER BY n")
        made = [case_id for (case_id,) in cursor.fetchall()]
        cursor.execute("DROP TABLE seeded")
    return made


def _named(model: Case, names: Sequence[Named]) -> list[tuple[Any, ...]]:
    """What the names make of the model: (n, reference, target, action key, digest, key, resource, body)."""
    proposal, version = model.proposal, model.proposal.tool_version
    material = proposals.material(proposal)
    content = Content(material["parameters"], material["expects"], proposal.rationale, proposal.evidence)
    rows: list[tuple[Any, ...]] = []
    for number, name in enumerate(names):
        facts = Facts(name.reference, model.action, name.target, model.step)
        rendered = tools.render(version, facts=asdict(facts), parameters=content.parameters)
        digest = proposals._digest(facts, content, version, proposal.policy, rendered.sentence)
        key = idempotency_key(tenant=model.tenant_id, **asdict(facts), approved_revision=APPROVED)
        action_key = facts.key(model.tenant_id)
        rows.append(
            (number, *asdict(name).values(), action_key, digest, key, rendered.resource, rendered.body)
        )
    return rows


_NAMES = """
CREATE TEMPORARY TABLE seeded AS
SELECT *, NULL::bigint AS case_id, NULL::bigint AS proposal_id
FROM unnest(%s::int[], %s::text[], %s::text[], %s::text[], %s::text[], %s::text[], %s::text[], %s::text[])
    AS named (n, reference, target, action_key, digest, key, resource, body)
"""
_COUNT = "ANALYZE seeded, approvals_proposal, approvals_case, ledger_order, ledger_resource"
"""So that thousands of rows which nobody knows of yet are not joined one by one."""
_PROPOSAL = "JOIN approvals_proposal p ON p.digest = s.digest"
_KEEP_NUMBERS = """
UPDATE seeded s SET case_id = c.id, proposal_id = c.proposal_id
FROM approvals_case c JOIN approvals_proposal p ON p.id = c.proposal_id WHERE p.digest = s.digest
"""
_AS_PROPOSED = {
    "reference": "s.reference",
    "target": "s.target",
    "action_key": "s.action_key",
    "proposal_id": "p.id",
    "state": "'pending'",
    "revision": str(PENDING),
}
_OF_THE_CASE = {"case_id": "s.case_id", "proposal_id": "s.proposal_id"}


def _approve(cursor: Any, model: Case) -> None:
    cursor.execute(
        "INSERT INTO ledger_resource (tenant_id, name, version, token)"
        " SELECT DISTINCT %s::uuid, resource, 0, 0 FROM seeded ON CONFLICT DO NOTHING",
        [model.tenant_id],
    )
    ordered = {"key": "s.key", "digest": "s.digest", "subject": "s.case_id", "body": "s.body"}
    _after(cursor, Order, ordered, "subject = %(case)s", model)
    begun = {"order_id": "d.id", "resource_id": "r.id", "action_key": "s.action_key"}
    its = (
        "JOIN ledger_order d ON d.subject = s.case_id"
        " JOIN ledger_resource r ON r.tenant_id = d.tenant_id AND r.name = s.resource"
    )
    _after(
        cursor,
        Operation,
        begun,
        "order_id IN (SELECT id FROM ledger_order WHERE subject = %(case)s)",
        model,
        join=its,
    )


def _after(
    cursor: Any, kind: type[models.Model], own: Mapping[str, str], which: str, model: Case, *, join: str = ""
) -> None:
    """A row for each name like the model's row, with its own in these columns."""
    cursor.execute(_COUNT)
    columns = [
        each.column
        for each in kind._meta.concrete_fields
        if not each.generated and each.column is not None and not isinstance(each, models.AutoField)
    ]
    values = ", ".join(own.get(column, f"m.{column}") for column in columns)
    cursor.execute(
        f"INSERT INTO {kind._meta.db_table} ({', '.join(columns)}) SELECT {values} FROM seeded s {join},"
        f" (SELECT * FROM {kind._meta.db_table} WHERE {which}) m ORDER BY s.n",
        {"case": model.pk, "proposal": model.proposal_id},
    )
