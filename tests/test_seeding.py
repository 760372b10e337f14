"""A case that was seeded is, column by column, what the product makes of the same proposal and approval."""

from typing import Any

import pytest
from django.db import models, transaction

from approvals.models import Case, Proposal, Revision, Vote
from ledger.models import Operation, Order
from tests.seeding import Named, cases_like
from tests.worlds import World, approve, approved, claim, current, proposed, the_machines_agree, world

__all__ = ["the_machines_agree", "world"]

NAMED = ("7", "order:7")
OWN = ("id", "case_id", "order_id", "proposal_id", "subject", "pk")
"""Numbers that no two rows share."""


@pytest.mark.parametrize("is_approved", [True, False])
def test_a_seeded_case_is_what_the_product_makes(world: World, is_approved: bool) -> None:
    model = approved(world, "model", target="order:7")
    with transaction.atomic():
        made = proposed(world, NAMED[0], target=NAMED[1])
        if is_approved:
            approve(made, world.reviewer)
        expected = rows_of(current(made))
        transaction.set_rollback(True)

    (seeded,) = cases_like(model, [Named(*NAMED)], approved=is_approved)

    assert rows_of(Case.objects.get(pk=seeded)) == expected


def test_seeded_cases_are_carried_out_like_any(world: World) -> None:
    model = approved(world, "model")
    seeded = cases_like(
        model, [Named(str(number), f"order:{number % 2}") for number in range(4)], approved=True
    )

    assert {grant.subject for grant in claim()} == {model.pk, seeded[0], seeded[1]}


def rows_of(case: Case) -> list[list[dict[str, Any]]]:
    """All rows about the case, without what is each row's own: numbers and moments."""
    return [
        [_plain(row) for row in rows]
        for rows in (
            Case.objects.filter(pk=case.pk),
            Proposal.objects.filter(pk=case.proposal_id),
            Revision.objects.filter(case=case).order_by("number"),
            Vote.objects.filter(case=case),
            Order.objects.filter(subject=case.pk),
            Operation.objects.filter(order__subject=case.pk),
        )
    ]


def _plain(row: models.Model) -> dict[str, Any]:
    return {
        field.attname: getattr(row, field.attname)
        for field in row._meta.concrete_fields
        if field.attname not in OWN and not isinstance(field, models.DateTimeField)
    }
