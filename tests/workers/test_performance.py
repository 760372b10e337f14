"""One grant carried out: what each answer of a sink comes to, first or after an attempt that may have been sent."""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings
from django.db.models.functions import Now

from ledger.claims import Grant
from ledger.models import Attempt
from ledger.states import AttemptOutcome, EnforcementClass
from tests.workers.told import Told, told, tool_of_the_told_sink
from tests.worlds import (
    LAPSED,
    LEASE,
    WORKER,
    World,
    approved,
    attempts,
    case_of,
    claim,
    claimed,
    make_due,
    make_late,
    operation,
    recorded,
    take_over,
    triggers_off,
)
from workers import outcomes, together
from workers.connectors.answers import (
    Answer,
    Busy,
    Fenced,
    Found,
    InProgress,
    NotSent,
    Receipt,
    Refused,
    Uncertain,
)
from workers.leases import Lease
from workers.performance import perform

__all__ = ["told"]

RECEIPT = Receipt("re_77", "succeeded", {"id": "re_77", "amount": 125_000})


@pytest.fixture(autouse=True)
def _the_tool(world: World) -> None:
    tool_of_the_told_sink(world)


def lease_of(grant: Grant, *, seconds: float = LEASE) -> Lease:
    now = time.monotonic()
    return Lease(order_id=grant.order_id, token=grant.token, ends=now + seconds, call_ends=now + seconds)


def carry_out(grant: Grant, *, worker: str = WORKER) -> tuple[str, str, str, str | None]:
    """Performs and records; answers (attempt's outcome, operation's state, case's state, operation's reason)."""
    outcomes.record([perform(grant, lease_of(grant), worker=worker)])
    it = operation(grant)
    return str(attempts(grant)[-1].outcome), it.state, case_of(grant).state, it.reason


def first_grant(world: World) -> Grant:
    return claimed(world, action="told")


def after_no_answer(world: World) -> Grant:
    """A grant after an attempt that brought no answer: the operation is unknown."""
    recorded(first_grant(world), AttemptOutcome.UNCERTAIN)
    (grant,) = take_over(worker=WORKER)
    return grant


def after_silence(world: World) -> Grant:
    """A grant after an attempt whose worker fell silent: the operation is started."""
    claimed(world, action="told", lease=LAPSED)
    (grant,) = take_over(worker=WORKER)
    return grant


FIRST: list[tuple[Answer | Exception, tuple[str, str, str, str | None]]] = [
    (RECEIPT, ("committed", "committed", "executed", None)),
    (NotSent("refused"), ("not_sent", "started", "executing", None)),
    (Busy("429"), ("busy", "started", "executing", None)),
    (InProgress("409"), ("in_progress", "started", "executing", None)),
    (Refused("no_funds", "402"), ("refused", "failed_before_commit", "failed", "no_funds")),
    (Refused("no_funds", "402", final=True), ("refused", "failed_before_commit", "failed", "no_funds")),
    (Uncertain("reset"), ("uncertain", "outcome_unknown", "unknown", "no_clear_answer")),
    (Uncertain("500", stored=True), ("uncertain", "outcome_unknown", "unknown", "no_clear_answer")),
    (Fenced("483"), ("uncertain", "outcome_unknown", "unknown", "fenced")),
    (OSError("broken"), ("uncertain", "outcome_unknown", "unknown", "no_clear_answer")),
]
REPEAT_OF_UNKNOWN: list[tuple[Answer | Exception, tuple[str, str, str, str | None]]] = [
    (RECEIPT, ("committed", "committed", "executed", None)),
    (NotSent("refused"), ("not_sent", "outcome_unknown", "unknown", None)),
    (Busy("429"), ("busy", "outcome_unknown", "unknown", None)),
    (InProgress("409"), ("in_progress", "outcome_unknown", "unknown", "in_progress")),
    (Refused("already", "400"), ("refused", "outcome_unknown", "unknown", "refused_on_repeat")),
    (Refused("no_funds", "402", final=True), ("refused", "failed_before_commit", "failed", "no_funds")),
    (Uncertain("reset"), ("uncertain", "outcome_unknown", "unknown", "no_clear_answer")),
    (Fenced("483"), ("uncertain", "outcome_unknown", "unknown", "fenced")),
    (OSError("broken"), ("uncertain", "outcome_unknown", "unknown", "no_clear_answer")),
]
REPEAT_OF_STARTED: list[tuple[Answer | Exception, tuple[str, str, str, str | None]]] = [
    (RECEIPT, ("committed", "committed", "executed", None)),
    (NotSent("refused"), ("not_sent", "outcome_unknown", "unknown", None)),
    (Busy("429"), ("busy", "outcome_unknown", "unknown", None)),
    (InProgress("409"), ("in_progress", "started", "executing", None)),
    (Refused("already", "400"), ("refused", "outcome_unknown", "unknown", "refused_on_repeat")),
    (Uncertain("reset"), ("uncertain", "outcome_unknown", "unknown", "no_clear_answer")),
    (Fenced("483"), ("uncertain", "outcome_unknown", "unknown", "fenced")),
]
FOUND: list[tuple[Found | Exception, tuple[str, str, str, str | None]]] = [
    (RECEIPT, ("committed", "committed", "executed", None)),
    (Uncertain("503"), ("uncertain", "outcome_unknown", "unknown", "no_clear_answer")),
    (Fenced("483"), ("uncertain", "outcome_unknown", "unknown", "fenced")),
    (OSError("broken"), ("uncertain", "outcome_unknown", "unknown", "no_clear_answer")),
]


def words(case: object) -> str | None:
    return repr(case)[:40] if not isinstance(case, tuple) else None


@pytest.mark.parametrize(("answer", "expected"), FIRST, ids=words)
def test_what_the_answer_to_a_first_send_comes_to(
    world: World, told: Told, answer: Answer | Exception, expected: tuple[str, str, str, str | None]
) -> None:
    told.answer = answer
    grant = first_grant(world)
    assert carry_out(grant) == expected
    assert (told.sent, told.looked_up) == ([grant.key], [])


@pytest.mark.parametrize(("answer", "expected"), REPEAT_OF_UNKNOWN, ids=words)
def test_what_the_answer_to_a_repeat_comes_to_after_no_answer(
    world: World, told: Told, answer: Answer | Exception, expected: tuple[str, str, str, str | None]
) -> None:
    told.answer = answer
    grant = after_no_answer(world)
    assert carry_out(grant) == expected
    assert (told.looked_up, told.sent) == ([grant.key], [grant.key])


@pytest.mark.parametrize(("answer", "expected"), REPEAT_OF_STARTED, ids=words)
def test_what_the_answer_to_a_repeat_comes_to_after_silence(
    world: World, told: Told, answer: Answer | Exception, expected: tuple[str, str, str, str | None]
) -> None:
    told.answer = answer
    assert carry_out(after_silence(world)) == expected


@pytest.mark.parametrize("before", [after_no_answer, after_silence], ids=lambda way: way.__name__)
@pytest.mark.parametrize(("found", "expected"), FOUND, ids=words)
def test_whatever_a_look_up_finds_nothing_is_sent(
    world: World,
    told: Told,
    before: Any,
    found: Found | Exception,
    expected: tuple[str, str, str, str | None],
) -> None:
    told.found = found
    grant = before(world)
    assert carry_out(grant) == expected
    assert (told.looked_up, told.sent) == ([grant.key], [])
    last = attempts(grant)[-1]
    assert (last.sent, last.lookups) == (False, 1)


def test_an_attempt_that_proves_it_was_not_sent_needs_no_look_up(world: World, told: Told) -> None:
    told.answer = NotSent("no route")
    carry_out(first_grant(world))
    told.answer = RECEIPT
    make_due()
    (grant,) = take_over(worker=WORKER)
    assert carry_out(grant) == ("committed", "committed", "executed", None)
    assert told.looked_up == []
    assert told.sent == [grant.key, grant.key]


# When nothing may be sent again.


def test_nothing_is_sent_again_once_the_approval_no_longer_stands(world: World, told: Told) -> None:
    first = first_grant(world)
    recorded(first, AttemptOutcome.UNCERTAIN)
    make_late(case_of(first))
    (grant,) = take_over(worker=WORKER)
    assert carry_out(grant)[1] == "outcome_unknown"
    assert (told.looked_up, told.sent) == ([grant.key], [])


def test_nothing_is_sent_again_once_the_key_window_is_over(world: World, told: Told) -> None:
    recorded(first_grant(world), AttemptOutcome.UNCERTAIN)
    margin = timedelta(seconds=settings.EXECUTION.key_margin)
    with triggers_off():
        Attempt.objects.update(started_at=Now() - timedelta(hours=24) + margin)
    (grant,) = take_over(worker=WORKER)
    assert carry_out(grant)[1] == "outcome_unknown"
    assert told.sent == []
    assert "key window is over" in str(attempts(grant)[-1].note)


def test_the_same_key_is_sent_again_while_its_window_is_open(world: World, told: Told) -> None:
    recorded(first_grant(world), AttemptOutcome.UNCERTAIN)
    margin = timedelta(seconds=settings.EXECUTION.key_margin + 60)
    with triggers_off():
        Attempt.objects.update(started_at=Now() - timedelta(hours=24) + margin)
    (grant,) = take_over(worker=WORKER)
    assert carry_out(grant)[1] == "committed"
    assert told.sent == [grant.key]


def test_a_failure_the_sink_keeps_under_the_key_is_not_asked_for_again(world: World, told: Told) -> None:
    told.answer = Uncertain("500: replayed", stored=True)
    first = first_grant(world)
    assert carry_out(first)[1] == "outcome_unknown"
    assert (attempts(first)[-1].note, attempts(first)[-1].answer_stored) == ("500: replayed", True)
    make_due()
    (grant,) = take_over(worker=WORKER)
    assert carry_out(grant)[1] == "outcome_unknown"
    assert told.sent == [first.key]
    assert told.looked_up == [first.key]


def test_a_sink_of_our_own_settles_by_itself_whatever_the_window(world: World, told: Told) -> None:
    tool_of_the_told_sink(world, "owned", EnforcementClass.OWNED_WRITE)
    recorded(claimed(world, action="owned"), AttemptOutcome.UNCERTAIN, answer_stored=True)
    with triggers_off():
        Attempt.objects.update(started_at=Now() - timedelta(days=9))
    (grant,) = take_over(worker=WORKER)
    assert carry_out(grant) == ("committed", "committed", "executed", None)


def test_a_sink_that_says_in_progress_too_often_leaves_us_not_knowing(world: World, told: Told) -> None:
    told.answer = InProgress("409")
    grant = first_grant(world)
    states = [carry_out(grant)[1]]
    for _ in range(3):
        make_due()
        (grant,) = take_over(worker=WORKER)
        states.append(carry_out(grant)[1])
    assert states == ["started", "started", "started", "outcome_unknown"]


def test_a_connector_this_worker_does_not_have_leaves_the_action_to_another(world: World) -> None:
    grant = replace(first_grant(world), connector="from_the_future")
    assert carry_out(grant) == ("not_sent", "started", "executing", None)
    assert "Deploy the same version" in str(attempts(grant)[-1].note)


# The last check.


@pytest.mark.parametrize("why", ["ends", "call_ends", "lost"])
def test_a_lease_that_is_over_sends_nothing(world: World, told: Told, why: str) -> None:
    grant = first_grant(world)
    lease = lease_of(grant)
    setattr(lease, why, True if why == "lost" else time.monotonic())

    outcomes.record([perform(grant, lease, worker=WORKER)])

    assert told.sent == []
    (attempt,) = attempts(grant)
    assert (attempt.outcome, attempt.sent) == ("not_sent", False)
    assert (operation(grant).state, case_of(grant).state) == ("started", "executing")


def test_a_lease_that_ends_during_the_look_up_sends_nothing(world: World, told: Told) -> None:
    grant = after_no_answer(world)
    lease = lease_of(grant)

    class Slow(Told):
        def look_up(self, grant: Grant, *, timeout: float) -> Found:
            lease.lost = True  # as the heartbeat finds while the sink takes its time
            return super().look_up(grant, timeout=timeout)

    slow = Slow()
    told.look_up, told.send = slow.look_up, slow.send  # type: ignore[method-assign]
    outcomes.record([perform(grant, lease, worker=WORKER)])
    assert (slow.looked_up, slow.sent) == ([grant.key], [])
    assert operation(grant).state == "outcome_unknown"


# What a sink says is evidence: kept whatever it is, bounded, and never in the way of others.

HOSTILE: dict[str, Receipt] = {
    "nul": Receipt("re_\x00", "succ\x00eeded", {"note": "a\x00b"}),
    "nul in a name": Receipt("re_1", "succeeded", {"a\x00b": 1}),
    "lone surrogate": Receipt("re_\ud83d", "\ud83d", {"note": "cut \ud83d"}),
    "lone surrogate in a name": Receipt("re_1", "succeeded", {"cut \ud83d": 1}),
    "huge": Receipt("r" * 10_000, "s" * 10_000, {"note": "n" * 5_000_000}),
    "huge name": Receipt("re_1", "succeeded", {"n" * 5_000_000: 1}),
    "many names": Receipt("re_1", "succeeded", {f"name-{number}": "v" * 500 for number in range(10_000)}),
    "no JSON": Receipt("re_1", "succeeded", {"when": object(), "n": float("nan"), "big": 10**400}),
    "names that are no text": Receipt("re_1", "succeeded", {1: "one", None: "none"}),  # type: ignore[dict-item]
    "deep": Receipt("re_1", "succeeded", {"deep": json.loads("[" * 900 + "]" * 900)}),
}


@pytest.mark.parametrize("hostile", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_receipt_is_still_a_receipt_and_takes_no_other_down(
    world: World, told: Told, hostile: Receipt
) -> None:
    for number in range(3):
        approved(world, str(number), target=f"order:{number}", action="told")
    grants = claim()
    reports = []
    for grant, answer in zip(grants, [RECEIPT, hostile, Receipt("re_2", "succeeded")], strict=True):
        told.answer = answer
        reports.append(perform(grant, lease_of(grant), worker=WORKER))

    outcomes.record(reports)

    assert [operation(grant).state for grant in grants] == ["committed"] * 3
    receipt = attempts(grants[1])[0].receipt
    assert receipt is not None
    assert len(receipt) <= 16_384
    assert set(json.loads(receipt)) == {"reference", "status", "answer"}
    assert "\\u0000" not in receipt


def test_hostile_words_of_a_refusal_are_stored_and_bounded(world: World, told: Told) -> None:
    told.answer = Refused("no\x00\ud83d" + "x" * 1000, "n\x00\ud83d" + "y" * 100_000)
    grant = first_grant(world)
    outcome, state, _case, reason = carry_out(grant)
    assert (outcome, state) == ("refused", "failed_before_commit")
    assert reason is not None
    assert len(reason) == 50
    assert len(str(attempts(grant)[0].note)) == 500


def test_a_receipt_is_kept_as_canonical_json(world: World, told: Told) -> None:
    told.answer = Receipt("re_77", "pending", {"b": 1, "a": "é"})
    grant = first_grant(world)
    carry_out(grant)
    assert attempts(grant)[0].receipt == '{"answer":{"a":"é","b":1},"reference":"re_77","status":"pending"}'


# How long until the next look.


def test_the_wait_doubles_with_each_attempt_up_to_a_bound(world: World, told: Told) -> None:
    told.answer = Uncertain("reset")
    grant = first_grant(world)
    execution = settings.EXECUTION
    for number in (1, 2, 3, 4, 50, 30_000):
        waited = perform(replace(grant, number=number), lease_of(grant), worker=WORKER).wait
        expected = min(execution.backoff * 2 ** (number - 1 if number < 20 else 20), execution.backoff_most)
        assert waited is not None
        assert 0.75 * expected <= waited <= 1.25 * expected


@pytest.mark.parametrize(("asked", "least"), [(None, 0.0), (0.0, 0.0), (7.0, 7.0), (3600.0, 3600.0)])
def test_a_sink_that_names_a_time_is_given_it(
    world: World, told: Told, asked: float | None, least: float
) -> None:
    told.answer = Busy("429", retry_after=asked)
    grant = first_grant(world)
    waited = perform(grant, lease_of(grant), worker=WORKER).wait
    assert waited is not None
    assert waited >= least


def test_a_sink_that_asks_for_a_century_is_given_an_hour(world: World, told: Told) -> None:
    told.answer = Busy("429", retry_after=3e9)
    grant = first_grant(world)
    assert perform(grant, lease_of(grant), worker=WORKER).wait == 3600.0


def test_an_answer_that_cannot_be_reported_is_uncertain(world: World, told: Told) -> None:
    told.answer = Receipt(reference=None, status="succeeded")  # type: ignore[arg-type]
    grant = first_grant(world)
    said = perform(grant, lease_of(grant), worker=WORKER)
    assert (said.outcome, said.state, said.sent) == ("uncertain", "outcome_unknown", True)


def test_a_final_answer_waits_for_nothing(world: World, told: Told) -> None:
    grant = first_grant(world)
    assert perform(grant, lease_of(grant), worker=WORKER).wait is None
    told.answer = Refused("no_funds", "402")
    assert perform(grant, lease_of(grant), worker=WORKER).wait is None


@dataclass
class ToldMany(Told):
    """Gives each order of a call the answer it was told."""

    answers: list[Any] = field(default_factory=list)

    def send_many(self, grants: Sequence[Grant], *, timeout: float) -> Sequence[Answer]:
        return self.answers


def test_one_answer_of_many_that_nobody_can_report_is_unknown_and_the_others_stand(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    grants = [first_grant(world), claimed(world, "1843", action="told", target="order:2")]
    sink = ToldMany(answers=["nonsense", RECEIPT])
    monkeypatch.setattr(together, "connector", lambda _name: sink)
    reports = together.perform_together(grants, [lease_of(each) for each in grants], worker=WORKER)
    assert [(each.outcome, each.state, each.sent) for each in reports] == [
        ("uncertain", "outcome_unknown", True),
        ("committed", "committed", True),
    ]
