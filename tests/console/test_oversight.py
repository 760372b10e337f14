"""Metrics, conflicts, write tools, halts and budgets: what they count, where numbers lead, and who may act."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db.models.functions import Now

from approvals.console.metrics import words_under
from approvals.models import Vote
from ledger import budgets, control_events, halts, sweeps
from ledger.measures import WINDOWS
from ledger.models import Budget, ControlEvent, Finding, Halt, Sweep, Tool, ToolVersion
from ledger.states import AttemptOutcome, BudgetSpan, ControlEventKind
from tests import worlds
from tests.console.doors import Person, at_the_console, new_client, words
from tests.console.overseen import overseen
from tests.worlds import World

pytestmark = pytest.mark.django_db

PAGES = [
    "/metrics/",
    "/metrics/decisions/",
    "/conflicts/",
    "/tools/",
    "/tools/refund/",
    "/halts/",
    "/budgets/",
]


def open_halts(world: World) -> list[tuple[str | None, str, str]]:
    rows = halts.open_ones(tenant_id=world.tenant.pk).values_list("tool__name", "began_by", "reason")
    return list(rows)


# Who sees and does what.


@pytest.mark.parametrize("handle", ["operator", "admin", "auditor", "reviewer"])
def test_every_member_reads_every_page_and_only_some_are_offered_the_acts(world: World, handle: str) -> None:
    overseen(world)
    person = at_the_console(world, handle)
    for url in PAGES:
        assert words(person.read(url))
    offered = handle in ("operator", "admin")
    assert ("Halt everything" in person.read("/halts/")) == offered
    assert ("?panel=pause" in person.read("/tools/")) == offered
    assert ("panel-make" in person.read("/budgets/")) == (handle == "admin")


@pytest.mark.parametrize("url", PAGES)
def test_a_stranger_is_led_to_sign_in_and_a_form_is_no_way_to_read(world: World, url: str) -> None:
    assert new_client().get(url).status_code == 302
    assert at_the_console(world).client.post(url).status_code == 405


def test_nothing_of_another_organisation_is_shown_or_can_be_touched(world: World) -> None:
    overseen(world)
    stranger = at_the_console(worlds.new_world(), "admin")
    for url in [*PAGES[:4], *PAGES[5:]]:
        told = words(stranger.read(url, view="findings"))
        assert "Olga Demo, " not in told
        assert "1,250.00" not in told
    assert "The books are being closed" not in stranger.read("/tools/refund/")
    assert ControlEvent.objects.filter(tenant=world.tenant).count() > 12
    assert "0 events" in words(stranger.read("/conflicts/"))
    budget = Budget.objects.filter(tenant=world.tenant, closed_at=None).latest("pk")
    assert stranger.client.post(f"/budgets/{budget.pk}/close/", {"sure": "yes"}).status_code == 404
    assert stranger.client.post(f"/budgets/{budget.pk}/replace/", {"limit": "1"}).status_code == 404
    assert stranger.client.post("/halts/begin/", {"tool": "nothing", "reason": "x"}).status_code == 404
    assert stranger.open("/tools/nothing/").status_code == 404
    assert stranger.open("/operations/", budget=str(budget.pk)).status_code == 200
    assert len(open_halts(world)) == 1


# Metrics.


def test_every_number_of_the_metrics_leads_to_the_rows_it_counts(world: World) -> None:
    overseen(world)
    person = at_the_console(world, "operator")
    page = person.read("/metrics/", window="24h")
    told = words(page)
    assert "Five of six measures ask for a review." in told
    assert "12 absorbed" in told
    assert "Triggered: refund-agent had 12 in 24 h; its daily mean of the week before is 0.0." in told
    assert "Triggered: One case of refund had 3 in 24 h. Open the case" in told
    assert "Triggered: 1 identity has more than one effect." in told
    assert "2 now, oldest 1 h 12 min" in told
    assert "1 retried; all tries used up 1" in told
    assert "1,349.00 EUR" in told
    for link, rows in {
        "/conflicts/?window=24h&kind=duplicates": 12,
        "/conflicts/?window=24h&kind=version_conflict": 3,
        "/conflicts/?window=24h&kind=fenced_write": 1,
        "/conflicts/?window=24h&kind=duplicates&source=agent%3Arefund-agent": 12,
        "/conflicts/?window=24h&kind=version_conflict&action=refund": 3,
        "/conflicts/?window=24h&kind=serialization_retry": 1,
        "/conflicts/?window=24h&kind=serialization_exhausted": 1,
        "/conflicts/?view=findings&kind=twice": 1,
        "/operations/?view=outcome_unknown": 2,
        "/operations/?view=committed&settled=24h": 4,
        "/operations/?settled=no": 2,
    }.items():
        assert link.replace("&", "&amp;") in page
        assert person.read(link).count('role="row"') == rows + 1, link


def test_the_window_stands_in_the_url_and_another_one_is_the_default(world: World) -> None:
    person = at_the_console(world)
    for window, bars in (("24h", 24), ("7d", 28), ("30d", 30), ("nonsense", 28)):
        page = person.read("/metrics/", window=window)
        assert page.count('<th scope="col" class="num">−') == bars - 1


@pytest.mark.parametrize(
    ("window", "named"),
    [
        (
            "7d",
            {3: "25 Nov", 7: "26 Nov", 11: "27 Nov", 15: "28 Nov", 19: "29 Nov", 23: "30 Nov", 27: "1 Dec"},
        ),
        ("30d", {4: "6 Nov", 9: "11 Nov", 14: "16 Nov", 19: "21 Nov", 24: "26 Nov", 29: "1 Dec"}),
        (
            "24h",
            {
                0: "05:12",
                3: "08:12",
                6: "11:12",
                9: "14:12",
                12: "17:12",
                15: "20:12",
                18: "23:12",
                21: "02:12",
            },
        ),
    ],
)
def test_what_happened_today_stands_under_today(window: str, named: dict[int, str]) -> None:
    chosen, until = WINDOWS[window], datetime(2026, 12, 1, 5, 12, tzinfo=UTC)
    begins = [until - chosen.step * (chosen.steps - index) for index in range(chosen.steps)]
    assert {index: word for index, word in enumerate(words_under(begins, chosen)) if word} == named


def test_a_column_of_the_table_says_the_hour_it_begins_at(world: World) -> None:
    page = words(at_the_console(world).read("/metrics/", window="7d"))
    assert re.search(r"From( \d+ \w{3} \d\d:\d\d){7} Together", page)


def test_approvals_too_fast_to_have_been_read_are_counted_and_opened(world: World) -> None:
    for index in range(3):
        worlds.approved(world, f"fast-{index}", target=f"order:{index}")
    slow = worlds.approved(world, "slow", target="order:9")
    with worlds.triggers_off():
        slow.revisions.filter(number=1).update(at=Now() - timedelta(hours=1))
        Vote.objects.exclude(case=slow).update(at=Now() - timedelta(minutes=5))
        for case_id in Vote.objects.exclude(case=slow).values_list("case_id", flat=True):
            slow.revisions.model.objects.filter(case_id=case_id, number=1).update(
                at=Now() - timedelta(minutes=6)
            )
    person = at_the_console(world, "auditor")
    assert "2 of 4 approvals came under five seconds" in words(person.read("/metrics/"))
    assert person.read("/metrics/decisions/", view="hasty").count('role="row"') == 2 + 1
    assert person.read("/metrics/decisions/").count('role="row"') == 4 + 1
    assert "median" in words(person.read("/metrics/"))


# Conflicts.


def test_conflicts_are_filtered_by_kind_source_and_action_and_open_their_case(world: World) -> None:
    overseen(world)
    person = at_the_console(world, "operator")
    page = person.read("/conflicts/", kind="version_conflict", source="person:Rita Demo", action="refund")
    assert "3 events" in words(page)
    assert 'href="/cases/' in page
    assert "named revision 1 when it was at 2: refused, nothing was recorded" in words(page)
    nothing = words(person.read("/conflicts/", source="agent:nobody"))
    assert "Only what fits the source “agent:nobody” is shown. Clear the filters" in nothing
    findings = words(person.read("/conflicts/", view="findings"))
    assert "Twiceopen" in findings
    twice = Finding.objects.get(tenant=world.tenant, kind="twice")
    link = f"/reconcile/?view=findings&item={twice.pk}"
    assert link.replace("&", "&amp;") in person.read("/conflicts/", view="findings")
    assert "The sink shows" in words(person.read(link))
    assert "The sink shows the effect twice." in findings


def test_a_long_list_of_events_goes_on_where_it_stopped_and_misses_none(world: World) -> None:
    for index in range(120):
        control_events.record(
            tenant_id=world.tenant.pk,
            kind=ControlEventKind.REPLAY,
            source="agent:refund-agent",
            action=f"a{index:03}",
        )
    person, url, seen = at_the_console(world), "/conflicts/", []
    while url:
        page = person.read(url)
        seen += [cell.split("<bdi", 1)[1].split(">", 1)[1][:4] for cell in page.split("<code>")[1:]]
        older = page.split('rel="next"')[0].rpartition('href="')[2].partition('"')[0]
        url = older.replace("&amp;", "&") if 'rel="next"' in page else ""
    assert seen == [f"a{index:03}" for index in reversed(range(120))]


@pytest.mark.parametrize("before", ["x", "0", "9" * 30, "-1"])
def test_a_cursor_that_is_none_is_no_error(world: World, before: str) -> None:
    assert at_the_console(world).open("/conflicts/", before=before).status_code == 200
    assert at_the_console(world).open("/conflicts/", before=before, view="findings").status_code == 200
    assert at_the_console(world).open("/metrics/decisions/", before=before).status_code == 200


# Write tools and halts: works, wrong method, wrong person, wrong state, and what lacks something.


def send(person: Person, url: str, **form: str) -> Any:
    return person.client.post(url, form)


def test_an_operator_pauses_a_tool_and_everybody_sees_who_why_and_since_when(world: World) -> None:
    waiting = worlds.approved(world)
    answer = send(at_the_console(world, "operator"), "/halts/begin/", tool="refund", reason="Sink misbehaves")
    assert (answer.status_code, answer["Location"]) == (303, "/tools/refund/")
    assert open_halts(world) == [("refund", "person:Olga Demo", "Sink misbehaves")]
    assert worlds.claim() == []

    person = at_the_console(world)
    for url in ("/", f"/cases/{waiting.pk}/", "/operations/"):
        assert "refund is paused. Olga Demo, " in words(person.read(url))
    assert "Paused by Olga Demo" in words(person.read("/tools/"))
    operation = worlds.operation(waiting)
    for url in (f"/operations/{operation.order_id}/", f"/cases/{waiting.pk}/", "/operations/"):
        assert "aits: refund is paused by Olga Demo since" in words(person.read(url))

    answer = send(at_the_console(world, "admin"), "/halts/end/", tool="refund", sure="yes")
    assert (answer.status_code, open_halts(world)) == (303, [])
    assert list(Halt.objects.values_list("ended_by", flat=True)) == ["person:Adam Demo"]
    assert "ended by Adam Demo" in words(person.read("/tools/refund/"))
    worlds.make_due()
    assert len(worlds.claim()) == 1


def test_an_operator_halts_the_organisation_and_ends_the_halt(world: World) -> None:
    waiting = worlds.operation(worlds.approved(world))
    person = at_the_console(world, "operator")
    assert send(person, "/halts/begin/", reason="Fire drill")["Location"] == "/halts/"
    assert open_halts(world) == [(None, "person:Olga Demo", "Fire drill")]
    page = words(person.read(f"/operations/{waiting.order_id}/"))
    assert "The organisation is halted. Olga Demo, " in page
    assert "Waits: the organisation is halted by Olga Demo since" in page
    assert "Fire drill" in words(person.read("/metrics/"))
    assert send(person, "/halts/end/", sure="yes").status_code == 303
    assert open_halts(world) == []
    history = words(person.read("/halts/"))
    assert "Everything Fire drill Olga Demo" in history
    assert "Nothing stands still" in history


@pytest.mark.parametrize("url", ["/halts/begin/", "/halts/end/"])
@pytest.mark.parametrize("handle", ["reviewer", "auditor"])
def test_who_may_not_halt_is_refused_and_the_refusal_is_counted(world: World, handle: str, url: str) -> None:
    halts.begin(tenant_id=world.tenant.pk, tool_id=None, by="person:Olga Demo", reason="On")
    answer = send(at_the_console(world, handle), url, reason="x")
    assert answer.status_code == 403
    assert "Only an operator or an admin halts and resumes" in words(answer)
    assert len(open_halts(world)) == 1
    assert [(each.kind, each.action) for each in worlds.events()] == [("refused_act", "halt")]


BUDGET_ACTS = ("/budgets/make/", "/budgets/1/replace/", "/budgets/1/close/")


@pytest.mark.parametrize("url", ["/halts/begin/", "/halts/end/", *BUDGET_ACTS])
def test_an_act_is_posted_by_somebody_who_is_signed_in(world: World, url: str) -> None:
    assert at_the_console(world, "admin").open(url).status_code == 405
    stranger = new_client().post(url, {"reason": "Fire drill"})
    assert stranger.status_code == 401
    assert "Fire drill" in words(stranger)
    assert f'href="/sign-in/?next=/{url.split("/")[1]}/"' in stranger.content.decode().replace("%2F", "/")
    assert (Halt.objects.count(), Budget.objects.count()) == (0, 0)


@pytest.mark.parametrize("tool", ["", "refund"])
def test_what_stands_still_already_is_not_halted_twice_and_what_goes_on_is_not_resumed(
    world: World, tool: str
) -> None:
    person = at_the_console(world, "admin")
    assert send(person, "/halts/end/", tool=tool, sure="yes").status_code == 409
    send(at_the_console(world, "operator"), "/halts/begin/", tool=tool, reason="First")
    answer = send(person, "/halts/begin/", tool=tool, reason="Second")
    assert answer.status_code == 409
    assert "First" in words(answer)
    assert [each[2] for each in open_halts(world)] == ["First"]


@pytest.mark.parametrize(("reason", "says"), [("", "Say why"), (" ", "Say why"), ("x" * 301, "At most 300")])
@pytest.mark.parametrize("tool", ["", "refund"])
def test_a_halt_needs_a_reason_and_what_was_typed_is_kept(
    world: World, tool: str, reason: str, says: str
) -> None:
    answer = send(at_the_console(world, "operator"), "/halts/begin/", tool=tool, reason=reason)
    assert (answer.status_code, open_halts(world)) == (422, [])
    assert says in words(answer)
    assert " open>" in answer.content.decode()


def test_a_persons_pause_takes_the_place_of_a_breakers_which_would_end_by_itself(world: World) -> None:
    tool = Tool.objects.get(tenant=world.tenant, name="refund")
    halts.begin(
        tenant_id=world.tenant.pk, tool_id=tool.pk, by="breaker", reason="Busy", ends_in=timedelta(minutes=1)
    )
    person = at_the_console(world, "operator")
    assert "The breaker" in words(person.read("/tools/refund/"))
    assert send(person, "/halts/begin/", tool="refund", reason="For good").status_code == 303
    assert open_halts(world) == [("refund", "person:Olga Demo", "For good")]
    assert Halt.objects.get(began_by="breaker").ended_by == "person:Olga Demo"


@pytest.mark.parametrize(("tool", "page"), [("", "/halts/"), ("refund", "/tools/refund/")])
def test_what_stands_still_goes_on_only_after_somebody_has_read_why(
    world: World, tool: str, page: str
) -> None:
    person = at_the_console(world, "operator")
    send(person, "/halts/begin/", tool=tool, reason="First")
    asked = send(person, "/halts/end/", tool=tool)
    assert (asked.status_code, asked["Location"]) == (303, f"{page}?panel=resume#panel-resume")
    told = person.read(f"{page}?panel=resume")
    assert 'aria-labelledby="panel-resume-title" open' in told
    assert "What was approved and waits is sent at once" in words(told)
    assert len(open_halts(world)) == 1


def test_a_pause_by_the_fence_is_resumed_only_past_a_warning(world: World) -> None:
    tool = Tool.objects.get(tenant=world.tenant, name="refund")
    halts.begin(tenant_id=world.tenant.pk, tool_id=tool.pk, by="fence", reason="Higher token")
    assert "Run manage.py after_restore first" in words(
        at_the_console(world, "operator").read("/tools/refund/")
    )


def test_a_restores_halt_is_not_ended_from_the_console(world: World) -> None:
    halts.begin(tenant_id=world.tenant.pk, tool_id=None, by="restore", reason="Restored")
    person = at_the_console(world, "operator")
    assert "after_restore --release" in words(person.read("/halts/"))
    assert send(person, "/halts/end/", sure="yes").status_code == 409
    assert len(open_halts(world)) == 1


def test_a_tools_page_shows_what_was_probed_its_versions_and_its_last_day(world: World) -> None:
    overseen(world)
    version = ToolVersion.objects.get(tool__tenant=world.tenant, tool__name="refund")
    ToolVersion.objects.create(
        tool=version.tool,
        number=2,
        **{
            name: getattr(version, name)
            for name in ("title", "schema", "sentence", "enforcement", "connector", "sink", "order")
        },
        key_window=timedelta(hours=24),
        objective=timedelta(minutes=5),
    )
    page = words(at_the_console(world).read("/tools/refund/"))
    assert "Claimed, and seen to fail" in page
    assert "Another body under the key is refused no 200 re_2" in page
    assert "Version 2 changed value limits, objective" in page
    assert "4 committed" in page
    assert "1 failed before commit" in page
    assert "2 outcome unknown" in page


# Budgets.

BUDGET = {"tool": "refund", "agent": "", "span": "day", "currency": "eur", "limit": "1,250.00"}


def test_an_admin_opens_a_budget_it_bounds_the_next_claim_and_is_closed_again(world: World) -> None:
    admin = at_the_console(world, "admin")
    assert send(admin, "/budgets/make/", **BUDGET)["Location"] == "/budgets/"
    made = Budget.objects.get()
    assert (made.limit_minor, made.currency, made.made_by) == (125_000, "EUR", "person:Adam Demo")
    assert (made.tool and made.tool.name, made.agent) == ("refund", None)

    case = worlds.proposed(world)
    assert "1,250.00 EUR left" in words(admin.case(case))
    assert "this action fits" in words(admin.case(case))
    larger = worlds.proposed(world, "1843", target="order:2", amount_minor=125_001)
    assert "This action does not fit now: approved, it waits." in words(admin.case(larger))

    assert send(admin, f"/budgets/{made.pk}/close/", sure="yes").status_code == 303
    assert Budget.objects.get().closed_by == "person:Adam Demo"
    assert "closed by Adam Demo" in words(admin.read("/budgets/"))
    assert "EUR left" not in words(admin.case(case))


def test_an_operation_without_room_says_which_budget_it_waits_for(world: World) -> None:
    budgets.make(
        tenant_id=world.tenant.pk,
        span=BudgetSpan.MONTH,
        currency="EUR",
        limit_minor=100_00,
        by="person:Adam Demo",
    )
    waiting = worlds.operation(worlds.approved(world))
    page = words(at_the_console(world).read(f"/operations/{waiting.order_id}/"))
    assert "Waits: the budget of 100.00 EUR a month for every tool has 100.00 EUR left this month." in page


def test_what_a_budget_has_used_and_reserved_leads_to_the_operations(world: World) -> None:
    overseen(world)
    person = at_the_console(world, "auditor")
    page = person.read("/budgets/")
    assert "640.00" in words(page)
    budget = Budget.objects.filter(tenant=world.tenant, tool__name="refund").get()
    for link, rows in {
        f"/operations/?budget={budget.pk}&view=committed": 4,
        f"/operations/?budget={budget.pk}-held": 1,
    }.items():
        assert link.replace("&", "&amp;") in page
        assert person.read(link).count('role="row"') == rows + 1


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"limit": "12.345"}, "not written as digits"),
        ({"limit": "-1"}, "not written as digits"),
        ({"limit": "9" * 20}, "more than can be counted"),
        ({"currency": "XXX"}, "ISO 4217"),
        ({"span": "year"}, "Choose how often"),
    ],
)
def test_a_budget_that_is_not_well_said_is_not_opened(world: World, wrong: dict[str, str], says: str) -> None:
    answer = send(at_the_console(world, "admin"), "/budgets/make/", **{**BUDGET, **wrong})
    assert (answer.status_code, Budget.objects.count()) == (422, 0)
    assert says in words(answer)


def test_a_second_budget_for_the_same_scope_and_a_second_closing_are_refused(world: World) -> None:
    admin = at_the_console(world, "admin")
    send(admin, "/budgets/make/", **BUDGET)
    again = send(admin, "/budgets/make/", **{**BUDGET, "limit": "1"})
    assert again.status_code == 409
    assert "This cannot be done now" in words(again)
    assert "Change its limit instead" in words(again)
    assert 'href="/budgets/"' in again.content.decode()
    made = Budget.objects.get()
    send(admin, f"/budgets/{made.pk}/close/", sure="yes")
    assert send(admin, f"/budgets/{made.pk}/close/", sure="yes").status_code == 409
    assert send(admin, f"/budgets/{made.pk}/replace/", limit="1").status_code == 409


def test_an_admin_changes_a_limit_and_what_was_counted_counts_on(world: World) -> None:
    admin = at_the_console(world, "admin")
    overseen(world)
    before = Budget.objects.get(tenant=world.tenant, tool__name="refund")
    assert send(admin, f"/budgets/{before.pk}/replace/", limit="12.345").status_code == 422
    wrong = send(admin, f"/budgets/{before.pk}/replace/", limit="9" * 20)
    assert "more than can be counted" in words(wrong)
    assert f'id="panel-limit-{before.pk}" aria-labelledby="panel-limit-{before.pk}-title" open' in (
        wrong.content.decode()
    )

    assert send(admin, f"/budgets/{before.pk}/replace/", limit="20,000.00").status_code == 303
    after = Budget.objects.get(tenant=world.tenant, tool__name="refund", closed_at=None)
    assert (after.limit_minor, after.made_by) == (2_000_000, "person:Adam Demo")
    page = admin.read("/budgets/")
    assert "640.00" in words(page)
    assert admin.read(f"/operations/?budget={after.pk}&view=committed").count('role="row"') == 5


def test_a_budget_is_closed_only_by_somebody_who_has_read_what_that_means(world: World) -> None:
    admin = at_the_console(world, "admin")
    send(admin, "/budgets/make/", **BUDGET)
    made = Budget.objects.get()
    asked = send(admin, f"/budgets/{made.pk}/close/")
    assert (asked.status_code, asked["Location"]) == (
        303,
        f"/budgets/?panel=close-{made.pk}#panel-close-{made.pk}",
    )
    assert "what waits for it is sent at once" in words(admin.read(asked["Location"].partition("#")[0]))
    assert Budget.objects.get().closed_at is None


@pytest.mark.parametrize("handle", ["operator", "reviewer", "auditor"])
def test_only_an_admin_opens_and_closes_budgets(world: World, handle: str) -> None:
    made = budgets.make(
        tenant_id=world.tenant.pk, span=BudgetSpan.DAY, currency="EUR", limit_minor=1, by="person:Adam Demo"
    )
    person = at_the_console(world, handle)
    assert send(person, "/budgets/make/", **{**BUDGET, "currency": "USD"}).status_code == 403
    assert send(person, f"/budgets/{made.pk}/close/").status_code == 403
    assert send(person, f"/budgets/{made.pk}/replace/", limit="5").status_code == 403
    assert list(Budget.objects.values_list("closed_at", flat=True)) == [None]


# What else an operation waits for, and what every page tells.


def test_an_operation_waits_for_a_finding_about_its_case_and_for_its_dispatch_delay(world: World) -> None:
    disputed = worlds.approved(world)
    worlds.open_finding(world, disputed)
    version = ToolVersion.objects.get(tool__tenant=world.tenant, tool__name="ledger_refund")
    with worlds.triggers_off():
        ToolVersion.objects.filter(pk=version.pk).update(dispatch_delay=timedelta(minutes=5))
    person = at_the_console(world)
    page = words(person.read(f"/operations/{worlds.operation(disputed).order_id}/"))
    assert "Waits: ledger and sink disagree about its case." in page


def test_a_late_look_is_told_on_every_page(world: World) -> None:
    sweeps.note("take_over", 0)
    assert "is late" not in words(at_the_console(world).read("/"))
    Sweep.objects.update(ran_at=Now() - timedelta(minutes=2))
    assert "The regular look “take over” is late." in words(at_the_console(world).read("/cases/"))
    sweeps.note("claim", 0)
    sweeps.note("expire", 0)
    Sweep.objects.update(ran_at=Now() - timedelta(minutes=2))
    page = words(at_the_console(world).read("/cases/"))
    assert "The regular looks “claim”, “expire” and “take over” are late. The first was last made" in page


def test_an_operation_that_was_set_aside_says_so_and_names_no_time(world: World) -> None:
    grant = worlds.claimed(world, lease=worlds.LAPSED)
    for _ in range(5):
        worlds.take_over(lease=worlds.LAPSED)
    operation = worlds.operation(grant)
    assert operation.reason == "set_aside"
    page = words(at_the_console(world).read(f"/operations/{operation.order_id}/"))
    assert "no worker takes it by itself again. A person has to look." in page
    assert "Safe to send again? No. It may be what silenced its workers." in page


def test_under_a_halt_nothing_unknown_is_sent_again(world: World) -> None:
    grant = worlds.claimed(world)
    worlds.recorded(grant, AttemptOutcome.UNCERTAIN)
    halts.begin(tenant_id=world.tenant.pk, tool_id=None, by="person:Olga Demo", reason="x")
    page = words(at_the_console(world).read(f"/operations/{grant.order_id}/"))
    assert "Safe to send again? No, not now. Its tool or the whole organisation stands still" in page
