"""What the provider may answer, or not: each fault with a real worker, effects counted at the provider."""

import httpx
import pytest

from approvals.models import Case
from ledger.states import OperationState
from tests.crashes.stage import PATIENCE, PATIENT, Provider, Stage, wait_for

NOBODY = "http://127.0.0.1:1"  # a port that no service has

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize(
    ("fault", "outcomes"),
    [
        ("drop_after_commit", ["uncertain", "committed"]),
        ("drop_before_commit", ["uncertain", "committed"]),
        ("error_after_commit", ["uncertain", "committed"]),
        ("conflict", ["in_progress", "committed"]),
        ("rate_limit", ["busy", "committed"]),
    ],
)
def test_a_fault_is_settled_without_a_person_and_with_one_effect(
    stage: Stage, provider: Provider, fault: str, outcomes: list[str]
) -> None:
    worker = stage.worker("a", provider, **PATIENT)
    provider.fault(fault)
    case = stage.approved(provider)
    worker.wait_until_ready()
    stage.wait_for_state(case, OperationState.COMMITTED)
    stage.assert_happened_once(case, provider)
    assert [each.outcome for each in stage.attempts(case)] == outcomes


def test_what_may_have_happened_is_unknown_until_it_is_looked_up(stage: Stage, provider: Provider) -> None:
    worker = stage.worker("a", provider, **PATIENT, backoff="30", backoff_most="30")
    provider.fault("drop_after_commit")
    case = stage.approved(provider)
    worker.wait_until_ready()
    operation = stage.wait_for_state(case, OperationState.OUTCOME_UNKNOWN)
    assert Case.objects.get(pk=case.pk).state == "unknown"
    assert provider.effects() == [operation.order.key]


def test_a_stored_500_without_an_effect_stays_unknown_and_is_not_sent_for_ever(
    stage: Stage, provider: Provider
) -> None:
    """The provider keeps its 500 under the key: a repeat brings it again, so only a look-up or a person can tell."""
    worker = stage.worker("a", provider, **PATIENT)
    provider.fault("error_before_commit")
    case = stage.approved(provider)
    worker.wait_until_ready()
    wait_for("the fifth attempt to end", lambda: len([a for a in stage.attempts(case) if a.outcome]) >= 5)
    worker.kill()
    assert stage.operation(case).state == OperationState.OUTCOME_UNKNOWN
    assert provider.effects() == []
    assert [each.sent for each in stage.attempts(case)[:5]] == [True, True, False, False, False]


def test_a_definite_refusal_on_the_first_send_is_failed_before_commit(
    stage: Stage, provider: Provider
) -> None:
    worker = stage.worker("a", provider, **PATIENT)
    provider.fault("decline")
    case = stage.approved(provider)
    worker.wait_until_ready()
    operation = stage.wait_for_state(case, OperationState.FAILED_BEFORE_COMMIT)
    assert operation.reason == "card_declined"
    assert Case.objects.get(pk=case.pk).state == "failed"
    assert provider.effects() == []
    assert operation.resource.holder_id is None


@pytest.mark.parametrize("fault", ["hang_before_commit", "hang_after_commit"])
def test_a_hang_beyond_the_lease_ends_with_one_effect(stage: Stage, provider: Provider, fault: str) -> None:
    """The call times out, its heartbeat ends with it; the provider may commit long after."""
    worker = stage.worker("a", provider)
    provider.fault(fault, seconds=2.5)
    case = stage.approved(provider)
    worker.wait_until_ready()
    stage.wait_for_state(case, OperationState.COMMITTED)
    wait_for("the hanging call to end", lambda: not _pending(provider))
    stage.assert_happened_once(case, provider)


def test_the_resource_is_kept_until_the_unknown_is_settled(stage: Stage, provider: Provider) -> None:
    worker = stage.worker("a", provider, **PATIENT)
    provider.fault("error_before_commit")
    first = stage.approved(provider)
    second = stage.approved(provider, reference="1843")
    worker.wait_until_ready()
    stage.wait_for_state(first, OperationState.OUTCOME_UNKNOWN)
    third = stage.approved(provider, reference="1844", target="order:elsewhere")
    stage.wait_for_state(third, OperationState.COMMITTED)
    assert stage.operation(second).state == OperationState.NOT_STARTED


def test_a_provider_that_cannot_be_reached_was_sent_nothing(stage: Stage, provider: Provider) -> None:
    worker = stage.worker("a", Provider(NOBODY, provider.gate), **PATIENT)
    case = stage.approved(provider)
    worker.wait_until_ready()
    wait_for("a second attempt", lambda: len(stage.attempts(case)) >= 2)
    first = stage.attempts(case)[0]
    assert (first.outcome, first.sent) == ("not_sent", False)
    assert stage.operation(case).state == OperationState.STARTED
    worker.kill()
    stage.worker("b", provider, **PATIENT).wait_until_ready()
    stage.wait_for_state(case, OperationState.COMMITTED)
    stage.assert_happened_once(case, provider)


def _pending(provider: Provider) -> list[object]:
    requests = httpx.get(
        f"{provider.url}/_sandbox/requests", params={"charge": provider.charge}, timeout=PATIENCE
    ).json()
    return [each for each in requests if each["method"] == "POST" and each.get("status") is None]
