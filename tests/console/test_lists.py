"""The queue, the cases, the operations and the search: which rows, in which order, with which counts."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.db.models.functions import Now
from django.test.utils import CaptureQueriesContext

from accounts.models import Member, Role
from approvals.models import Case, Policy, Proposal
from approvals.states import Verdict
from config.demo import seed
from ledger.models import Operation
from ledger.states import AttemptOutcome
from tests import worlds
from tests.console.doors import Person, at_the_console, words
from tests.worlds import World

pytestmark = pytest.mark.django_db


def rows(html: str) -> list[str]:
    """The references of the rows, in order."""
    cells = html.split('class="first"')[1:]
    return [words(cell.split('class="sub">')[1].split(" · ", maxsplit=1)[0]) for cell in cells]


def tabs(html: str) -> dict[str, str]:
    """Each tab and its count."""
    bar = html.split('class="tabs"')[1].split("</nav>", maxsplit=1)[0]
    found = [words(each.split(">", 1)[1]).split() for each in bar.split("<a ")[1:]]
    return {" ".join(each[:-1]) if each[-1].isdigit() else " ".join(each): each[-1] for each in found}


@contextmanager
def expiring(case: Case, within: timedelta) -> Iterator[None]:
    with worlds.triggers_off():
        Proposal.objects.filter(pk=case.proposal_id).update(expires_at=Now() + within)
    yield


def high_tool(world: World) -> None:
    seed.tool(world.tenant, "refund_high", seed.REFUND_HIGH, tier=3, approvals_required=2)


# The queue.


def test_what_expires_soon_comes_first_then_risk_then_age(world: World) -> None:
    high_tool(world)
    worlds.proposed(world, "old", target="order:1")
    worlds.proposed(world, "young", target="order:2")
    worlds.proposed(world, "risky", target="order:3", action="refund_high")
    soon = worlds.proposed(world, "soon", target="order:4")
    with expiring(soon, timedelta(minutes=50)):
        page = at_the_console(world).read("/", view="all")
    assert rows(page) == ["soon", "risky", "old", "young"]
    assert tabs(page) == {"Mine": "4", "High risk": "1", "Expiring": "1", "All": "4", "Decided": "Decided"}
    assert rows(at_the_console(world).read("/", view="high-risk")) == ["risky"]
    assert rows(at_the_console(world).read("/", view="expiring")) == ["soon"]


def test_mine_is_what_i_may_still_decide() -> None:
    world = worlds.new_world(approvals_required=2)
    voted = worlds.proposed(world, "voted", target="order:1")
    worlds.approve(voted, world.reviewer)
    held = worlds.proposed(world, "held", target="order:2")
    worlds.say(Verdict.HOLD, held, world.second_reviewer)
    worlds.proposed(world, "mine", target="order:3")
    taken_back = worlds.proposed(world, "again", target="order:4")
    worlds.approve(taken_back, world.reviewer)
    worlds.say(Verdict.REVOKE, taken_back, world.reviewer)

    assert rows(at_the_console(world).read("/")) == ["mine", "again"]
    assert rows(at_the_console(world, "second_reviewer").read("/")) == ["voted", "mine", "again"]
    assert set(rows(at_the_console(world).read("/", view="all"))) == {"voted", "held", "mine", "again"}


def test_what_i_approved_waits_for_me_again_once_it_has_changed() -> None:
    world = worlds.new_world(approvals_required=2)
    case = worlds.proposed(world)
    worlds.approve(case, world.reviewer)
    worlds.revised(world, case, amount_minor=1)

    page = at_the_console(world).read("/")

    assert rows(page) == ["1842"]
    assert "changed since you voted" in words(page)


def test_a_case_of_ones_own_agent_is_not_mine(world: World) -> None:
    Member.objects.filter(pk=world.member("admin").pk).update(roles=[Role.REVIEWER])
    worlds.proposed(world)
    page = at_the_console(world, "admin").read("/")
    assert tabs(page)["Mine"] == "0"
    assert "1 case waits, but none for you: you have decided, or you stand behind the agent." in words(page)


def test_who_may_not_decide_sees_everything_and_is_told_why_nothing_waits(world: World) -> None:
    worlds.proposed(world)
    auditor = at_the_console(world, "auditor")
    assert rows(auditor.read("/")) == ["1842"]
    assert "Only reviewers decide; you are here as auditor." in words(auditor.read("/", view="mine"))


def test_approvals_so_far_are_named_in_the_row() -> None:
    world = worlds.new_world(approvals_required=2)
    case = worlds.proposed(world)
    worlds.approve(case, world.second_reviewer)
    assert "1 of 2 approved: Sam Demo" in words(at_the_console(world).read("/"))


def test_decided_cases_are_listed_with_what_came_of_them(world: World) -> None:
    worlds.recorded(worlds.claimed(world, "done", target="order:1"))
    refused = worlds.proposed(world, "refused", target="order:2")
    worlds.say(Verdict.REJECT, refused, world.reviewer)
    worlds.withdrawn(world, worlds.proposed(world, "gone", target="order:3"))

    page = at_the_console(world).read("/", view="decided")

    assert rows(page) == ["refused", "done"]
    assert "Executed" in words(page)


def test_filters_stand_in_the_url_and_the_empty_list_names_them(world: World) -> None:
    worlds.proposed(world)
    reviewer = at_the_console(world)
    assert rows(reviewer.read("/", tool="refund", agent="refund-agent")) == ["1842"]

    page = reviewer.read("/", view="all", tool="ledger_refund")

    assert rows(page) == []
    told = words(page)
    assert "Only cases of the tool “ledger_refund” are shown. Without that filter, 1 case waits." in told
    assert "Clear the filters" in told
    assert tabs(page)["All"] == "0"


@pytest.mark.parametrize("view", ["mine", "high-risk", "expiring", "all", "decided"])
def test_every_empty_view_says_why(view: str, world: World) -> None:
    page = at_the_console(world).read("/", view=view)
    assert 'class="empty"' in page
    assert "Clear the filters" not in page


def test_news_is_counted_and_drawn_only_when_there_is_some(world: World) -> None:
    worlds.proposed(world, "first", target="order:1")
    reviewer = at_the_console(world)
    page = reviewer.read("/", view="all")
    poll = page.split('id="news"')[1].split('hx-get="')[1].split('"')[0].replace("&amp;", "&")

    assert reviewer.open(poll).status_code == 204

    worlds.proposed(world, "second", target="order:2")
    news = reviewer.read(poll)
    assert "1 new case arrived. Show it" in words(news)
    assert "<table" not in news
    again = news.split('hx-get="')[1].split('"')[0].replace("&amp;", "&")
    assert reviewer.open(again).status_code == 204


@pytest.mark.parametrize(
    "junk", ["page=0", "page=9999999", "page=x", "view=x", "tool=%00", "agent=%F0%9F%92%A9", "page=-1"]
)
@pytest.mark.parametrize("url", ["/", "/cases/", "/operations/"])
def test_whatever_stands_in_the_url_a_list_answers(url: str, junk: str, world: World) -> None:
    worlds.proposed(world)
    assert at_the_console(world).open(f"{url}?{junk}").status_code == 200


def test_a_long_list_comes_in_pages(world: World) -> None:
    for number in range(53):
        worlds.proposed(world, f"r{number}", target=f"order:{number}")
    reviewer = at_the_console(world)

    first, second = reviewer.read("/cases/"), reviewer.read("/cases/", page="2")

    assert (len(rows(first)), len(rows(second))) == (50, 3)
    assert "1–50 of 53" in first
    assert "51–53 of 53" in second
    assert 'rel="next"' in first
    assert 'rel="prev"' in second
    assert set(rows(first)).isdisjoint(rows(second))


# One's own organisation.


def test_no_list_shows_or_counts_another_organisation(world: World) -> None:
    other = worlds.new_world()
    worlds.recorded(worlds.claimed(other, "theirs"))
    worlds.proposed(other, "theirs-too", target="order:2")
    reviewer = at_the_console(world)
    for url in ("/?view=all", "/?view=decided", "/cases/", "/operations/", "/search/?q=theirs"):
        page = reviewer.read(url)
        assert "theirs" not in words(page).replace("Cases for “theirs”", "")
    assert tabs(reviewer.read("/operations/"))["All"] == "0"
    assert tabs(reviewer.read("/cases/"))["All"] == "0"


# Operations.


def lived_through(world: World) -> None:
    """One operation of each kind."""
    worlds.recorded(worlds.claimed(world, "done", target="order:1"))
    worlds.recorded(worlds.claimed(world, "failed", target="order:2"), AttemptOutcome.REFUSED)
    worlds.recorded(worlds.claimed(world, "unknown", target="order:3"), AttemptOutcome.UNCERTAIN, wait=900.0)
    worlds.claimed(world, "silent", target="order:4", lease=worlds.LAPSED)
    worlds.claimed(world, "busy", target="order:5")
    worlds.approved(world, "waiting", target="order:6")


def test_a_silent_workers_operation_is_shown_and_counted_as_unknown(world: World) -> None:
    lived_through(world)
    reviewer = at_the_console(world)
    page = reviewer.read("/operations/")

    assert tabs(page) == {
        "All": "6",
        "Not started": "1",
        "Started": "1",
        "Committed": "1",
        "Failed before commit": "1",
        "Unknown": "2",
    }
    assert rows(reviewer.read("/operations/", view="outcome_unknown")) == ["silent", "unknown"]
    assert rows(reviewer.read("/operations/", view="started")) == ["busy"]
    assert "its worker has been silent since" in words(page)
    assert "2 unknown" in words(page)  # beside Operations in the navigation


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({"reference": "done"}, ["done"]),
        ({"tool": "ledger_refund"}, []),
        ({"agent": "refund-agent", "view": "committed"}, ["done"]),
        ({"agent": "nobody"}, []),
        ({"view": "failed_before_commit"}, ["failed"]),
    ],
)
def test_operations_are_filtered_by_the_url(query: dict[str, str], found: list[str], world: World) -> None:
    lived_through(world)
    assert rows(at_the_console(world).read("/operations/", **query)) == found


def test_operations_are_found_by_key_and_by_the_sinks_reference(world: World) -> None:
    lived_through(world)
    done = Operation.objects.select_related("order").get(state="committed")
    reviewer = at_the_console(world)
    assert rows(reviewer.read("/operations/", key=done.order.key[:10].upper())) == ["done"]
    assert rows(reviewer.read("/operations/", reference=done.reference or "")) == ["done"]


# Search.


def test_one_exact_hit_opens_the_case(world: World) -> None:
    case = worlds.approved(world)
    worlds.recorded(worlds.claim()[0])
    done = worlds.operation(case)
    reviewer = at_the_console(world)
    for text in (
        "1842",
        str(case.pk),
        f"#{case.pk}",
        done.order.key,
        case.action_key.upper(),
        done.reference,
        "order:88213",
    ):
        answer = reviewer.open("/search/", q=f" {text} ")
        assert (answer.status_code, answer.headers["Location"]) == (302, f"/cases/{case.pk}/"), text


def test_exact_hits_come_before_similar_ones(world: World) -> None:
    worlds.proposed(world, "18421", target="order:1")
    worlds.proposed(world, "1842", target="order:2")
    worlds.proposed(world, "1842", target="order:3")
    worlds.proposed(world, "x", target="order:4", payment="ch_1842_b")

    page = at_the_console(world).read("/search/", q="1842")

    assert rows(page) == ["1842", "1842", "18421", "x"]
    assert "found by its reference" in words(page)
    assert "found by its words" in words(page)


@pytest.mark.parametrize(
    "text", ["", " ", "x", "%", "_", "\0", "'; drop table", "9" * 30, "\u202e", "a" * 5000]
)
def test_whatever_is_searched_for_is_answered(text: str, world: World) -> None:
    worlds.proposed(world)
    page = at_the_console(world).open("/search/", q=text)
    assert page.status_code == 200
    assert 'class="empty"' in page.content.decode()


# The number of queries does not grow with the rows.


def many(world: World, begin: Callable[[World, str], Any], count: int) -> None:
    for number in range(count):
        begin(world, f"r{number}-{Case.objects.count()}")


def busy_case(world: World, reference: str) -> None:
    case = worlds.proposed(world, reference, target=f"order:{reference}")
    worlds.approve(case, world.reviewer)
    worlds.revised(world, case, amount_minor=1)
    worlds.approve(case, world.second_reviewer)


def done_case(world: World, reference: str) -> None:
    worlds.recorded(worlds.claimed(world, reference, target=f"order:{reference}"))


def queries(person: Person, url: str) -> int:
    with CaptureQueriesContext(
        connection,
    ) as captured:
        person.read(url)
    return len(captured)


BUSY = {"/?view=all": 20, "/cases/": 15, "/search/?q=order": 19}
DONE = {"/?view=decided": 17, "/operations/": 17}
"""The most queries that each list takes."""


@pytest.mark.parametrize(("begin", "approvals", "most"), [(busy_case, 2, BUSY), (done_case, 1, DONE)])
def test_twenty_rows_take_no_more_queries_than_one(
    begin: Callable[[World, str], None], approvals: int, most: dict[str, int], db: None
) -> None:
    world = worlds.new_world(approvals_required=approvals)
    reviewer = at_the_console(world)
    many(world, begin, 2)
    with_two = {url: queries(reviewer, url) for url in most}

    many(world, begin, 18)

    assert {url: queries(reviewer, url) for url in most} == with_two
    assert [url for url, count in with_two.items() if count > most[url]] == []


def test_a_case_with_a_long_life_takes_no_more_queries_than_a_young_one(db: None) -> None:
    world = worlds.new_world(approvals_required=2)
    case, reviewer = worlds.proposed(world), at_the_console(world, "second_reviewer")
    worlds.revised(world, case, amount_minor=2)
    worlds.approve(case, world.reviewer)
    worlds.proposed(world, "1842", target="order:2")
    young = queries(reviewer, f"/cases/{case.pk}/")

    for amount in range(3, 12):
        worlds.revised(world, case, amount_minor=amount)
        worlds.approve(case, world.reviewer)
        worlds.proposed(world, "1842", target=f"order:{amount}")

    assert queries(reviewer, f"/cases/{case.pk}/") == young <= 32


def test_the_policy_named_is_the_proposals_not_the_newest(world: World) -> None:
    case = worlds.proposed(world)
    policy = Policy.objects.get(tool=case.tool)
    Policy.objects.create(
        tenant=world.tenant,
        tool=case.tool,
        version=2,
        tier=3,
        approvals_required=2,
        expires_after=policy.expires_after,
    )
    page = words(at_the_console(world).case(case))
    assert "Policy of refund, version 1: 1 approval." in page
