"""The case page: the exact action from what is stored, what changed, on what grounds, who else, and what came of it."""

import json
from datetime import UTC, datetime, timedelta

import pytest
import time_machine

from approvals.models import Case
from approvals.states import Verdict
from config.demo import seed
from ledger import findings
from ledger.models import ToolVersion
from ledger.states import AttemptOutcome, FindingKind
from tests import worlds
from tests.console.doors import at_the_console, words
from tests.worlds import World
from workers import outcomes

pytestmark = pytest.mark.django_db


def test_the_exact_action_is_told_from_the_stored_proposal(world: World) -> None:
    case = worlds.proposed(world)
    ToolVersion.objects.create(
        tool=case.tool, number=2, **{**seed.REFUND, "sentence": "Do something else", "title": "Another"}
    )

    page = at_the_console(world).case(case)

    told = words(page)
    assert "Refund 1,250.00 EUR on ch_1842" in told
    assert "refund, Refund, version 1" in told
    assert "Do something else" not in told
    assert '<p class="sum">1,250.00 <span class="cur">EUR</span></p>' in page
    assert "the provider answers a repeated key with its first result for 24 hours" in told
    assert f'data-copy="{case.action_key}"' in page
    assert f'data-copy="{case.proposal.digest}"' in page
    assert "&quot;amount_minor&quot;: 125000" in page


def test_an_owned_write_is_guaranteed_in_its_own_words(world: World) -> None:
    case = worlds.proposed(
        world, action="ledger_refund", parameters={"amount_minor": 125_000, "currency": "EUR"}
    )
    assert "The database that owns the effect checks key, content and fencing token" in words(
        at_the_console(world).case(case)
    )


def test_what_the_proposal_expects_is_said(world: World) -> None:
    case = worlds.proposed(world, expects={"resource_version": 0})
    assert "Only if resource version is still 0" in words(at_the_console(world).case(case))


@time_machine.travel(datetime(2026, 11, 30, 12, 0, tzinfo=UTC), tick=True)
def test_evidence_is_shown_with_its_age_however_odd_it_is(world: World) -> None:
    case = worlds.proposed(
        world,
        evidence=[
            {"statement": "Paid", "source": "payments", "fetched_at": "2026-11-30T10:00:00Z"},
            {"statement": "Lost", "source": "carrier"},
            {"statement": "When?", "source": "crm", "fetched_at": "yesterday"},
            {"statement": "No zone", "source": "crm", "fetched_at": "2026-11-30T10:00:00"},
            {"statement": "No day", "source": "crm", "fetched_at": "2026-02-31T10:00:00Z"},
            {"anything": 1},
        ],
    )
    page = words(at_the_console(world).case(case))
    assert "Paidpayments · 2 h ago" in page
    for told in ("yesterday", "2026-02-31T10:00:00Z", "No zone"):
        assert told in page


def test_a_case_without_grounds_says_so(world: World) -> None:
    page = words(at_the_console(world).case(worlds.proposed(world, rationale="")))
    assert "The agent sent none." in page
    assert "plain text; hidden characters are shown Nothing." in page


# What changed.


def test_changes_since_my_vote_are_shown_before_those_since_the_last_revision() -> None:
    world = worlds.new_world(approvals_required=2)
    case, reviewer = worlds.proposed(world, amount_minor=12_500), at_the_console(world)
    worlds.approve(case, world.reviewer)
    worlds.revised(world, case, amount_minor=100_000)
    worlds.revised(world, case, amount_minor=125_000)

    page = words(reviewer.case(case))
    other = words(at_the_console(world, "second_reviewer").case(case))
    asked = words(reviewer.case(case, since="2"))

    assert "Changed since you voted" in page
    assert "Revision 1 Revision 3" in page
    assert "Amount 125.00 EUR 1,250.00 EUR ×10" in page
    assert "Changed since the previous revision" in other
    assert "Revision 2 Revision 3" in other
    assert "Revision 2 Revision 3" in asked


@pytest.mark.parametrize("since", ["3", "0", "99999999999", "-1", "x", "１"])
def test_a_comparison_with_what_there_is_not_falls_back(since: str, world: World) -> None:
    case = worlds.proposed(world)
    worlds.revised(world, case, amount_minor=1)
    worlds.revised(world, case, amount_minor=2)
    assert "Revision 2 Revision 3" in words(at_the_console(world).case(case, since=since))


def test_a_case_that_only_changed_its_state_shows_no_changes(world: World) -> None:
    case = worlds.proposed(world)
    worlds.say(Verdict.HOLD, case, world.reviewer)
    assert 'id="changes"' not in at_the_console(world).case(case)


# Who else.


def test_a_vote_on_an_older_revision_stays_visible_and_struck() -> None:
    world = worlds.new_world(approvals_required=2)
    case = worlds.proposed(world)
    worlds.approve(case, world.second_reviewer)
    worlds.revised(world, case, amount_minor=1)

    page = at_the_console(world).case(case)

    assert "<s>Approved</s> revision 1 · stale" in page
    assert '<li data-sign="stale">' in page
    assert "1 of 2, waits for you" in words(page)


def who_else(page: str) -> str:
    return words(page.partition("<h2>Who else</h2>")[2].partition("</section>")[0])


def test_a_vote_taken_back_before_the_quorum_is_struck_and_leaves_no_signature() -> None:
    world = worlds.new_world(approvals_required=2)
    case = worlds.proposed(world)
    worlds.approve(case, world.second_reviewer)
    worlds.say(Verdict.REVOKE, case, world.second_reviewer)

    page = at_the_console(world).case(case)

    assert "<s>Approved</s> revision 1 · taken back" in page
    assert "Revoked · revision 1" in page
    assert "stale" not in who_else(page)
    assert 'data-sign="stale"' not in page
    assert "1 of 2, waits for you" in words(page)
    assert "One more reviewer" in words(page)

    worlds.approve(case, world.second_reviewer)
    again = at_the_console(world).case(case)
    assert again.count("<s>Approved</s>") == 1
    assert "2 of 2, waits for you" in words(again)


@pytest.mark.parametrize(
    ("first", "then", "struck", "stands"),
    [
        (Verdict.HOLD, None, "", "Held · revision 1"),
        (Verdict.HOLD, Verdict.RELEASE, "Held revision 1 · stale", "Released · revision 2"),
        (Verdict.REJECT, Verdict.REOPEN, "Rejected revision 1 · stale", "Reopened · revision 2"),
        (Verdict.APPROVE, Verdict.REVOKE, "Approved revision 1 · stale", "Revoked · revision 2"),
    ],
)
def test_what_a_vote_did_is_not_struck_while_it_stands(
    first: Verdict, then: Verdict | None, struck: str, stands: str, world: World
) -> None:
    case = worlds.proposed(world)
    worlds.say(first, case, world.second_reviewer)
    if then is not None:
        worlds.say(then, case, world.second_reviewer)

    told = who_else(at_the_console(world).case(case))

    assert stands in told
    assert struck in told
    assert told.count("stale") == bool(struck)


def test_only_an_open_case_waits_for_a_vote(world: World) -> None:
    case = worlds.proposed(world)
    assert "Nobody has voted yet." in who_else(at_the_console(world).case(case))
    worlds.withdrawn(world, case)
    assert who_else(at_the_console(world).case(case)).strip() == "Nobody voted."


def test_the_story_tells_every_revision_vote_refusal_and_operation_once() -> None:
    world = worlds.new_world(approvals_required=2)
    case, first = worlds.proposed(world), at_the_console(world)
    stale = first.form(case, "approve")
    worlds.revised(world, case, amount_minor=2_000)
    first.send(case, stale)
    first.decide(case, "approve")
    at_the_console(world, "second_reviewer").decide(case, "approve")
    grant = worlds.claim(lease=worlds.LAPSED)[0]
    successor = worlds.take_over()[0]
    worlds.recorded(successor, worker="worker-b")
    outcomes.record([worlds.report(grant)])

    story = words(first.case(case).split('id="history"')[1])

    for told in (
        "refund-agent proposed it · revision 1",
        "refund-agent sent a new revision · revision 2",
        "Rita Demo named revision 1 when it was at 2: refused, nothing was recorded",
        "Rita Demo approved revision 2",
        "Sam Demo gave the last approval it needed · revision 3",
        "worker-a took it on · revision 4",
        "worker-b was granted attempt 2, token 2",
        "worker-b recorded that it happened · revision 5",
        "worker-a reported “committed” under token 1, too late; it is kept as evidence",
    ):
        assert story.count(told) == 1, told
    assert story.count("Sam Demo") == 1


def test_cases_of_the_same_reference_are_linked(world: World) -> None:
    other = worlds.proposed(world, target="order:2", amount_minor=5)
    page = at_the_console(world).case(worlds.proposed(world))
    assert "Same reference, 1842" in words(page)
    assert f'href="/cases/{other.pk}/"' in page


def test_an_open_finding_stands_above_everything(world: World) -> None:
    case = worlds.proposed(world)
    findings.open_finding(
        tenant_id=world.tenant.pk, kind=FindingKind.TWICE, about="x", subject=case.pk, order_id=None
    )
    page = words(at_the_console(world).case(case))
    assert "Ledger and sink disagree. The sink shows the effect twice." in page


# What came of it.


@pytest.mark.parametrize(
    ("outcome", "state", "told"),
    [
        (AttemptOutcome.COMMITTED, "Executed", "It has happened, once. To undo it takes a new case"),
        (AttemptOutcome.REFUSED, "Failed", "It did not happen. The agent may propose it again."),
        (
            AttemptOutcome.UNCERTAIN,
            "Unknown",
            "It may have happened. Nothing can be decided here until that is known.",
        ),
    ],
)
def test_the_outcome_is_told_as_what_is_known(
    outcome: AttemptOutcome, state: str, told: str, world: World
) -> None:
    grant = worlds.claimed(world)
    worlds.recorded(grant, outcome)
    case = Case.objects.get(pk=grant.subject)
    page = words(at_the_console(world).case(case))
    assert told in page
    assert state in page
    assert "1 attempt, 1 send" in page
    assert worlds.operation(case).order.key[:8] in page


def test_a_case_whose_worker_is_silent_is_unknown_in_its_operation_too(world: World) -> None:
    grant = worlds.claimed(world, lease=worlds.LAPSED)
    page = at_the_console(world).case(Case.objects.get(pk=grant.subject))
    operation = page.split('id="operation"')[1].split("</section>")[0]
    assert 'data-state="outcome_unknown"' in operation
    assert "1 attempt, at most 1 send, effect not known" in words(operation)


def test_an_expired_or_withdrawn_case_says_that_nothing_will_be_sent(world: World) -> None:
    case = worlds.withdrawn(world, worlds.proposed(world))
    page = words(at_the_console(world).case(case))
    assert "refund-agent withdrew it. Nothing will be sent; the agent may propose it again." in page


# Live regions.


def test_the_newer_region_is_silent_until_the_revision_moves_and_then_turns_the_bar_off(world: World) -> None:
    case, reviewer = worlds.proposed(world), at_the_console(world)
    assert reviewer.open(f"/cases/{case.pk}/", region="newer", revision="1").status_code == 204

    worlds.revised(world, case, amount_minor=1)
    region = reviewer.case(case, region="newer", revision="1")

    told = words(region)
    assert "Revision 2 arrived at" in told
    assert "refund-agent sent a new revision. You still see revision 1; it can no longer be decided." in told
    assert 'id="bar"' in region
    assert 'hx-swap-oob="true"' in region
    assert "Deciding is off: revision 1 is no longer the newest." in told
    assert "Approve" not in told
    assert "<html" not in region


def test_the_operation_region_is_drawn_again_only_when_something_is_new(world: World) -> None:
    case, reviewer = worlds.approved(world), at_the_console(world)
    page = reviewer.case(case)
    poll = page.split('id="operation"')[1].split('hx-get="')[1].split('"')[0].replace("&amp;", "&")
    assert reviewer.open(poll).status_code == 204

    worlds.recorded(worlds.claim()[0])
    region = reviewer.read(poll)

    assert "It happened, once." in words(region)
    assert "hx-get" not in region  # it is settled: nothing to ask for any more
    assert "<html" not in region


def test_a_settled_case_asks_for_no_news_of_its_operation(world: World) -> None:
    grant = worlds.claimed(world)
    worlds.recorded(grant)
    page = at_the_console(world).case(Case.objects.get(pk=grant.subject))
    assert "hx-get" not in page.split('id="operation"')[1].split("</section>")[0]


# Where one came from.


def test_the_way_back_and_the_neighbours_are_those_of_the_queue_one_came_from(world: World) -> None:
    first, second, third = (worlds.proposed(world, str(n), target=f"order:{n}") for n in range(3))
    reviewer = at_the_console(world)

    page = reviewer.case(second, view="all", tool="refund")

    assert 'href="/?view=all&amp;tool=refund">Review queue</a>' in page
    assert "2 of 3" in words(page)
    assert f'href="/cases/{first.pk}/?view=all&amp;tool=refund" aria-label="Previous case"' in page
    assert f'href="/cases/{third.pk}/?view=all&amp;tool=refund" aria-label="Next case"' in page


def test_after_a_decision_one_is_led_on_to_the_next_of_the_same_view(world: World) -> None:
    first, second = (worlds.proposed(world, str(n), target=f"order:{n}") for n in range(2))
    reviewer = at_the_console(world)
    assert 'name="origin" value="view=mine"' in reviewer.case(first, view="mine")

    answer = reviewer.send(first, {**reviewer.form(first, "approve")})

    assert answer.headers["Location"] == f"/cases/{first.pk}/?view=mine"
    page = reviewer.read(answer.headers["Location"])
    assert "1 left in this view" in words(page)
    assert f'href="/cases/{second.pk}/?view=mine" aria-label="Next case"' in page


@pytest.mark.parametrize("number", ["0", "999999999", "9" * 30])
def test_a_case_that_is_not_there_is_not_found(number: str, world: World) -> None:
    assert at_the_console(world).open(f"/cases/{number}/").status_code == 404


def test_times_are_written_with_their_zone(world: World) -> None:
    page = words(at_the_console(world).case(worlds.proposed(world)))
    deadline = datetime.now(UTC) + timedelta(days=3)
    assert f"expires in 2 days {deadline.day} {deadline:%b}" in page
    assert "UTC" in page


def test_raw_parameters_are_whole(world: World) -> None:
    case = worlds.proposed(world)
    page = at_the_console(world).case(case)
    stored = json.loads(case.proposal.material)["parameters"]
    assert all(name in page for name in stored)


def test_the_operation_region_of_a_case_without_an_operation_is_empty(world: World) -> None:
    reviewer = at_the_console(world)
    answer = reviewer.open(f"/cases/{worlds.proposed(world).pk}/", region="operation")
    assert answer.status_code == 204
