"""The operation page: what is known, whether it is safe to send again, and by which attempts it came to that."""

import re
from datetime import timedelta

import pytest

from approvals.models import Case, Proposal
from ledger.claims import Grant
from ledger.models import Attempt, Finding, Operation, Resource
from ledger.states import AttemptOutcome
from tests import worlds
from tests.console.doors import at_the_console, words
from tests.worlds import World
from workers import outcomes

pytestmark = pytest.mark.django_db


def page_of(world: World, operation: Operation, handle: str = "operator") -> str:
    return at_the_console(world, handle).read(f"/operations/{operation.order_id}/")


def answers(world: World, operation: Operation) -> str:
    return words(page_of(world, operation).split('class="verdict"')[1].split("</section>")[0])


def after(grant: Grant, outcome: AttemptOutcome, **said: object) -> Operation:
    return worlds.recorded(grant, outcome, **{"wait": 900.0, **said} if outcome != "committed" else said)


def test_it_is_found_by_number_and_by_key_and_only_in_ones_own_organisation(world: World) -> None:
    operation = worlds.operation(worlds.approved(world))
    operator, stranger = at_the_console(world, "operator"), at_the_console(worlds.new_world(), "operator")
    for name in (str(operation.order_id), operation.order.key):
        assert operator.open(f"/operations/{name}/").status_code == 200
        assert stranger.open(f"/operations/{name}/").status_code == 404
    for name in ("0", "9" * 18, "9" * 19, "0" * 40, "x"):
        assert operator.open(f"/operations/{name}/").status_code == 404


def test_it_tells_who_approved_what_under_which_keys(world: World) -> None:
    operation = worlds.operation(worlds.approved(world))
    page = page_of(world, operation)
    order = operation.order
    for whole in (order.key, operation.action_key, order.fingerprint, order.digest):
        assert f'data-copy="{whole}"' in page
    assert "Approved at revision 2 by Rita Demo" in words(page)
    assert "revision 1, " in words(page)
    assert "order:88213, version 0" in words(page)


def test_it_shows_what_was_approved_even_when_the_case_has_moved_on(world: World) -> None:
    grant = worlds.claimed(world)
    worlds.recorded(grant, AttemptOutcome.REFUSED)
    case = Case.objects.get(pk=grant.subject)
    worlds.revised(world, case, amount_minor=7)
    assert '<h1><bdi class="revealed">Refund 1,250.00 EUR on ch_1842' in page_of(
        world, worlds.operation(grant)
    )


# The two answers.


def test_not_started(world: World) -> None:
    told = answers(world, worlds.operation(worlds.approved(world)))
    assert "Not started Nothing has been sent. The next free worker takes it." in told
    assert "Safe to send again? Not needed. It has not been sent a first time." in told


def held(world: World, outcome: AttemptOutcome | None = None) -> tuple[Operation, Case]:
    """The operation that holds a resource, and a newly approved case that needs the same one."""
    holding = worlds.claimed(world, "1838", target="order:90838")
    if outcome is not None:
        after(holding, outcome)
    waiting = worlds.approved(world, "1843", target="order:90838")
    assert not worlds.claim()
    return worlds.operation(holding), waiting


@pytest.mark.parametrize(("outcome", "word"), [(None, "started"), (AttemptOutcome.UNCERTAIN, "unknown")])
def test_an_operation_whose_resource_is_held_names_the_one_it_waits_for(
    outcome: AttemptOutcome | None, word: str, world: World
) -> None:
    holding, waiting = held(world, outcome)
    why = f"Waits: case 1838’s operation on the same resource (order:90838) is {word}."
    link = f'<a href="/operations/{holding.order_id}/">case'

    page = page_of(world, worlds.operation(waiting))
    case_page = at_the_console(world).case(waiting)

    assert f"Nothing has been sent. {why}" in words(page)
    assert "The next free worker takes it" not in words(page)
    assert "No worker can take it while its resource is held." in words(page)
    assert why in words(case_page)
    assert "Another operation on the same resource is not settled." in words(case_page)
    assert "No worker has taken it yet" not in words(case_page)
    assert link in page
    assert link in case_page


def test_the_region_of_a_waiting_operation_is_drawn_anew_when_what_it_waits_for_is_settled(
    world: World,
) -> None:
    holding, waiting = held(world)
    reviewer = at_the_console(world)
    asked = reviewer.case(waiting).split("?region=operation&amp;seen=")[1].split('"')[0]
    assert reviewer.open(f"/cases/{waiting.pk}/", region="operation", seen=asked).status_code == 204

    grant = worlds.take_over() or []
    assert not grant
    with worlds.triggers_off():
        Resource.objects.filter(holder=holding.pk).update(holder=None)
    answer = reviewer.open(f"/cases/{waiting.pk}/", region="operation", seen=asked)
    with worlds.triggers_off():
        Resource.objects.filter(pk=holding.resource_id).update(holder=holding.pk)

    assert answer.status_code == 200
    assert "Waits:" not in words(answer)


def test_being_done_now(world: World) -> None:
    told = answers(world, worlds.operation(worlds.claimed(world)))
    assert "Being done now worker-a holds token 1 until" in told
    assert "Safe to send again? No, not now. worker-a is at it until" in told


def test_its_worker_has_been_silent(world: World) -> None:
    operation = worlds.operation(worlds.claimed(world, lease=worlds.LAPSED))
    told = answers(world, operation)
    assert "We do not know if it happened Its worker has been silent since" in told
    assert "Safe to send again? Yes, with the same key. Until" in told
    assert 'class="badge" data-state="outcome_unknown"' in page_of(world, operation)


def test_an_effect_that_the_sink_shows_twice_is_nowhere_said_to_be_one(world: World) -> None:
    operation = worlds.recorded(worlds.claimed(world))
    case = Case.objects.get(pk=operation.order.subject)
    worlds.open_finding(world, case)
    finding = Finding.objects.get()
    Finding.objects.filter(pk=finding.pk).update(reference="re_second")

    assert "It happened more than once The sink shows another effect of it." in answers(world, operation)
    told = at_the_console(world).case(case)
    for page in (words(page_of(world, operation)), words(told)):
        assert "1 effect" not in page
        assert "happened, once" not in page
    assert "It has happened, and ledger and sink disagree" in words(told)
    assert "Its reference there: re_second." in words(told)
    assert f"/reconcile/?view=findings&amp;item={finding.pk}" in told


def test_committed(world: World) -> None:
    operation = worlds.recorded(worlds.claimed(world))
    told = answers(world, operation)
    assert f"It happened, once The receipt {operation.reference} is stored" in told
    assert "Safe to send again? Not needed." in told
    page = words(page_of(world, operation))
    assert "1 attempt, 1 send, 1 effect" in page
    assert re.search(rf"{operation.reference} succeeded (just now|\d+ s ago)", page)


def test_refused(world: World) -> None:
    told = answers(
        world, worlds.recorded(worlds.claimed(world), AttemptOutcome.REFUSED, reason="card_declined")
    )
    assert "It did not happen The sink refused it: card declined." in told
    assert "Safe to send again? Not under this key." in told


def test_ended_before_it_began(world: World) -> None:
    case = worlds.approved(world)
    worlds.withdrawn(world, case)
    told = answers(world, worlds.operation(case))
    assert (
        "It did not happen It was ended before any worker took it: withdrawn. Nothing was ever sent." in told
    )


def test_not_sent_yet(world: World) -> None:
    operation = after(worlds.claimed(world), AttemptOutcome.NOT_SENT, note="No route to host")
    told = answers(world, operation)
    assert "Not sent yet The last attempt sent nothing; the next one is due at" in told
    assert "It said: No route to host" in told
    assert "Safe to send again? Yes. No attempt has sent anything." in told


def test_still_in_progress_at_the_sink(world: World) -> None:
    told = answers(world, after(worlds.claimed(world), AttemptOutcome.IN_PROGRESS, sent=True))
    assert "Being done now The sink answered that this key is being processed." in told
    assert "Safe to send again? No, not now. The sink is still processing this key." in told


def test_unknown_while_the_key_is_good(world: World) -> None:
    told = answers(world, after(worlds.claimed(world), AttemptOutcome.UNCERTAIN, note="No answer in 20 s"))
    assert "We do not know if it happened Attempt 1 ended without a clear answer: No answer in 20 s." in told
    assert "Safe to send again? Yes, with the same key. Until" in told


def test_unknown_after_the_key_window(world: World) -> None:
    operation = after(worlds.claimed(world), AttemptOutcome.UNCERTAIN)
    with worlds.triggers_off():
        for attempt in Attempt.objects.filter(operation=operation):
            Attempt.objects.filter(operation=operation, number=attempt.number).update(
                started_at=attempt.started_at - timedelta(hours=24)
            )
    told = answers(world, operation)
    assert "Safe to send again? No. The window in which the provider keeps the key closed at" in told
    assert "Only a look-up or a person can settle it." in told


def test_unknown_with_a_failure_stored_under_the_key(world: World) -> None:
    operation = after(worlds.claimed(world), AttemptOutcome.UNCERTAIN, answer_stored=True)
    assert "Safe to send again? No. The sink keeps a failure under this key" in answers(world, operation)


def test_only_what_no_worker_holds_leads_to_what_a_person_can_say_of_it(world: World) -> None:
    grant = worlds.claimed(world)
    link = f'href="/reconcile/?item={grant.key}"'
    assert link not in page_of(world, worlds.operation(grant))
    after(grant, AttemptOutcome.UNCERTAIN)
    assert link in page_of(world, worlds.operation(grant))


def test_unknown_once_the_approval_no_longer_stands(world: World) -> None:
    grant = worlds.claimed(world)
    operation = after(grant, AttemptOutcome.UNCERTAIN)
    case = Case.objects.get(pk=grant.subject)
    with worlds.triggers_off():
        Proposal.objects.filter(pk=case.proposal_id).update(expires_at=case.created_at - timedelta(days=1))
    told = answers(world, operation)
    assert (
        "Safe to send again? No. The approval no longer stands, so nothing is sent; it is only looked up."
        in told
    )


def test_unknown_of_an_owned_write_settles_itself(world: World) -> None:
    grant = worlds.claimed(
        world, action="ledger_refund", parameters={"amount_minor": 125_000, "currency": "EUR"}
    )
    told = answers(world, after(grant, AttemptOutcome.UNCERTAIN))
    assert "Safe to send again? Yes. The database that owns the effect checks key, content and token" in told


# The attempts.


def the_worked_example(world: World) -> Operation:
    first = worlds.claimed(world, lease=worlds.LAPSED)
    second = worlds.take_over()[0]
    worlds.recorded(second, worker="worker-b", sent=False, lookups=1, reference="re_1")
    outcomes.record([worlds.report(first, reference="re_1")])
    return worlds.operation(first)


def test_two_attempts_and_a_late_report_are_one_send_and_one_effect(world: World) -> None:
    page = page_of(world, the_worked_example(world))
    told = words(page)
    assert "2 attempts, 1 send, 1 effect" in told
    assert "worker-a claimed it, token 1" in told
    assert "worker-b took over, token 2" in told
    assert "Silence for" in told
    assert "worker-a’s late report was refused: token 1 is older than 2" in told
    assert "worker-a, token 1, said committed, reference re_1" in told
    assert "Fenced write. worker-a reported under token 1" in told
    assert 'data-a="fence"' in page
    assert '<li class="gap" data-a="lost"' in page
    assert 'class="lanes"' in page
    assert "style=" not in page


def test_an_unknown_outcome_with_a_late_success_is_looked_up_and_not_sent(world: World) -> None:
    first = worlds.claimed(world, lease=worlds.LAPSED)
    second = worlds.take_over()[0]
    worlds.recorded(second, AttemptOutcome.UNCERTAIN, worker="worker-b", wait=900.0, sent=False, lookups=1)
    outcomes.record([worlds.report(first)])
    told = answers(world, worlds.operation(first))
    assert "worker-a reported success later, when it no longer owned the operation" in told
    assert "Safe to send again? No, not now. A late report says that it happened." in told


def test_a_single_attempt_that_reported_needs_no_picture(world: World) -> None:
    assert 'class="lanes"' not in page_of(world, worlds.recorded(worlds.claimed(world)))


def test_many_attempts_are_all_listed(world: World) -> None:
    grant = worlds.claimed(world, lease=worlds.LAPSED)
    for _ in range(4):
        worlds.take_over(lease=worlds.LAPSED)
    page = page_of(world, worlds.operation(grant))
    assert "5 attempts, at most 5 sends, effect not known" in words(page)
    assert page.count('data-label="token"') == 5


@pytest.mark.parametrize("method", ["post", "put", "delete"])
def test_nothing_about_an_operation_can_be_sent(method: str, world: World) -> None:
    operation = worlds.operation(worlds.approved(world))
    operator = at_the_console(world, "operator")
    assert getattr(operator.client, method)(f"/operations/{operation.order_id}/").status_code == 405
