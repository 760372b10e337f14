"""Lists in pages, sub-resources with tags of their own, and what an agent may know about its organisation."""

import re
from typing import Any

import pytest

from approvals.states import CaseState
from config.demo import seed
from ledger.claims import renew
from ledger.states import AttemptOutcome, OperationState
from tests.api.conftest import Answer, Caller, refund
from tests.worlds import (
    LAPSED,
    WORKER,
    World,
    approved,
    case_in,
    claim,
    claimed,
    proposed,
    recorded,
    report,
    take_over,
)
from workers import outcomes


def ids(listed: Answer) -> list[str]:
    """The cases of a page, as references."""
    return [each["reference"] for each in listed.json["items"]]


# Pages.


def test_a_list_is_read_page_by_page_and_nothing_added_meanwhile_shifts_it(
    world: World, agent: Caller
) -> None:
    for number in range(7):
        proposed(world, f"case-{number}")
    first = agent.get("/cases?limit=3")
    proposed(world, "added")

    second = agent.get(first.json["next"])
    third = agent.get(second.json["next"])

    assert ids(first) + ids(second) + ids(third) == [f"case-{number}" for number in reversed(range(7))]
    assert first.headers["Link"] == f'<{first.json["next"]}>; rel="next"'
    assert (third.json["next"], "Link" in third.headers) == (None, False)
    assert first.json["items"][0] == agent.get(first.json["items"][0]["links"]["self"]).json


@pytest.mark.parametrize("size", [0, 3, 4])
def test_the_last_page_offers_no_next(world: World, agent: Caller, size: int) -> None:
    for number in range(size):
        proposed(world, f"case-{number}")

    page = agent.get("/cases?limit=4")

    assert (len(page.json["items"]), page.json["next"]) == (size, None)


def test_cases_are_filtered_by_state_action_and_reference(world: World, agent: Caller) -> None:
    case_in(world, CaseState.HELD, "held")
    case_in(world, CaseState.REJECTED, "F\u00e4ll")
    proposed(world, "F\u00e4ll", step=2)

    assert ids(agent.get("/cases?state=held")) == ["held"]
    assert ids(agent.get("/cases?reference=F%C3%A4ll")) == ["F\u00e4ll"] * 2
    assert ids(agent.get("/cases?reference=Fa%CC%88ll%20&state=pending")) == ["F\u00e4ll"]
    assert ids(agent.get("/cases?action=refund&limit=2")) == ["F\u00e4ll"] * 2
    assert ids(agent.get("/cases?action=transfer")) == []
    # The next page keeps the filter.
    assert "action=refund" in agent.get("/cases?action=refund&limit=2").json["next"]


WRONG_QUERIES = [
    ("stat=pending", "stat"),
    ("state=pendin", "state"),
    ("state=", "state"),
    ("state=pending&state=held", "state"),
    ("reference=", "reference"),
    ("reference=a%00b", "reference"),
    ("action=%20", "action"),
    ("limit=0", "limit"),
    ("limit=101", "limit"),
    ("limit=-1", "limit"),
    ("limit=1.0", "limit"),
    ("limit=%D9%A1", "limit"),
    ("limit=1_0", "limit"),
    ("limit=99999999999999999999", "limit"),
    ("format=api", "format"),
    ("_method=POST", "_method"),
]


@pytest.mark.parametrize("path", ["/cases", "/operations"])
def test_a_query_that_is_not_of_the_call_is_refused(agent: Caller, path: str) -> None:
    for query, parameter in WRONG_QUERIES:
        refused = agent.get(f"{path}?{query}")
        assert (query, refused.status, refused.problem) == (query, 400, "invalid-query")
        assert refused.pointers == [parameter]


@pytest.mark.parametrize(
    "path", ["/cases/{id}", "/cases/{id}/votes", "/tools", "/agents/me", "/resources/order:88213"]
)
def test_no_address_takes_a_parameter_it_does_not_know(agent: Caller, case: Answer, path: str) -> None:
    assert agent.get(f"{path.format(id=case.json['id'])}?expand=all").problem == "invalid-query"


def test_an_act_takes_no_query(agent: Caller) -> None:
    refused = agent.post("/cases?limit=1", {})

    assert (refused.status, refused.problem) == (400, "invalid-query")


def test_a_cursor_that_was_not_given_out_is_refused(agent: Caller) -> None:
    forged = ["L2FwaS92MS9jYXNlczo=", "L2FwaS92MS9jYXNlczoxJw", "LTE"]
    for cursor in ["", "x", "1", "é", "%00", "=", "[]", "a" * 5000, *forged]:
        refused = agent.get(f"/cases?cursor={cursor}")
        assert (cursor, refused.status, refused.problem) == (cursor, 400, "malformed-cursor")


def test_a_cursor_of_another_list_is_refused(world: World, agent: Caller) -> None:
    for number in range(2):
        proposed(world, f"case-{number}")
    query = agent.get("/cases?limit=1").json["next"].partition("?")[2]

    assert agent.get(f"/operations?{query}").problem == "malformed-cursor"


def test_a_page_of_many_cases_costs_no_more_queries_than_one(
    world: World, agent: Caller, django_assert_max_num_queries: Any
) -> None:
    for number in range(6):
        case_in(world, CaseState.EXECUTED, f"case-{number}")

    with django_assert_max_num_queries(9):
        assert len(agent.get("/cases").json["items"]) == 6
    with django_assert_max_num_queries(6):
        assert len(agent.get("/operations").json["items"]) == 6


# Revisions.


def test_every_revision_stays_with_the_content_it_had(agent: Caller, reviewer: Caller, case: Answer) -> None:
    returned = reviewer.decide(case, "request_changes", reason="Name the invoice.")
    agent.revise(returned, parameters=refund(amount_minor=99), rationale="Invoice 7.")

    listed = agent.get(case.json["links"]["revisions"])

    assert [
        (each["number"], each["state"], each["act"], each["actor"]["kind"], each["reason"])
        for each in listed.json["items"]
    ] == [
        (1, "pending", "proposed", "agent", ""),
        (2, "returned", "returned", "person", "Name the invoice."),
        (3, "pending", "revised", "agent", ""),
    ]
    assert [each["parameters"]["amount_minor"] for each in listed.json["items"]] == [125_000, 125_000, 99]
    assert [each["etag"] for each in listed.json["items"]][::2] == [case.etag, agent.read(case).etag]


def test_revisions_are_paged_from_the_first_on(agent: Caller, case: Answer) -> None:
    latest = case
    for words in "bcd":
        latest = agent.revise(latest, rationale=words)

    first = agent.get(f"{case.json['links']['revisions']}?limit=3")
    second = agent.get(first.json["next"])

    numbers = [each["number"] for page in (first, second) for each in page.json["items"]]
    assert (numbers, second.json["next"]) == ([1, 2, 3, 4], None)


# The case and its operation.


@pytest.mark.parametrize("state", CaseState)
def test_a_case_in_every_state_is_shown_with_what_is_known(
    world: World, agent: Caller, state: CaseState
) -> None:
    shown = agent.get(f"/cases/{case_in(world, state).pk}").json

    operations = {
        CaseState.APPROVED: "not_started",
        CaseState.EXECUTING: "started",
        CaseState.UNKNOWN: "outcome_unknown",
        CaseState.EXECUTED: "committed",
        CaseState.FAILED: "failed_before_commit",
    }
    assert shown["state"] == state
    assert (shown["operation"] or {}).get("state") == operations.get(state)
    verdicts = {CaseState.RETURNED: "request_changes", CaseState.HELD: "hold", CaseState.REJECTED: "reject"}
    expected = verdicts.get(state, "approve" if state in operations else None)
    assert (shown["decision"] or {}).get("verdict") == expected


def test_every_step_of_an_operation_gives_the_case_another_tag(world: World, agent: Caller) -> None:
    case = approved(world)
    tags = [agent.get(f"/cases/{case.pk}").etag]
    (grant,) = claim()
    tags.append(agent.get(f"/cases/{case.pk}").etag)
    recorded(grant, AttemptOutcome.UNCERTAIN)
    tags.append(agent.get(f"/cases/{case.pk}").etag)
    (again,) = take_over()
    unknown = agent.get(f"/cases/{case.pk}")
    assert unknown.etag == tags[-1]  # looked at again, and still unknown: the same revision, the same body
    outcomes.record([report(again, worker="worker-b")])
    executed = agent.get(f"/cases/{case.pk}")
    tags.append(executed.etag)

    assert len(set(tags)) == 4
    assert executed.json["operation"]["receipt"] == {"status": "succeeded"}


def test_an_unknown_that_is_looked_at_again_shows_the_same_case_under_the_same_tag(
    world: World, agent: Caller
) -> None:
    grant = claimed(world)
    recorded(grant, AttemptOutcome.UNCERTAIN, reason="timeout")
    before = agent.get(f"/cases/{grant.subject}")
    (again,) = take_over()
    outcomes.record([report(again, AttemptOutcome.UNCERTAIN, worker="worker-b", reason="reset")])
    after = agent.get(f"/cases/{grant.subject}")

    assert (after.etag, after.response.content) == (before.etag, before.response.content)


def test_an_earlier_failure_is_no_news_of_a_case_that_was_proposed_again(
    world: World, agent: Caller, reviewer: Caller
) -> None:
    failed = agent.get(f"/cases/{case_in(world, CaseState.FAILED).pk}")
    assert failed.json["operation"]["reason"] == "declined"

    again = agent.revise(failed)
    assert (again.json["state"], again.json["operation"], again.json["decision"]) == ("pending", None, None)

    approved_again = reviewer.decide(again)
    assert approved_again.json["operation"]["state"] == "not_started"
    keys = {each["idempotency_key"] for each in agent.get("/operations?reference=1842").json["items"]}
    assert len(keys) == 2


# Operations.


def test_an_operation_is_shown_with_attempts_evidence_and_findings(world: World, agent: Caller) -> None:
    case = approved(world)
    key = agent.get(f"/cases/{case.pk}").json["operation"]["idempotency_key"]
    (first,) = claim(lease=LAPSED)
    (second,) = take_over()
    outcomes.record([report(second, worker="worker-b")])
    outcomes.record([report(first, reference="re_other", receipt='{"status":"late"}')])

    shown = agent.get(f"/operations/{key}").json

    assert (shown["state"], shown["case"], shown["action"]) == ("committed", str(case.pk), "refund")
    assert (shown["receipt"], shown["resource"]) == ({"status": "succeeded"}, "order:88213")
    assert (shown["amount_minor"], shown["currency"]) == (125_000, "EUR")
    assert [(each["number"], each["outcome"], each["token"]) for each in shown["attempts"]] == [
        (1, "superseded", first.token),
        (2, "committed", second.token),
    ]
    assert [(each["token"], each["receipt"]) for each in shown["evidence"]] == [
        (first.token, {"status": "late"})
    ]
    assert [each["kind"] for each in shown["findings"]] == ["late"]


def test_an_operations_tag_rises_with_state_grant_and_evidence_and_not_with_a_renewal(
    world: World, agent: Caller
) -> None:
    case = approved(world)
    key = agent.get(f"/cases/{case.pk}").json["operation"]["idempotency_key"]
    tags: list[str] = []

    def look() -> None:
        answer = agent.get(f"/operations/{key}", **{"If-None-Match": tags[-1] if tags else ""})
        tags.append(answer.etag)
        assert answer.status == (304 if len(tags) > 1 and tags[-1] == tags[-2] else 200)

    look()
    (grant,) = claim(lease=LAPSED)
    look()
    assert renew([(grant.order_id, grant.token)], worker=WORKER, lease=LAPSED)
    look()
    (second,) = take_over()
    look()
    outcomes.record([report(grant)])  # fenced: kept as evidence
    look()
    outcomes.record([report(second, worker="worker-b")])
    look()

    numbers = [int(re.sub(r"\D.*", "", tag.strip('"'))) for tag in tags]
    assert numbers == sorted(numbers)
    assert tags[1] == tags[2]
    assert len(set(tags)) == 5


def test_operations_are_filtered_by_state_action_and_reference(world: World, agent: Caller) -> None:
    for state, reference in [
        (CaseState.EXECUTED, "one"),
        (CaseState.FAILED, "two"),
        (CaseState.APPROVED, "three"),
    ]:
        case_in(world, state, reference)

    def found(query: str) -> list[str]:
        return [each["case_reference"] for each in agent.get(f"/operations?{query}").json["items"]]

    assert found("") == ["three", "two", "one"]
    assert found("state=committed") == ["one"]
    assert found("reference=two&action=refund") == ["two"]
    assert found("action=transfer") == []
    assert found("limit=1") == ["three"]
    for known in OperationState:
        assert agent.get(f"/operations?state={known}").status == 200


# Resources, tools, the agent itself.


def test_a_resource_is_at_0_until_an_effect_commits_on_it(world: World, agent: Caller) -> None:
    fresh = agent.get("/resources/order:88213")
    assert (fresh.status, fresh.json, fresh.etag) == (
        200,
        {"name": "order:88213", "version": 0, "holder": None},
        '"0"',
    )

    grant = claimed(world)
    held = agent.get("/resources/order:88213", **{"If-None-Match": fresh.etag})
    assert (held.status, held.json["version"], held.json["holder"]) == (200, 0, grant.key)

    recorded(grant)
    free = agent.get("/resources/order:88213", **{"If-None-Match": held.etag})
    assert (free.json["version"], free.json["holder"], free.etag) == (1, None, '"1"')
    assert agent.get("/resources/order:88213", **{"If-None-Match": free.etag}).status == 304


@pytest.mark.parametrize("name", ["a/b/c", "order:1%2F2", "Empf%C3%A4nger:%C3%9C", "x" * 400])
def test_a_resource_may_have_any_name(agent: Caller, name: str) -> None:
    assert agent.get(f"/resources/{name}").json["version"] == 0


def test_an_agent_learns_what_it_may_propose(world: World, agent: Caller) -> None:
    seed.tool(world.tenant, "refund-2", seed.REFUND, tier=3, approvals_required=2)

    tools = {each["name"]: each for each in agent.get("/tools").json["items"]}

    refund_ = tools["refund"]
    assert (refund_["title"], refund_["version"]) == ("Refund", 1)
    assert refund_["schema"] == seed.REFUND["schema"]
    assert refund_["limits"] == seed.REFUND["value_limits"]
    assert "for 24 hours" in refund_["guarantee"]
    assert tools["refund-2"]["policy"] == {
        "version": 1,
        "risk_tier": 3,
        "approvals_required": 2,
        "expires_after_seconds": 259_200,
    }


def test_an_agent_learns_who_it_is(world: World, agent: Caller, reviewer: Caller) -> None:
    assert agent.get("/agents/me").json == {
        "id": str(world.organisation.agent.pk),
        "name": "refund-agent",
        "organisation": {"id": str(world.tenant.pk), "name": world.tenant.name},
    }
    assert reviewer.get("/agents/me").problem == "not-permitted"
