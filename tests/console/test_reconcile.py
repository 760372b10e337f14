"""The Reconcile page: what it counts and lists, what an operator records there, and what it says where one may not."""

import re
from datetime import timedelta
from typing import Any

import pytest
from django.db.models.functions import Now

from accounts.models import Member, Role
from approvals import corrections
from approvals.models import Case
from ledger import attestations, findings
from ledger.claims import Grant
from ledger.models import Attestation, Finding, Operation, Tool
from ledger.states import AttemptOutcome, ControlEventKind, EnforcementClass, FindingKind
from tests import worlds
from tests.console.doors import Person, at_the_console, new_client, words
from tests.console.settling import long_ago, lost, version_with
from tests.worlds import World
from workers import outcomes

pytestmark = pytest.mark.django_db

WHY = "Looked at the provider’s own list of refunds at 14:02."
PATH = "/reconcile/"


@pytest.fixture
def unknown(world: World) -> Grant:
    return lost(world)


@pytest.fixture
def person(world: World) -> Person:
    return at_the_console(world, "operator")


def item(grant: Grant) -> str:
    return f"{PATH}?item={grant.key}"


def seen(grant: Grant) -> str:
    return attestations.tag_of(worlds.operation(grant))


def send(person: Person, grant: Grant, act: str = "", **form: str) -> Any:
    """The answer to the item's form, with the tag it has now unless another was seen."""
    told = {"seen": seen(grant), "at": "", **form}
    return person.client.post(f"{PATH}{grant.key}/{act}", told)


def happened(person: Person, grant: Grant, **form: str) -> Any:
    return send(person, grant, **{"choice": "happened", "reference": "re_1", "reason": WHY, **form})


def after(answer: Any, person: Person) -> str:
    """What the page says to which a recorded act leads."""
    assert answer.status_code == 303, words(answer)
    return words(person.read(answer["Location"]))


def picks(page: str) -> list[str]:
    """The names of the listed items, in their order."""
    return re.findall(r'class="pick" href="[^"]*item=([^"&]+)"', page)


def state_of(grant: Grant) -> str:
    return str(worlds.operation(grant).state)


# Who sees and does what.


@pytest.mark.parametrize("handle", ["operator", "admin", "auditor", "reviewer"])
def test_everybody_reads_and_only_an_operator_is_offered_the_acts(
    world: World, unknown: Grant, handle: str
) -> None:
    page = at_the_console(world, handle).read(item(unknown))
    told = words(page)
    assert "Request left" in told
    assert "The connection was lost." in told
    assert ("Only an operator records what happened." in told) == (handle != "operator")
    assert ("Check the sink now" in told) == (handle == "operator")
    assert ("<fieldset" in page and "disabled>" in page.split("<fieldset")[1][:40]) == (handle != "operator")


ACTS = ["", "look-up/", "stop/", "compensate/"]


@pytest.mark.parametrize("act", ACTS)
def test_each_act_is_posted_by_an_operator_of_this_organisation(
    world: World, unknown: Grant, act: str
) -> None:
    form = {"choice": "happened", "reference": "re_1", "reason": WHY}
    operator = at_the_console(world, "operator")
    assert operator.open(f"{PATH}{unknown.key}/{act}").status_code == 405
    assert send(at_the_console(world, "reviewer"), unknown, act, **form).status_code == 403
    assert [each.source for each in worlds.events(ControlEventKind.REFUSED_ACT)] == ["person:Rita Demo"]
    stranger = at_the_console(worlds.new_world(), "operator")
    assert send(stranger, unknown, act, **form).status_code == 404
    signed_out = new_client().post(f"{PATH}{unknown.key}/{act}", form)
    assert signed_out.status_code == 401
    assert 'next=/reconcile/"' in signed_out.content.decode().replace("%2F", "/")
    assert send(operator, unknown, act, **{**form, "seen": '"0-started"'}).status_code in (409, 412)
    assert state_of(unknown) == "outcome_unknown"


def test_nothing_of_another_organisation_is_listed_or_found(world: World, unknown: Grant) -> None:
    worlds.open_finding(world, worlds.case_of(unknown))
    stranger = at_the_console(worlds.new_world(), "operator")
    for view in ("", "looking", "findings", "settled"):
        assert picks(stranger.read(PATH, view=view)) == []
    assert "Nothing needs a person" in words(stranger.read(PATH))
    finding = Finding.objects.get()
    for url in (item(unknown), f"{PATH}?view=findings&item={finding.pk}", f"{PATH}?item=no-key"):
        assert stranger.open(url).status_code == 404
    for act in ("close", "mute"):
        assert stranger.client.post(f"{PATH}findings/{finding.pk}/{act}/", {"reason": WHY}).status_code == 404
    assert Finding.objects.get().closed_at is None


@pytest.mark.parametrize("act", ["close", "mute"])
def test_who_may_not_settle_a_finding_is_refused_and_that_is_counted(
    world: World, unknown: Grant, act: str
) -> None:
    worlds.open_finding(world, worlds.case_of(unknown))
    finding = Finding.objects.get()
    reviewer = at_the_console(world, "reviewer")
    answer = reviewer.client.post(f"{PATH}findings/{finding.pk}/{act}/", {"reason": WHY})
    assert answer.status_code == 403
    (event,) = worlds.events(ControlEventKind.REFUSED_ACT)
    assert (event.source, event.subject, event.detail["finding"]) == (
        "person:Rita Demo",
        unknown.subject,
        finding.pk,
    )
    finding.refresh_from_db()
    assert (finding.closed_at, finding.muted_at) == (None, None)


# What is listed.


def test_counts_and_figures_lead_to_the_rows_they_count(world: World, person: Person) -> None:
    version_with(world, objective=timedelta(minutes=60))
    small = lost(world, "1", target="order:1", amount_minor=10_000, ago=timedelta(minutes=72))
    large = lost(world, "2", target="order:2", amount_minor=120_000, ago=timedelta(minutes=70))
    fresh = lost(world, "3", target="order:3", amount_minor=1_000)
    worlds.open_finding(world, worlds.case_of(fresh))
    settled = lost(world, "4", target="order:4", amount_minor=500)
    happened(person, settled)
    by_itself = lost(world, "5", target="order:5", amount_minor=500)
    worlds.make_due()
    worlds.recorded(next(each for each in worlds.take_over() if each.key == by_itself.key), sent=False)
    for each in worlds.take_over():
        worlds.recorded(each, AttemptOutcome.UNCERTAIN, sent=False, wait=900.0)
    Operation.objects.exclude(worker=None).update(due_at=Now())

    page = person.read(PATH)
    told = words(page)
    assert "Money at risk 1,310.00 EUR Unknown 3 Oldest, objective 1 hour 1 h 12 min" in told
    assert "Settled by themselves, last day 1 of 2" in told
    assert "Needs a person 2Looking up 1Findings 1Settled 2" in told
    for view, expected in {
        "": [large.key, small.key],  # more at stake, though not as old
        "looking": [fresh.key],
        "findings": [str(Finding.objects.get().pk)],
        "settled": [by_itself.key, settled.key],
    }.items():
        assert picks(person.read(PATH, view=view)) == expected, view
    assert person.read("/operations/", view="outcome_unknown").count('role="row"') == 3 + 1
    assert 'href="/operations/?view=outcome_unknown"' in page
    assert f'href="/reconcile/?item={small.key}"' in page
    assert "attested by Olga Demo" in words(person.read(item(settled)))
    assert "settled by itself" in words(person.read(item(by_itself))).lower()


@pytest.mark.parametrize(
    ("changes", "said", "ago", "why"),
    [
        ({"enforcement": EnforcementClass.NONE, "key_window": None}, {}, 0, "no look-up possible"),
        ({}, {"answer_stored": True}, 0, "the sink keeps a failure"),
        ({}, {}, 24 * 60, "key no longer good"),
        ({}, {"reason": "differs"}, 0, "the sink shows other content"),
        ({"objective": timedelta(minutes=5)}, {}, 6, "6 min, overdue"),
    ],
)
def test_what_only_a_person_can_settle_says_why(
    world: World, person: Person, changes: dict[str, Any], said: dict[str, Any], ago: int, why: str
) -> None:
    version_with(world, value_limits={"EUR": 10_000_000}, **{"objective": timedelta(days=9), **changes})
    grant = worlds.claimed(world)
    worlds.recorded(grant, AttemptOutcome.UNCERTAIN, wait=900.0, **said)
    long_ago(grant, timedelta(minutes=ago))
    page = person.read(PATH)
    assert picks(page) == [grant.key]
    assert why in words(page)


def test_a_reference_that_is_not_shown_after_the_settle_time_needs_a_person(
    world: World, person: Person
) -> None:
    version_with(
        world,
        enforcement=EnforcementClass.NATURAL_REFERENCE,
        key_window=None,
        settle_time=timedelta(seconds=60),
    )
    grant = lost(world, ago=timedelta(minutes=2))
    assert picks(person.read(PATH)) == []
    worlds.make_due()
    worlds.recorded(worlds.take_over()[0], AttemptOutcome.UNCERTAIN, sent=False, lookups=1, wait=900.0)
    page = person.read(PATH)
    assert picks(page) == [grant.key]
    assert "not shown by the sink" in words(page)
    assert "What we looked up" in words(page)


def test_what_is_set_aside_waits_for_a_person_and_is_not_sent_again(world: World, person: Person) -> None:
    grant = lost(world)
    Operation.objects.filter(pk=grant.order_id).update(reason="set_aside", due_at=Now() + timedelta(days=9))
    told = words(person.read(PATH))
    assert "set aside" in told
    assert "No worker looks by itself any more" in told
    assert "Suggested: look before anything is sent again." in told
    assert "Off. It may be what silenced its workers." in told


# It happened, it did not, and what is off.


def test_an_operator_records_that_it_happened_and_it_stays_their_word(person: Person, unknown: Grant) -> None:
    told = after(happened(person, unknown), person)
    assert "It happened, on your word: re_1." in told
    assert "Attested by Olga Demo" in told
    assert f"Olga Demo said: it happened, reference re_1. {WHY}" in told
    assert state_of(unknown) == "committed"
    for url in (f"/operations/{unknown.key}/", f"/cases/{unknown.subject}/"):
        assert WHY in words(person.read(url))
    operation = words(person.read(f"/operations/{unknown.key}/"))
    assert "re_1attested by Olga Demo" in operation.replace("re_1 attested", "re_1attested")
    assert "Olga Demo said: happened, reference re_1" in operation
    assert "recorded that it happened: attested" in words(person.read(f"/cases/{unknown.subject}/"))
    assert "You had recorded this already" in after(happened(person, unknown), person)


def test_that_it_did_not_happen_is_off_with_its_reason_until_nobody_can_act(
    person: Person, unknown: Grant
) -> None:
    page = person.read(item(unknown))
    choice = page.split('id="choice-did_not_happen"')[1].split("</div>")[0]
    assert "disabled" in choice
    assert "Off until" in words(choice)
    assert "The provider still keeps the key" in words(choice)
    answer = send(person, unknown, choice="did_not_happen", reason=WHY)
    assert answer.status_code == 409
    assert "It can be said from" in words(answer)
    assert WHY in answer.content.decode()
    assert state_of(unknown) == "outcome_unknown"

    long_ago(unknown, timedelta(hours=25))
    assert "The agent is told" in after(send(person, unknown, choice="did_not_happen", reason=WHY), person)
    assert state_of(unknown) == "failed_before_commit"


def test_sending_again_makes_it_due_now_and_is_off_where_it_is_not_safe(
    person: Person, unknown: Grant
) -> None:
    assert worlds.take_over() == []
    told = after(send(person, unknown, choice="send_again"), person)
    assert "sends the same key again if nothing is there" in told
    (taken,) = worlds.take_over()
    page = person.read(item(unknown))
    assert "disabled" in page.split('id="choice-send_again"')[1].split(">")[0]
    assert "Off. worker-b is at it until" in words(page)
    assert "Off until" in words(page)
    worlds.recorded(taken, AttemptOutcome.UNCERTAIN, sent=False)
    outcomes.record([worlds.report(unknown, reference="re_late")])


def test_the_sink_is_asked_now_and_still_unknown_is_kept_with_its_time(
    person: Person, unknown: Grant
) -> None:
    assert "The sink is asked now" in after(send(person, unknown, "look-up/"), person)
    for choice in ("look_in_15_min", "look_in_4_h"):
        told = after(send(person, unknown, choice=choice, reason=WHY), person)
        assert "Recorded as still unknown." in told
        assert "Olga Demo said: it is still unknown." in told
    assert "put off until" in told
    assert Attestation.objects.count() == 2
    assert "said: still unknown" in words(person.read(f"/cases/{unknown.subject}/"))
    assert len(worlds.take_over()) == 1


def test_a_late_report_is_shown_suggested_and_filled_in(world: World, person: Person) -> None:
    grant = worlds.claimed(world, lease=worlds.LAPSED)
    (successor,) = worlds.take_over()
    outcomes.record([worlds.report(grant, reference="re_late")])
    worlds.recorded(successor, AttemptOutcome.UNCERTAIN, sent=False, lookups=2)
    page = person.read(item(grant))
    told = words(page)
    assert "Late report, kept as evidence. worker-a said committed, re_late" in told
    assert "Suggested: it happened." in told
    assert 'value="re_late"' in page
    assert "A worker reported re_late after it had lost its lease." in told


BAD: list[tuple[dict[str, str], int, str]] = [
    ({"choice": ""}, 422, "Choose what happened. Nothing was recorded."),
    ({"choice": "nonsense"}, 422, "Choose what happened. Nothing was recorded."),
    ({"reason": " "}, 422, "Say what your word rests on"),
    ({"reason": "x" * 2001}, 422, "At most 2000 characters"),
    ({"reason": "a\0b"}, 422, "cannot be stored"),
    ({"reference": ""}, 422, "Give the sink’s own reference".replace("’", "'")),
    ({"reference": "a\u202eb"}, 422, "Give the sink's own reference"),
    ({"reference": "re_taken"}, 422, "This reference is another operation's already"),
]


@pytest.mark.parametrize(("typed", "status", "says"), BAD)
def test_bad_input_comes_back_with_the_error_beside_it_and_what_was_typed(
    world: World, person: Person, unknown: Grant, typed: dict[str, str], status: int, says: str
) -> None:
    other = worlds.claimed(world, "other", target="order:other")
    worlds.recorded(other, reference="re_taken")
    answer = happened(person, unknown, **typed)
    assert answer.status_code == status
    page = answer.content.decode()
    assert says in words(page).replace("&#x27;", "'")
    assert typed.get("reference", "re_1") == "" or 'name="reference"' in page
    if "reason" not in typed:
        assert WHY in page
    assert state_of(unknown) == "outcome_unknown"


def test_a_tool_whose_sink_gives_no_reference_asks_for_none(world: World, person: Person) -> None:
    version_with(
        world,
        enforcement=EnforcementClass.NONE,
        key_window=None,
        value_limits={"EUR": 10_000_000},
        settle_time=timedelta(0),
    )
    grant = lost(world)
    told = words(person.read(item(grant)))
    assert "gives no reference: leave it empty" in told
    assert "This sink cannot be asked by a program" in told
    assert "Next," not in told
    assert "Due now" not in told
    assert "Off. Nothing at the sink keeps a second send from happening twice" in told
    assert "Check the sink now" not in told
    after(happened(person, grant, reference=""), person)
    assert worlds.operation(grant).reference == f"attested:{grant.key[:12]}"


# Somebody, or something, was faster.


def test_a_word_on_what_has_moved_is_not_recorded_says_what_is_new_and_keeps_the_draft(
    person: Person, unknown: Grant
) -> None:
    page = person.read(item(unknown))
    hidden = dict(re.findall(r'name="(seen|at)" value="([^"]*)"', page))
    stale = {name: value.replace("&quot;", '"') for name, value in hidden.items()}
    worlds.make_due()
    worlds.recorded(worlds.take_over()[0], AttemptOutcome.UNCERTAIN, lookups=1, note="503 from the sink.")
    answer = happened(person, unknown, reference="re_draft", **stale)
    assert answer.status_code == 412
    told, html = words(answer), answer.content.decode()
    assert "Nothing was recorded. Something came in after the page was shown to you." in told
    assert "Attempt 2 ended: uncertain. 503 from the sink." in told
    assert 'value="re_draft"' in html
    assert WHY in html
    assert "checked" in html.split('id="choice-happened"')[1].split(">")[0]
    again = dict(re.findall(r'name="(seen)" value="([^"]*)"', html))["seen"].replace("&quot;", '"')
    assert happened(person, unknown, seen=again).status_code == 303
    assert len(worlds.events(ControlEventKind.VERSION_CONFLICT)) == 1


def test_a_word_on_what_is_settled_already_shows_the_outcome_and_the_draft(
    person: Person, unknown: Grant
) -> None:
    stale = seen(unknown)
    worlds.make_due()
    worlds.recorded(worlds.take_over()[0], sent=False, lookups=1)
    answer = happened(person, unknown, seen=stale)
    assert answer.status_code == 409
    assert "It has happened, and its receipt is stored." in words(answer)
    assert f"Your draft: “{WHY}”, reference re_1" in words(answer)


# Two people.


@pytest.fixture
def for_two(world: World) -> tuple[Grant, Person, Person]:
    version_with(world, second_person=True)
    Member.objects.filter(pk=world.member("admin").pk).update(roles=[Role.OPERATOR])
    return lost(world), at_the_console(world, "operator"), at_the_console(world, "admin")


def test_where_two_are_asked_for_the_first_word_waits_and_the_second_settles_it(
    for_two: tuple[Grant, Person, Person],
) -> None:
    grant, first, second = for_two
    assert "Record and ask for a second person" in words(first.read(item(grant)))
    assert "It settles nothing until a second person says the same." in after(happened(first, grant), first)
    assert picks(first.read(PATH)) == [grant.key]
    mine = words(first.read(item(grant)))
    assert "You said at" in mine
    assert "Somebody else has to say the same" in mine
    again = happened(first, grant)
    assert again.status_code == 409
    assert "You have said so already." in words(again)

    page = second.read(item(grant))
    assert "Olga Demo said at" in words(page)
    assert "Record as the second person" in words(page)
    assert 'value="re_1"' not in page  # the second person looks, and does not copy
    after(happened(second, grant), second)
    assert state_of(grant) == "committed"
    operation = words(second.read(f"/operations/{grant.key}/"))
    assert "attested by Olga Demo and Adam Demo" in operation
    assert "It waited for a second person." in operation
    history = words(second.read(f"/cases/{grant.subject}/"))
    assert "said: happened, reference re_1; it settles nothing until a second person says the same" in history


def test_a_first_word_is_shown_as_void_once_new_evidence_has_come(
    for_two: tuple[Grant, Person, Person],
) -> None:
    grant, first, second = for_two
    happened(first, grant)
    findings.open_finding(
        tenant_id=grant.tenant_id,
        kind=FindingKind.LATE,
        about="re_9",
        subject=grant.subject,
        order_id=grant.order_id,
    )
    told = words(second.read(item(grant)))
    assert "Void: new evidence has come since." in told
    assert "Record and ask for a second person" in told


# Ending it, and undoing it.


def test_what_was_never_sent_is_stopped_and_nothing_else_is(world: World, person: Person) -> None:
    grant = worlds.claimed(world)
    worlds.recorded(grant, AttemptOutcome.NOT_SENT, wait=900.0)
    assert "Stop it" in words(person.read(item(grant)))
    bare = send(person, grant, "stop/", reason="")
    assert (bare.status_code, state_of(grant)) == (422, "started")
    assert "Say why it is stopped" in words(bare)
    assert "It is stopped." in after(send(person, grant, "stop/", reason="No longer wanted."), person)
    assert state_of(grant) == "failed_before_commit"
    assert "stopped by a person" in words(person.read(PATH, view="settled"))
    sent = lost(world, "2", target="order:2")
    assert "Stopping is off: it may have been sent." in words(person.read(item(sent)))
    assert send(person, sent, "stop/", reason="Stop.").status_code == 409


def test_only_a_proven_effect_is_undone_by_a_case_of_its_own(world: World, person: Person) -> None:
    undone_by = {
        "action": "ledger_refund",
        "parameters": {"amount_minor": "{amount_minor}", "currency": "{currency}"},
    }
    version_with(world, compensation=undone_by)
    grant = lost(world)
    assert "Compensating is off: nothing is proven yet." in words(person.read(item(grant)))
    assert send(person, grant, "compensate/", reason=WHY).status_code == 409
    happened(person, grant)
    assert f"/reconcile/?item={grant.key}" in person.read(f"/operations/{grant.key}/")
    assert send(person, grant, "compensate/", reason="").status_code == 422
    answer = send(person, grant, "compensate/", reason="Wrong order.")
    case = Case.objects.get(compensates_id=grant.order_id)
    assert answer["Location"] == f"/cases/{case.pk}/"
    assert "The compensating case is open." in after(answer, person)
    assert "There is a case that undoes it already." in after(
        send(person, grant, "compensate/", reason="Wrong order."), person
    )
    assert "undoes it" in words(person.read(item(grant)))


def test_a_case_whose_outcome_was_corrected_says_so(world: World, person: Person) -> None:
    grant = worlds.claimed(world)
    worlds.recorded(grant, AttemptOutcome.REFUSED)
    corrections.correct(
        order_id=grant.order_id, receipt_reference="re_1", receipt_text="{}", source="reconciliation"
    )
    told = words(person.read(f"/cases/{grant.subject}/"))
    assert "found at the sink that it has happened after all" in told


# Findings.


@pytest.fixture
def foreign(world: World) -> Finding:
    findings.open_finding(
        tenant_id=world.tenant.pk,
        kind=FindingKind.FOREIGN,
        about="re_x",
        subject=None,
        order_id=None,
        tool_id=Tool.objects.get(tenant=world.tenant, name="refund").pk,
        reference="re_x",
        amount_minor=4_200,
        currency="EUR",
    )
    return Finding.objects.get()


def test_a_finding_says_what_is_in_question_and_is_settled_with_a_reason(
    world: World, person: Person, unknown: Grant
) -> None:
    when: dict[str, Any] = {"to": "2026-11-30T10:00:31+00:00", "from": "2026-11-30T10:00:00+00:00"}
    findings.open_finding(
        tenant_id=world.tenant.pk,
        kind=FindingKind.TWICE,
        about=unknown.key,
        subject=unknown.subject,
        order_id=unknown.order_id,
        reference="re_2",
        amount_minor=125_000,
        currency="EUR",
        seen=2,
        key=unknown.key,
        **when,
    )
    finding = Finding.objects.get()
    page = person.read(PATH, view="findings")
    told = words(page)
    for each in ("Twice: Refund", "The sink shows the effect twice.", "1,250.00 EUR", "re_2", "Seen 2"):
        assert each in told
    assert re.search(r"Seen 2 Happened from .*10:00:00 UTC To .*10:00:31 UTC In question", told)
    assert f'href="/operations/{unknown.key}/"' in page
    url = f"{PATH}findings/{finding.pk}/close/"
    assert person.open(url).status_code == 405
    reader = at_the_console(world, "reviewer")
    assert "Only an operator settles a finding." in words(reader.read(PATH, view="findings"))
    assert reader.client.post(url, {"reason": WHY}).status_code == 403
    assert person.client.post(url, {"reason": ""}).status_code == 422
    assert Finding.objects.get().closed_at is None
    assert "The finding is settled" in after(person.client.post(url, {"reason": "One was undone."}), person)
    assert Finding.objects.get().closed_by == "person:Olga Demo"
    again = person.client.post(url, {"reason": "Me too."})
    assert again.status_code == 409
    assert "Settled by Olga Demo" in words(again)
    assert "One was undone." in words(again)


def test_only_a_foreign_effect_is_muted_and_nobody_is_asked_about_it(
    world: World, person: Person, foreign: Finding
) -> None:
    url = f"{PATH}findings/{foreign.pk}/mute/"
    told = words(person.read(PATH, view="findings"))
    assert "The sink shows an effect that was never ours." in told
    assert "42.00 EUR in question" in told
    assert at_the_console(world, "auditor").client.post(url).status_code == 403
    assert "It is muted" in after(person.client.post(url), person)
    foreign.refresh_from_db()
    assert foreign.muted_at
    assert foreign.closed_at is None
    assert person.client.post(url).status_code == 409
    told = words(person.read(PATH, view="findings"))
    assert "1 muted" in told
    assert "Findings 0" in told


def test_an_empty_page_says_so_in_every_view(person: Person) -> None:
    for view, title in {
        "": "Nothing needs a person",
        "looking": "Nothing is being looked up",
        "findings": "Ledger and sinks agree",
        "settled": "Nothing was unknown in the last day",
        "nonsense": "Nothing needs a person",
    }.items():
        assert title in words(person.read(PATH, view=view))
