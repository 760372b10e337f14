"""If-Match and If-None-Match (RFC 9110, 13.1): what one saw is named exactly, or nothing is written."""

from typing import Any

import pytest

from approvals.models import Case, Revision, Vote
from ledger.states import ControlEventKind
from tests.api.conftest import Answer, Caller, refund
from tests.worlds import events

ACTS = ["revisions", "withdrawal", "decisions"]


def act(what: str, agent: Caller, reviewer: Caller, case: Answer, if_match: str | None) -> Answer:
    """One of the three acts that name a revision, on what the answer showed."""
    address = f"/cases/{case.json['id']}/{what}"
    bodies: dict[str, Any] = {
        "revisions": {"parameters": refund(amount_minor=99)},
        "withdrawal": {},
        "decisions": {"verdict": "approve", "digest": case.json["digest"]},
    }
    caller = reviewer if what == "decisions" else agent
    return caller.post(address, bodies[what], if_match=if_match)


def untouched(case: Answer) -> bool:
    """Whether nothing at all was written about the case."""
    row = Case.objects.get(pk=case.json["id"])
    rows = Revision.objects.filter(case=row).count(), Vote.objects.filter(case=row).count()
    return (row.state, row.revision, *rows) == ("pending", 1, 1, 0)


@pytest.mark.parametrize("what", ACTS)
def test_an_act_that_names_no_revision_is_refused(
    agent: Caller, reviewer: Caller, case: Answer, what: str
) -> None:
    refused = act(what, agent, reviewer, case, None)

    assert (refused.status, refused.problem) == (428, "precondition-required")
    assert untouched(case)


NOT_ONE_TAG = [
    "*",
    "",
    "1",
    "23",
    "1-{digest}",
    '"1-{digest}',
    '1-{digest}"',
    '"1-{digest}", "2-{digest}"',
    '"1-{digest}","1-{digest}"',
    '"1-{digest}" x',
    "'1-{digest}'",
    '"1-{digest}"" x',
]


@pytest.mark.parametrize("what", ACTS)
def test_a_header_that_is_not_one_tag_is_malformed_and_never_no_condition(
    agent: Caller, reviewer: Caller, case: Answer, what: str
) -> None:
    for header in NOT_ONE_TAG:
        refused = act(what, agent, reviewer, case, header.format(digest=case.json["digest"][:8]))
        assert (header, refused.status, refused.problem) == (header, 400, "malformed-precondition")
    assert untouched(case)


NOT_OUR_TAG = ['"*"', '"5"', '"v2"', '"1-ABCDEF00"', '"01-{digest}"', '"1-{digest}0"', '"1"', '""']


@pytest.mark.parametrize("what", ACTS)
def test_a_tag_that_was_never_this_cases_approves_nothing(
    agent: Caller, reviewer: Caller, case: Answer, what: str
) -> None:
    for header in NOT_OUR_TAG:
        refused = act(what, agent, reviewer, case, header.format(digest=case.json["digest"][:8]))
        answered = refused.status, refused.problem
        assert answered in {(400, "malformed-precondition"), (412, "version-conflict")}, header
    assert untouched(case)


@pytest.mark.parametrize("what", ACTS)
def test_a_tag_of_another_revision_is_a_conflict(
    agent: Caller, reviewer: Caller, case: Answer, what: str
) -> None:
    for header in ('"2-{digest}"', '"1-00000000"', '"2147483647-{digest}"'):
        refused = act(what, agent, reviewer, case, header.format(digest=case.json["digest"][:8]))
        assert (header, refused.status, refused.problem) == (header, 412, "version-conflict")
    assert untouched(case)


@pytest.mark.parametrize("what", ACTS)
@pytest.mark.parametrize("header", ["W/{etag}", " {etag} ", "{weakened}"])
def test_a_tag_that_a_proxy_weakened_still_lets_the_honest_caller_through(
    agent: Caller, reviewer: Caller, case: Answer, what: str, header: str
) -> None:
    weakened = f'{case.etag[:-1]}-gzip"'

    assert act(what, agent, reviewer, case, header.format(etag=case.etag, weakened=weakened)).status < 300


def test_a_conflict_says_what_changed_and_writes_nothing(
    agent: Caller, reviewer: Caller, case: Answer
) -> None:
    newer = agent.revise(
        case, parameters=refund(amount_minor=99, payment="ch_2"), expects={"resource_version": 0}
    )

    stale = reviewer.decide(case)

    assert (stale.status, stale.problem) == (412, "version-conflict")
    assert stale.json["case"] == f"/api/v1/cases/{case.json['id']}"
    assert (stale.json["etag"], stale.json["revision"], stale.etag) == (newer.etag, 2, newer.etag)
    assert stale.json["changed"] == [
        "/expects/resource_version",
        "/parameters/amount_minor",
        "/parameters/payment",
    ]
    assert Vote.objects.count() == 0
    assert [event.detail["seen"] for event in events(ControlEventKind.VERSION_CONFLICT)] == [1]


def test_a_conflict_over_other_words_changed_no_material(
    agent: Caller, reviewer: Caller, case: Answer
) -> None:
    agent.revise(case, rationale="In other words.")

    assert reviewer.decide(case).json["changed"] == []


def test_a_conflict_over_a_revision_that_never_was_says_so(reviewer: Caller, case: Answer) -> None:
    assert reviewer.decide(case, if_match='"7-00000000"').json["changed"] is None


def test_the_right_revision_with_another_digest_is_a_conflict(reviewer: Caller, case: Answer) -> None:
    refused = reviewer.decide(case, digest="0" * 64)

    assert (refused.status, refused.problem) == (412, "version-conflict")
    assert untouched(case)


def test_two_changes_within_a_second_have_two_tags_and_back_again_a_third(
    agent: Caller, case: Answer
) -> None:
    there = agent.revise(case, parameters=refund(amount_minor=99))
    back = agent.revise(there)

    assert back.json["parameters"] == case.json["parameters"]
    assert len({case.etag, there.etag, back.etag}) == 3


# Reading again.


@pytest.mark.parametrize("header", ["{etag}", "W/{etag}", '"x", {etag}', "*"])
def test_what_one_holds_is_not_sent_again(agent: Caller, case: Answer, header: str) -> None:
    same = agent.get(f"/cases/{case.json['id']}", **{"If-None-Match": header.format(etag=case.etag)})

    assert (same.status, same.response.content, same.etag) == (304, b"", case.etag)
    assert same.headers["Cache-Control"] == "private, no-cache"
    assert "Authorization" in same.headers["Vary"]


@pytest.mark.parametrize("header", ['"1-00000000"', "1", "", '"*"', "x y", '"{etag}"'])
def test_what_one_does_not_hold_is_sent(agent: Caller, case: Answer, header: str) -> None:
    full = agent.get(f"/cases/{case.json['id']}", **{"If-None-Match": header.format(etag=case.etag)})

    assert (full.status, full.json, full.etag) == (200, case.json, case.etag)


def test_the_tag_of_an_act_is_the_tag_of_the_next_reading(
    agent: Caller, reviewer: Caller, case: Answer
) -> None:
    revised = agent.revise(case, parameters=refund(amount_minor=99))
    assert (agent.read(case).etag, agent.read(case).json) == (revised.etag, revised.json)

    approved = reviewer.decide(revised)
    assert (agent.read(case).etag, agent.read(case).json) == (approved.etag, approved.json)
    assert approved.headers["Content-Location"] == f"/api/v1/cases/{case.json['id']}"
