"""Content goes when its time is over; what stays keeps the action from happening again."""

import json
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import IntegrityError, connection, transaction
from django.test import Client

from approvals import representations, retention
from approvals.errors import ConflictingProposal, ContentRemoved
from approvals.models import Case, Proposal, Pruning, Revision, Vote
from approvals.states import CaseState, Verdict
from ledger import findings
from ledger import retention as ledger_retention
from ledger.models import Attempt, Attestation, Evidence, InboundEvent, Order
from ledger.models import Pruning as LedgerPruning
from ledger.states import AttemptOutcome, ControlEventKind, FindingKind
from tests.console.doors import Person, words
from tests.machines import refused
from tests.worlds import (
    World,
    broken_rule,
    case_in,
    claim,
    claimed,
    current,
    events,
    make_due,
    operation,
    proposed,
    recorded,
    report,
    revised,
    say,
    take_over,
    triggers_off,
    withdrawn,
)
from workers import hints, outcomes

LONG_AGO = "500 days"
BETWEEN = "60 days"
"""Past the retry horizon of thirty days, before the retention of four hundred."""


def by_hand(statement: str) -> None:
    with triggers_off(), connection.cursor() as cursor:
        cursor.execute(statement)


def age(case: Case, by: str = LONG_AGO) -> None:
    """Everything about the case happened so much earlier."""
    by_hand(
        f"UPDATE ledger_operation SET settled_at = settled_at - interval '{by}'"
        f" WHERE order_id IN (SELECT id FROM ledger_order WHERE subject = {case.pk})"
    )
    by_hand(f"UPDATE approvals_revision SET at = at - interval '{by}' WHERE case_id = {case.pk}")


def executed(world: World) -> Case:
    """With everything that content may stand in: a late report, a person's word, an event."""
    grant = claimed(world)
    recorded(grant)
    Evidence.objects.create(
        operation_id=grant.order_id, token=1, worker="w", outcome="committed", receipt="{}", note="secret"
    )
    Attestation.objects.create(
        operation_id=grant.order_id,
        testimony="happened",
        member=world.member("operator"),
        name="Olga Demo",
        evidence="secret",
        tag="t",
    )
    event = InboundEvent(
        tenant=world.tenant, tool=operation(grant).tool, event_id="e", kind="refund", body="secret"
    )
    event.operation_id, event.matched_at = grant.order_id, operation(grant).settled_at
    event.save()
    return Case.objects.get(pk=grant.subject)


@pytest.fixture
def pruned(world: World) -> Case:
    case = executed(world)
    age(case)
    assert retention.prune_due() == 1
    return case


def test_nothing_goes_before_its_time(world: World) -> None:
    case = executed(world)
    age(case, BETWEEN)

    assert retention.prune_due() == 0
    assert Order.objects.get().body != "{}"


def test_content_goes_and_identity_stays(world: World) -> None:
    case = executed(world)
    age(case)
    before = identities(case)

    assert retention.prune_due() == 1

    assert identities(case) == before
    proposal = Proposal.objects.get(pk=case.proposal_id)
    assert (proposal.material, proposal.rationale) == ('{"expects":{},"parameters":{}}', "")
    assert (proposal.evidence, proposal.sentence) == ([], "")
    assert set(Revision.objects.filter(case=case).values_list("reason", flat=True)) == {""}
    assert set(Vote.objects.filter(case=case).values_list("reason", flat=True)) == {""}
    assert Order.objects.get().body == "{}"
    assert list(Attempt.objects.values_list("receipt", "note")) == [("{}", None)]
    assert list(Evidence.objects.values_list("receipt", "note")) == [(None, None)]
    assert Attestation.objects.get().evidence == ""
    assert InboundEvent.objects.get().body == ""
    gone = retention.removed(current(case))
    assert gone is not None
    assert (gone.by, gone.erased) == ("retention", False)
    assert retention.prune_due() == 0


def identities(case: Case) -> Any:
    now = current(case)
    order = Order.objects.get(subject=case.pk)
    return (
        (now.state, now.revision, now.action_key, now.reference, now.target),
        (now.proposal.fingerprint, now.proposal.digest, now.proposal.amount_minor),
        (order.key, order.fingerprint, order.digest, order.amount_minor, order.currency),
        (operation(case).state, operation(case).reference, operation(case).token),
    )


def test_the_same_queue_message_after_pruning_does_nothing_again(world: World, pruned: Case) -> None:
    order = Order.objects.get()
    hints.observe([{"key": order.key, "fingerprint": order.fingerprint}], worker="w")
    hints.observe([{"key": order.key, "fingerprint": "0" * 64}], worker="w")
    make_due()

    assert (claim(), take_over()) == ([], [])
    assert len(events(ControlEventKind.REPLAY)) == 1
    assert len(events(ControlEventKind.FINGERPRINT_CONFLICT)) == 1
    assert Attempt.objects.count() == 1


def test_the_same_proposal_after_pruning_is_the_case_there_was(world: World, pruned: Case) -> None:
    assert proposed(world).pk == pruned.pk
    with pytest.raises(ConflictingProposal):
        proposed(world, amount_minor=1)
    assert Order.objects.count() == 1
    assert current(pruned).state == CaseState.EXECUTED


def test_a_late_receipt_after_pruning_is_kept_and_changes_nothing(world: World) -> None:
    grant = claimed(world)
    done = recorded(grant)
    case = Case.objects.get(pk=grant.subject)
    age(case)
    retention.prune_due()

    outcomes.record([report(grant, AttemptOutcome.UNCERTAIN, worker="worker-late", note="late words")])

    assert Evidence.objects.get().note == "late words"
    assert operation(grant).reference == done.reference
    assert len(events(ControlEventKind.FENCED_WRITE)) == 1

    by_hand(f"UPDATE ledger_evidence SET recorded_at = recorded_at - interval '{LONG_AGO}'")
    assert retention.prune_due() == 1
    assert Evidence.objects.get().note is None


def test_the_api_answers_a_pruned_case_still(world: World, pruned: Case) -> None:
    key = {"Authorization": f"Bearer {world.organisation.agent_key}"}
    answer = Client().get(f"/api/v1/cases/{pruned.pk}", headers=key)

    assert answer.status_code == 200
    assert json.loads(answer.content)["state"] == "executed"


def test_the_pages_of_a_pruned_case_still_open(world: World, pruned: Case) -> None:
    person = Person(world.member("operator"))
    name = operation(pruned).pk
    addresses = [f"/cases/{pruned.pk}/", f"/operations/{name}/", "/cases/", "/operations/", "/"]

    assert [person.open(address).status_code for address in addresses] == [200] * len(addresses)


def test_a_pruned_case_says_that_its_content_was_removed_and_shows_no_empty_fields(
    world: World, pruned: Case
) -> None:
    key = {"Authorization": f"Bearer {world.organisation.agent_key}"}
    case = Client().get(f"/api/v1/cases/{pruned.pk}", headers=key).json()
    (first, *_) = Client().get(f"/api/v1/cases/{pruned.pk}/revisions", headers=key).json()["items"]
    row = Pruning.objects.get()
    told = {"at": representations.moment(row.at), "because": row.because, "on_request": False}
    assert (case["content_removed"], first["content_removed"]) == (told, told)
    other = Client().get(f"/api/v1/cases/{proposed(world, 'whole').pk}", headers=key).json()
    assert other["content_removed"] is None

    page = words(Person(world.member("operator")).open(f"/cases/{pruned.pk}/").content.decode())
    assert "The content was removed on" in page
    assert row.because in page
    assert "The agent sent none." not in page
    for address in ("/cases/", "/operations/"):
        assert "Content removed" in words(Person(world.member("operator")).open(address).content.decode())


def test_a_rejected_case_whose_content_is_gone_is_not_reopened(world: World) -> None:
    case = case_in(world, CaseState.REJECTED)
    age(case)
    assert retention.prune_due() == 1
    reviewer = Person(world.member("reviewer"))
    assert "Its content was removed" in words(reviewer.open(f"/cases/{case.pk}/").content.decode())
    with pytest.raises(ContentRemoved):
        say(Verdict.REOPEN, case, world.reviewer)
    assert current(case).state == CaseState.REJECTED
    assert len(events(ControlEventKind.REFUSED_ACT)) == 1


def test_a_finding_that_is_open_keeps_the_content(world: World) -> None:
    case = executed(world)
    age(case)
    findings.open_finding(
        tenant_id=world.tenant.pk, kind=FindingKind.LATE, about="x", subject=case.pk, order_id=None
    )

    assert retention.prune_due() == 0
    refused("pruned_only_past_the_horizon", lambda: prune_by_hand(case))


@pytest.mark.parametrize("state", [CaseState.EXECUTING, CaseState.UNKNOWN, CaseState.APPROVED])
def test_what_is_not_settled_is_never_pruned(world: World, state: CaseState) -> None:
    case = case_in(world, state)
    age(case)

    assert retention.prune_due() == 0
    refused("pruned_only_past_the_horizon", lambda: prune_by_hand(case))
    refused("pruned_only_past_the_horizon", lambda: prune_by_hand(case, erasing=True))


def prune_by_hand(case: Case, *, erasing: bool = False) -> None:
    ledger_retention.prune(orders=[operation(case).pk], by="a hand", because="-", erasing=erasing)


@pytest.mark.parametrize(
    "state", [CaseState.REJECTED, CaseState.WITHDRAWN, CaseState.EXPIRED, CaseState.FAILED]
)
def test_cases_that_came_to_nothing_are_pruned_too(world: World, state: CaseState) -> None:
    case = case_in(world, state)
    age(case)

    assert retention.prune_due() == 1
    assert current(case).proposal.rationale == ""


@pytest.mark.parametrize("state", [CaseState.PENDING, CaseState.RETURNED, CaseState.HELD])
def test_what_is_still_to_be_decided_keeps_its_content(world: World, state: CaseState) -> None:
    case = case_in(world, state)
    age(case)

    assert retention.prune_due() == 0
    with pytest.raises(retention.NotYet, match="until it has ended"):
        erase(world, case)
    refused(
        "cases_are_pruned_only_once_they_have_ended",
        lambda: Pruning.objects.create(case=case, proposal_id=case.proposal_id, by="x", because="x"),
    )


def test_every_proposal_of_the_case_is_emptied(world: World) -> None:
    case = withdrawn(world, revised(world, proposed(world), amount_minor=7))
    age(case)
    retention.prune_due()

    assert Proposal.objects.exclude(sentence="").count() == 0
    assert Pruning.objects.filter(case=case).count() == 2


EMPTYINGS = [
    (Order, {"body": "{}"}, "order_rows_are_insert_only"),
    (Attempt, {"receipt": "{}", "note": None}, "attempts_close_once"),
    (Evidence, {"receipt": None, "note": None}, "evidence_rows_are_insert_only"),
    (Attestation, {"evidence": ""}, "attestation_rows_are_insert_only"),
    (InboundEvent, {"body": ""}, "inbound_events_are_stored_as_they_came"),
    (Proposal, {"sentence": ""}, "proposal_rows_are_insert_only"),
    (Revision, {"reason": ""}, "revision_rows_are_insert_only"),
    (Vote, {"reason": ""}, "vote_rows_are_insert_only"),
]


@pytest.mark.parametrize(
    ("model", "emptied", "rule"), EMPTYINGS, ids=lambda each: getattr(each, "__name__", "")
)
def test_nobody_empties_a_row_before_its_pruning_is_written(
    world: World, model: Any, emptied: dict[str, Any], rule: str
) -> None:
    age(executed(world))
    refused(rule, lambda: model.objects.update(**emptied))


@pytest.mark.parametrize(
    ("model", "emptied", "rule"), EMPTYINGS, ids=lambda each: getattr(each, "__name__", "")
)
def test_what_is_pruned_can_be_emptied_and_nothing_else(
    world: World, pruned: Case, model: Any, emptied: dict[str, Any], rule: str
) -> None:
    model.objects.update(**emptied)
    column = next(iter(emptied))
    refused(rule, lambda: model.objects.update(**{column: '{"other":"words"}'}))
    refused(rule, lambda: model.objects.update(**_moved(model)))


def _moved(model: Any) -> dict[str, Any]:
    column = {
        Order: "key",
        Attempt: "worker",
        Evidence: "worker",
        Attestation: "name",
        InboundEvent: "kind",
        Proposal: "digest",
        Revision: "actor_name",
        Vote: "digest",
    }[model]
    return {column: "x"}


def test_a_pruning_is_never_taken_back(world: World, pruned: Case) -> None:
    for model in (Pruning, LedgerPruning):
        refused("pruning_rows_are_insert_only", lambda model=model: model.objects.update(by="x"))  # type: ignore[misc]
        refused("pruning_rows_are_insert_only", lambda model=model: raw_delete(model))  # type: ignore[misc]


def raw_delete(model: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"DELETE FROM {model._meta.db_table}")


def test_of_a_batch_with_one_that_may_not_be_pruned_none_is(world: World) -> None:
    done = executed(world)
    age(done)
    running = claimed(world, "1843", target="order:2")
    with pytest.raises(IntegrityError) as caught, transaction.atomic():
        ledger_retention.prune(orders=[operation(done).pk, running.order_id], by="x", because="x")

    assert broken_rule(caught.value) == "pruned_only_past_the_horizon"
    assert Order.objects.filter(body="{}").count() == 0


# Erasing.


def erase(world: World, case: Case) -> retention.Removed:
    return retention.erase(
        tenant_id=world.tenant.pk, case_id=case.pk, by="person:Adam Demo", because="Request 7"
    )


def test_an_erasure_does_not_wait_for_the_retention_but_for_the_retry_horizon(world: World) -> None:
    case = executed(world)
    with pytest.raises(retention.NotYet, match="retry horizon"):
        erase(world, case)
    age(case, BETWEEN)

    gone = erase(world, case)

    assert (gone.by, gone.because, gone.erased) == ("person:Adam Demo", "Request 7", True)
    assert current(case).proposal.rationale == ""
    assert erase(world, case) == gone


def test_an_erasure_waits_for_the_finding_to_close(world: World) -> None:
    case = executed(world)
    age(case, BETWEEN)
    findings.open_finding(
        tenant_id=world.tenant.pk, kind=FindingKind.LATE, about="x", subject=case.pk, order_id=None
    )
    with pytest.raises(retention.NotYet, match="finding"):
        erase(world, case)


def test_the_commands_say_what_they_did(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    case = executed(world)
    options = {"tenant": str(world.tenant.pk), "by": "Adam Demo", "because": "Request 7"}
    with pytest.raises(CommandError, match="retry horizon"):
        call_command("erase", case=case.pk, **options)
    with pytest.raises(CommandError, match="no case"):
        call_command("erase", case=0, **options)
    age(case, BETWEEN)
    call_command("erase", case=case.pk, **options)
    assert "was removed" in capsys.readouterr().out
    call_command("prune")
    assert "0 emptied" in capsys.readouterr().out


def test_an_event_that_matched_nothing_is_emptied_in_its_time(world: World) -> None:
    tool = operation(executed(world)).tool
    InboundEvent.objects.create(tenant=world.tenant, tool=tool, event_id="e2", kind="x", body="words")
    refused("inbound_events_are_stored_as_they_came", lambda: unmatched().update(body=""))
    by_hand(f"UPDATE ledger_inboundevent SET received_at = received_at - interval '{LONG_AGO}'")

    assert retention.prune_due() == 1
    assert unmatched().get().body == ""


def unmatched() -> Any:
    return InboundEvent.objects.filter(operation=None)
