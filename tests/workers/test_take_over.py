"""The take-over: what nobody is working on any more is granted anew, under a higher token, with its history."""

from datetime import timedelta

import pytest
from django.db.models.functions import Now

from ledger import clock, halts
from ledger.claims import Grant
from ledger.models import Attempt, Finding, Operation
from ledger.states import AttemptOutcome, ControlEventKind, OperationState
from tests.worlds import (
    LAPSED,
    World,
    approved,
    attempts,
    case_of,
    claim,
    claimed,
    due_at,
    events,
    history,
    make_due,
    make_late,
    new_world,
    open_finding,
    operation,
    recorded,
    switch_off,
    take_over,
    triggers_off,
)


def test_a_lease_that_runs_is_left_alone(world: World) -> None:
    claimed(world)
    assert take_over() == []


def test_a_lease_that_is_over_is_granted_anew_under_a_higher_token(world: World) -> None:
    first = claimed(world, lease=LAPSED)
    revisions = history(case_of(first))

    (second,) = take_over(worker="worker-b")

    assert (second.order_id, second.key, second.body) == (first.order_id, first.key, first.body)
    assert (second.token, second.number, second.state) == (first.token + 1, 2, "started")
    it = operation(first)
    assert (it.state, it.token, it.worker, it.attempt_count) == ("started", second.token, "worker-b", 2)
    assert (it.resource.holder_id, it.resource.token) == (it.order_id, second.token)
    assert history(case_of(first)) == revisions


def test_a_take_over_closes_the_attempt_it_replaces(world: World) -> None:
    first = claimed(world, lease=LAPSED)
    take_over(worker="worker-b")
    old, new = attempts(first)
    assert (old.outcome, old.worker, old.sent, old.receipt) == ("superseded", "worker-a", None, None)
    assert old.ended_at is not None
    assert (new.outcome, new.worker, new.ended_at) == (None, "worker-b", None)


def test_what_was_taken_over_is_not_taken_over_again_while_its_lease_runs(world: World) -> None:
    claimed(world, lease=LAPSED)
    assert len(take_over(worker="worker-b")) == 1
    assert take_over(worker="worker-c") == []


def test_a_worker_that_takes_over_from_itself_gets_another_grant(world: World) -> None:
    first = claimed(world, lease=LAPSED)
    (second,) = take_over(worker="worker-a")
    assert second.token > first.token
    assert [attempt.worker for attempt in attempts(first)] == ["worker-a", "worker-a"]


def test_after_a_silent_worker_the_request_may_have_left(world: World) -> None:
    claimed(world, lease=LAPSED)
    (second,) = take_over()
    assert second.maybe_sent
    assert second.may_send


@pytest.mark.parametrize(
    ("outcome", "maybe_sent"),
    [
        (AttemptOutcome.NOT_SENT, False),
        (AttemptOutcome.BUSY, False),
        (AttemptOutcome.IN_PROGRESS, True),
        (AttemptOutcome.UNCERTAIN, True),
    ],
)
def test_what_an_attempt_said_decides_whether_the_sink_must_be_asked_first(
    world: World, outcome: AttemptOutcome, maybe_sent: bool
) -> None:
    recorded(claimed(world), outcome)
    (again,) = take_over()
    assert again.maybe_sent is maybe_sent


def test_one_attempt_that_may_have_been_sent_is_never_forgotten(world: World) -> None:
    recorded(claimed(world), AttemptOutcome.UNCERTAIN)
    for _ in range(3):
        (grant,) = take_over()
        assert grant.maybe_sent
        recorded(grant, AttemptOutcome.NOT_SENT, state=OperationState.OUTCOME_UNKNOWN)


def test_an_unknown_stays_unknown_when_it_is_granted(world: World) -> None:
    first = claimed(world)
    recorded(first, AttemptOutcome.UNCERTAIN)
    revisions = history(case_of(first))
    (second,) = take_over()
    assert (second.state, operation(first).state) == ("outcome_unknown", "outcome_unknown")
    assert operation(first).worker == "worker-b"
    assert history(case_of(first)) == revisions


def test_a_back_off_is_waited_for(world: World) -> None:
    first = claimed(world)
    recorded(first, AttemptOutcome.UNCERTAIN, wait=60.0)
    assert take_over() == []
    make_due()
    assert len(take_over()) == 1


def test_what_is_final_is_never_granted_again(world: World) -> None:
    recorded(claimed(world))
    recorded(claimed(world, "1843"), AttemptOutcome.REFUSED)
    assert take_over() == []
    assert claim() == []


def test_the_longest_over_comes_first_and_no_more_than_asked_for(world: World) -> None:
    for number in range(3):
        approved(world, str(number), target=f"order:{number}")
    grants = claim(lease=LAPSED)
    last = grants[2]
    Operation.objects.filter(pk=last.order_id).update(due_at=Now() - timedelta(seconds=60))
    assert [grant.order_id for grant in take_over(most=1)] == [last.order_id]
    assert len(take_over(most=5)) == 2


# What was never sent is checked again, as at the claim.


def given_back(world: World, reference: str = "1842", *, target: str = "order:88213") -> Grant:
    """A grant whose worker has said that nothing left it."""
    grant = claimed(world, reference, target=target)
    recorded(grant, AttemptOutcome.NOT_SENT)
    return grant


def assert_never_sent(grant: Grant) -> None:
    it = operation(grant)
    assert (it.state, it.reason, it.worker) == ("failed_before_commit", "never_sent", None)
    case = case_of(grant)
    assert (case.state, history(case)[-1][2]) == ("failed", "stopped")
    assert it.resource.holder_id is None
    (event,) = events()
    assert (event.kind, event.detail) == (ControlEventKind.REFUSED_CLAIM, {"reason": "never_sent"})
    assert (event.source, event.subject, event.key) == ("worker:worker-b", grant.subject, grant.key)


def test_what_was_never_sent_is_granted_again_while_its_approval_stands(world: World) -> None:
    grant = given_back(world)
    (again,) = take_over()
    assert (again.order_id, again.maybe_sent, again.may_send) == (grant.order_id, False, True)


def test_what_was_never_sent_fails_when_its_deadline_has_passed(world: World) -> None:
    grant = given_back(world)
    make_late(case_of(grant))
    assert take_over() == []
    assert_never_sent(grant)


@pytest.mark.parametrize("how", ["role", "member", "user"])
def test_what_was_never_sent_fails_when_its_approval_has_lapsed(world: World, how: str) -> None:
    grant = given_back(world)
    switch_off(world, "reviewer", how)
    assert take_over() == []
    assert_never_sent(grant)


def test_what_was_never_sent_lets_the_next_of_its_resource_go_on(world: World) -> None:
    grant = given_back(world)
    next_ = approved(world, "1843")
    make_late(case_of(grant))
    take_over()
    assert [each.subject for each in claim()] == [next_.pk]


def test_what_was_never_sent_waits_while_a_finding_is_open_about_it(world: World) -> None:
    grant = given_back(world)
    open_finding(world, case_of(grant))

    assert take_over() == []

    assert (operation(grant).state, case_of(grant).state) == ("started", "executing")
    assert events() == []
    due_at = operation(grant).due_at
    assert due_at is not None
    assert due_at > clock.now()  # put off, not looked at in a circle

    Finding.objects.update(closed_at=Now(), closed_by="person:Demo")
    make_due()
    (again,) = take_over()
    assert (again.maybe_sent, again.may_send) == (False, True)


def test_one_that_ends_takes_no_other_along(world: World) -> None:
    late, good = given_back(world, target="order:1"), given_back(world, "1843", target="order:2")
    disputed = given_back(world, "1844", target="order:3")
    make_late(case_of(late))
    open_finding(world, case_of(disputed))
    assert [grant.order_id for grant in take_over()] == [good.order_id]
    assert [case_of(each).state for each in (late, good, disputed)] == ["failed", "executing", "executing"]


# What may have been sent is only looked up once nothing may be sent any more.


@pytest.mark.parametrize("what", ["late", "lapsed", "disputed"])
def test_what_may_have_been_sent_is_granted_for_a_look_up_only(world: World, what: str) -> None:
    grant = claimed(world)
    recorded(grant, AttemptOutcome.UNCERTAIN)
    if what == "late":
        make_late(case_of(grant))
    elif what == "lapsed":
        switch_off(world, "reviewer", "role")
    else:
        open_finding(world, case_of(grant))

    (again,) = take_over()

    assert (again.maybe_sent, again.may_send) == (True, False)
    assert (operation(grant).state, case_of(grant).state) == ("outcome_unknown", "unknown")
    assert events() == []


# What the history says.


def test_the_key_window_is_counted_from_the_first_attempt_that_may_have_been_sent(world: World) -> None:
    grant = claimed(world)
    recorded(grant, AttemptOutcome.UNCERTAIN)
    with triggers_off():
        Attempt.objects.update(started_at=Now() - timedelta(hours=23))
    (second,) = take_over()
    recorded(second, AttemptOutcome.UNCERTAIN)
    (third,) = take_over()
    assert third.key_window_left is not None
    assert 3590 < third.key_window_left <= 3600


def test_an_attempt_that_sent_nothing_opens_no_key_window(world: World) -> None:
    recorded(claimed(world), AttemptOutcome.NOT_SENT)
    with triggers_off():
        Attempt.objects.update(started_at=Now() - timedelta(days=2))
    (second,) = take_over()
    assert second.key_window_left is not None
    assert second.key_window_left > 86_390  # from this very attempt on
    recorded(second, AttemptOutcome.UNCERTAIN)
    (third,) = take_over()
    assert third.key_window_left is not None
    assert third.key_window_left > 86_390


def test_a_answer_stored_is_remembered(world: World) -> None:
    recorded(claimed(world), AttemptOutcome.UNCERTAIN, answer_stored=True)
    (second,) = take_over()
    assert second.answer_stored
    recorded(second, AttemptOutcome.UNCERTAIN)
    (third,) = take_over()
    assert third.answer_stored


def test_waits_for_a_sink_in_progress_are_counted(world: World) -> None:
    grant = claimed(world)
    counts = []
    for _ in range(3):
        counts.append(grant.in_progress_count)
        recorded(grant, AttemptOutcome.IN_PROGRESS)
        (grant,) = take_over()
    assert [*counts, grant.in_progress_count] == [0, 1, 2, 3]


def test_a_first_grant_has_no_history(world: World) -> None:
    grant = claimed(world)
    assert (grant.answer_stored, grant.in_progress_count, grant.since_sent) == (False, 0, None)
    assert grant.key_window_left == 86_400  # seconds: it begins with this very attempt


def test_histories_are_kept_apart(world: World) -> None:
    other = new_world()
    recorded(claimed(world), AttemptOutcome.UNCERTAIN, answer_stored=True)
    recorded(claimed(other), AttemptOutcome.NOT_SENT)
    by_tenant = {grant.tenant_id: grant for grant in take_over()}
    assert by_tenant[world.tenant.pk].answer_stored
    assert not by_tenant[other.tenant.pk].answer_stored
    assert not by_tenant[other.tenant.pk].maybe_sent


# Poison: an order that silences whoever takes it.


def test_an_order_that_keeps_silencing_workers_is_set_aside_for_a_person(world: World) -> None:
    grant = silenced(world, 5)
    assert take_over() == []
    it = operation(grant)
    assert (it.state, it.reason, it.worker) == ("outcome_unknown", "set_aside", None)
    assert case_of(grant).state == "unknown"
    (event,) = events(ControlEventKind.SET_ASIDE)
    assert event.key == grant.key
    assert take_over() == []  # it does not come back by itself


def test_a_person_who_asks_lets_one_more_worker_look(world: World) -> None:
    grant = silenced(world, 5)
    take_over()
    make_due()
    assert len(take_over(lease=LAPSED)) == 1
    assert take_over() == []  # silent once more: aside again
    assert operation(grant).reason == "set_aside"


def test_what_silenced_a_few_workers_is_taken_over_still(world: World) -> None:
    silenced(world, 4)
    assert len(take_over()) == 1


def silenced(world: World, times: int) -> Grant:
    """A grant that so many workers in turn have fallen silent over."""
    grant = claimed(world, lease=LAPSED)
    for _ in range(times - 1):
        (grant,) = take_over(lease=LAPSED)
    return grant


# Why nothing may be sent: an approval that is gone for good, or something that ends.


def test_a_grant_says_that_the_approval_is_gone_and_not_merely_in_the_way(world: World) -> None:
    grant = claimed(world)
    recorded(grant, AttemptOutcome.UNCERTAIN)
    halts.begin(tenant_id=world.tenant.pk, tool_id=None, by="person:Demo", reason="Something is odd.")
    (halted,) = take_over(lease=LAPSED)
    assert (halted.may_send, halted.lapsed) == (False, False)
    switch_off(world, "reviewer", "role")
    (lapsed,) = take_over(lease=LAPSED)
    assert (lapsed.may_send, lapsed.lapsed) == (False, True)
    open_finding(world, case_of(grant))
    (disputed,) = take_over()
    assert (disputed.may_send, disputed.lapsed) == (False, False)


# What is unknown although nothing of it was sent, and what is broken.


def test_what_is_unknown_and_was_never_sent_is_looked_up_once_its_approval_is_gone(world: World) -> None:
    first, other = claimed(world), claimed(world, "1843", target="order:2")
    recorded(first, AttemptOutcome.UNCERTAIN, sent=False)
    recorded(other, AttemptOutcome.NOT_SENT)
    switch_off(world, "reviewer", "role")
    make_due()
    (grant,) = take_over()
    assert (grant.order_id, grant.may_send, grant.lapsed) == (first.order_id, False, True)
    assert [case_of(each).state for each in (first, other)] == ["unknown", "failed"]


def test_what_is_unknown_and_has_to_wait_makes_room_for_others(world: World) -> None:
    first = claimed(world)
    recorded(first, AttemptOutcome.UNCERTAIN, sent=False)
    halts.begin(tenant_id=world.tenant.pk, tool_id=None, by="person:Demo", reason="Something is odd.")
    make_due()
    assert take_over() == []
    assert due_at(first) > clock.now()


def test_one_that_cannot_be_granted_takes_no_other_along_and_is_put_off(world: World) -> None:
    broken, good = given_back(world), given_back(world, "1843", target="order:2")
    break_attempts_of(broken.order_id, number=2)
    make_due()
    assert [grant.order_id for grant in take_over()] == [good.order_id]
    assert due_at(broken) > clock.now()
    with triggers_off():
        Attempt.objects.filter(operation=broken.order_id, number=2).delete()


def break_attempts_of(order_id: int, *, number: int) -> None:
    """As no statement of ours leaves it: the next attempt's row is there already."""
    with triggers_off():
        Attempt.objects.create(
            operation_id=order_id,
            number=number,
            token=10**6,
            worker="w",
            started_at=Now(),
            ended_at=Now(),
            outcome="busy",
        )
