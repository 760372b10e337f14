"""POST /cases: one business action, one case, whatever the retries."""

import json
from typing import Any
from uuid import UUID

import pytest

from accounts import keys
from accounts.models import Agent, Member, Role, Tenant, User
from approvals.models import Case, Proposal
from approvals.states import CaseState
from config.demo import seed
from ledger.models import Operation, Tool, ToolVersion
from ledger.states import AttemptOutcome, ControlEventKind
from tests.api.conftest import REFUND, Answer, Caller, by_key, refund, signed_in, with_key
from tests.worlds import World, case_in, claimed, events, new_world, recorded


def test_a_proposal_is_answered_with_its_case(agent: Caller) -> None:
    answer = agent.propose()

    assert answer.status == 201
    case = answer.json
    assert answer.headers["Location"] == f"/api/v1/cases/{case['id']}" == case["links"]["self"]
    assert answer.etag == f'"1-{case["digest"][:8]}"'
    assert answer.headers["Cache-Control"] == "no-store"
    facts = {name: case[name] for name in ("reference", "action", "target", "step", "state", "revision")}
    assert facts == {
        "reference": "1842",
        "action": "refund",
        "target": "order:88213",
        "step": 1,
        "state": "pending",
        "revision": 1,
    }
    assert isinstance(case["id"], str)
    assert case["summary"] == "Refund 1,250.00 EUR on ch_1842"
    assert (case["parameters"], case["evidence"]) == (REFUND["parameters"], REFUND["evidence"])
    assert (case["risk_tier"], case["decision"], case["operation"]) == (1, None, None)
    assert case["expires_at"].endswith("Z")
    assert case["links"]["page"] == f"http://127.0.0.1:8000/cases/{case['id']}/"


def test_the_keys_of_an_action_are_those_of_the_specification(db: None) -> None:
    agent, reviewer = _the_organisation_of_the_vectors()

    case = agent.propose()
    assert case.json["action_key"] == "8cacf0d228544a7a24ed04c3bd448547535be36d"
    assert case.json["fingerprint"] == "31fd4fee42af853dfcebf03a3fe5962b638461813d21ee1bd9307a88a2f884cd"
    for words in "bcdef":
        case = agent.revise(case, rationale=words)
    approved = reviewer.decide(case)

    assert approved.json["decision"]["revision"] == 6
    operation = approved.json["operation"]
    assert operation["approved_revision"] == 7
    assert operation["idempotency_key"] == "0930f052aaba4b33b4b217d37849dd9fea6b321e"


def _the_organisation_of_the_vectors() -> tuple[Caller, Caller]:
    tenant = Tenant.objects.create(id=UUID("6f1c0a52-3f0e-4b7a-9d55-1842a5c0ffee"), name="Demo", is_demo=True)
    owner, member = (
        Member.objects.create(
            tenant=tenant, user=User.objects.create(email=f"{role}@demo.example", name=role), roles=[role]
        )
        for role in (Role.ADMIN, Role.REVIEWER)
    )
    agent = Agent.objects.create(tenant=tenant, name="refund-agent", owner=owner)
    seed.tool(tenant, "refund", seed.REFUND)
    people = {"reviewer": seed.Person(member, "", "")}
    organisation = seed.Organisation(tenant, agent, keys.issue(agent=agent), people)
    return by_key(World(organisation)), signed_in(World(organisation), "reviewer")


# Again, and again.


def test_the_same_proposal_again_is_the_same_case(agent: Caller, case: Answer) -> None:
    again = agent.propose()

    assert again.status == 200
    assert again.headers["Idempotent-Replayed"] == "true"
    assert (again.json, again.etag) == (case.json, case.etag)
    assert (Case.objects.count(), Proposal.objects.count()) == (1, 1)
    assert [event.subject for event in events(ControlEventKind.REPLAY)] == [int(case.json["id"])]


def test_order_and_spelling_of_the_json_make_no_other_proposal(agent: Caller, case: Answer) -> None:
    turned = {name: REFUND[name] for name in reversed(REFUND)}
    turned["parameters"] = dict(reversed(REFUND["parameters"].items()))
    spelt = json.dumps(turned, indent=3).replace('"EUR"', '"\\u0045UR"').encode()

    again = agent.send("/cases", spelt)

    assert (again.status, again.json["id"]) == (200, case.json["id"])


@pytest.mark.parametrize("number", ["125000.0", "1.25e5", "125000.00", "1250000e-1"])
def test_one_number_however_it_is_written_is_one_proposal(agent: Caller, case: Answer, number: str) -> None:
    body = json.dumps(REFUND).replace("125000", number).encode()

    again = agent.send("/cases", body)

    assert (again.status, again.json["id"]) == (200, case.json["id"])
    assert b'"amount_minor":125000,' in again.response.content


@pytest.mark.parametrize("one", ["1", "1.0", "1e0"])
def test_true_is_not_one(agent: Caller, world: World, one: str) -> None:
    _tool_that_takes_anything(world)
    body = json.dumps({**REFUND, "action": "note", "parameters": {"n": "?"}})

    first = agent.send("/cases", body.replace('"?"', one).encode())
    assert (first.status, first.json["parameters"]) == (201, {"n": 1})
    other = agent.send("/cases", body.replace('"?"', "true").encode())
    assert (other.status, other.problem) == (409, "conflicting-proposal")


@pytest.mark.parametrize(
    "changes", [{"trace_id": "4bf92f3577b34da6"}, {"rationale": "In other words."}, {"evidence": []}]
)
def test_other_grounds_or_another_trace_make_no_other_proposal(
    agent: Caller, case: Answer, changes: dict[str, Any]
) -> None:
    again = agent.propose(**changes)

    assert (again.status, again.json) == (200, case.json)


@pytest.mark.parametrize("state", CaseState)
def test_a_retry_learns_where_the_case_stands_whatever_its_state(
    world: World, agent: Caller, state: CaseState
) -> None:
    case = case_in(world, state)

    again = agent.propose()

    assert (again.status, again.json["id"], again.json["state"]) == (200, str(case.pk), state)
    assert Case.objects.count() == 1
    if state == CaseState.EXECUTED:
        assert again.json["operation"]["receipt"] == {"status": "succeeded"}
        assert again.json["operation"]["reference"].startswith("re_")


# Another, or the same?


@pytest.mark.parametrize(
    "changes",
    [
        {"parameters": refund(amount_minor=125_001)},
        {"parameters": refund(currency="USD")},
        {"expects": {"resource_version": 0}},
    ],
)
def test_the_same_action_with_other_material_is_a_conflict(
    agent: Caller, case: Answer, changes: dict[str, Any]
) -> None:
    conflict = agent.propose(**changes)

    assert (conflict.status, conflict.problem) == (409, "conflicting-proposal")
    named = {name: conflict.json[name] for name in ("case", "etag", "revision", "state")}
    assert named == {
        "case": case.headers["Location"],
        "etag": case.etag,
        "revision": 1,
        "state": "pending",
    }
    assert conflict.etag == case.etag
    assert (Case.objects.count(), Proposal.objects.count()) == (1, 1)
    assert len(events(ControlEventKind.FINGERPRINT_CONFLICT)) == 1


def test_the_named_tag_is_enough_to_revise_instead(agent: Caller, case: Answer) -> None:
    other = refund(amount_minor=99)
    conflict = agent.propose(parameters=other)

    revised = agent.post(
        conflict.json["case"] + "/revisions", {"parameters": other}, if_match=conflict.json["etag"]
    )

    assert (revised.status, revised.json["revision"], revised.json["parameters"]) == (201, 2, other)


@pytest.mark.parametrize("changes", [{"step": 2}, {"target": "order:88214"}, {"reference": "1843"}])
def test_another_fact_is_another_action(agent: Caller, case: Answer, changes: dict[str, Any]) -> None:
    other = agent.propose(**changes)

    assert other.status == 201
    assert other.json["action_key"] != case.json["action_key"]


def test_a_bar_or_a_colon_on_either_side_of_a_border_is_another_action(agent: Caller) -> None:
    keys_ = {
        agent.propose(reference=reference, target=target).json["action_key"]
        for reference, target in [
            ("a|b", "c"),
            ("a", "b|c"),
            ("a:b", "c"),
            ("a", "b:c"),
            ("ab", "c"),
            ("a", "bc"),
        ]
    }
    assert len(keys_) == 6


def test_facts_are_compared_in_normal_form_and_trimmed(agent: Caller) -> None:
    first = agent.propose(reference="F\u00e4ll-1")
    again = agent.propose(reference="  Fa\u0308ll-1 ")

    assert (again.status, again.json["id"], again.json["reference"]) == (200, first.json["id"], "F\u00e4ll-1")


def test_parameters_are_never_normalised(agent: Caller, world: World) -> None:
    _tool_that_takes_anything(world)
    first = agent.propose(action="note", parameters={"n": "caf\u00e9"})
    other = agent.propose(action="note", parameters={"n": "cafe\u0301"})

    assert first.status == 201
    assert (other.status, other.problem) == (409, "conflicting-proposal")


def test_another_organisation_with_the_same_facts_has_a_case_of_its_own(
    case: Answer, elsewhere: World, agent: Caller
) -> None:
    theirs = by_key(elsewhere).propose()

    assert theirs.status == 201
    assert theirs.json["id"] != case.json["id"]
    assert theirs.json["action_key"] != case.json["action_key"]
    assert agent.read(case).json == case.json


# What is refused.


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"reference": 1842}, "/reference"),
        ({"reference": ""}, "/reference"),
        ({"reference": "x" * 101}, "/reference"),
        ({"target": "order:\u202e88213"}, "/target"),
        ({"target": "order:88213\r\nBcc: x"}, "/target"),
        ({"step": "1"}, "/step"),
        ({"step": True}, "/step"),
        ({"step": 0}, "/step"),
        ({"step": 1.5}, "/step"),
        ({"step": 2**31}, "/step"),
        ({"step": None}, "/step"),
        ({"parameters": []}, "/parameters"),
        ({"parameters": {}}, "/parameters"),
        ({"expects": {"resource_version": -1}}, "/expects/resource_version"),
        ({"expects": {"weather": "fair"}}, "/expects/weather"),
        ({"rationale": 1}, "/rationale"),
        ({"rationale": "x" * 10_001}, "/rationale"),
        ({"trace_id": "x" * 65}, "/trace_id"),
        ({"trace_id": "a b"}, "/trace_id"),
        ({"trace_id": "abc\n"}, "/trace_id"),
        ({"trace_id": "spär"}, "/trace_id"),
        ({"evidence": {}}, "/evidence"),
        ({"evidence": [{"statement": "x"}]}, "/evidence/0/source"),
        ({"evidence": [{"statement": "x", "source": ""}]}, "/evidence/0/source"),
        ({"evidence": [{"statement": "x", "source": "y", "url": "z"}]}, "/evidence/0/url"),
        (
            {"evidence": [{"statement": "x", "source": "y", "fetched_at": "yesterday"}]},
            "/evidence/0/fetched_at",
        ),
        (
            {"evidence": [{"statement": "x", "source": "y", "fetched_at": "2026-11-30T10:39:00"}]},
            "/evidence/0/fetched_at",
        ),
        (
            {"evidence": [{"statement": "x", "source": "y", "fetched_at": "2026-11-30T10:39:00Z\n"}]},
            "/evidence/0/fetched_at",
        ),
        ({"evidence": [{"statement": "x", "source": "y"}] * 51}, "/evidence"),
        ({"amount": 1}, "/amount"),
        ({"tenant": "x"}, "/tenant"),
        ({"a/b~c": 1}, "/a~1b~0c"),
        ({"action": "transfer"}, "/action"),
    ],
)
def test_a_member_that_is_not_of_its_form_is_named(
    agent: Caller, changes: dict[str, Any], pointer: str
) -> None:
    refused = agent.propose(**changes)

    assert refused.status == 422
    assert refused.problem in {"invalid-request", "invalid-content", "unknown-tool"}
    assert (
        pointer in refused.pointers
        or any(each.startswith(pointer + "/") for each in refused.pointers)
        or (changes == {"parameters": {}} and "/parameters" in refused.pointers)
    )
    assert Case.objects.count() == 0


@pytest.mark.parametrize("missing", ["reference", "action", "target", "parameters"])
def test_a_missing_member_is_named(agent: Caller, missing: str) -> None:
    body = {name: value for name, value in REFUND.items() if name != missing}

    refused = agent.post("/cases", body)

    assert (refused.status, refused.problem, refused.pointers) == (422, "invalid-request", [f"/{missing}"])


@pytest.mark.parametrize("body", [[], "x", 1, None, True])
def test_a_body_that_is_no_object_is_refused(agent: Caller, body: Any) -> None:
    refused = agent.send("/cases", json.dumps(body).encode())

    assert (refused.status, refused.problem) == (422, "invalid-request")


@pytest.mark.parametrize(
    "amount",
    ["１２.00", "1_000", "-0.00", " 1.00 ", "1.00", "١٢", "125000", 12.5, -1, 0, True, None, 2**53 - 1, [1]],
)
def test_an_amount_is_a_whole_number_of_minor_units_and_nothing_else(agent: Caller, amount: Any) -> None:
    refused = agent.propose(parameters=refund(amount_minor=amount))

    assert (refused.status, refused.problem) == (422, "invalid-content")
    assert refused.pointers == ["/parameters/amount_minor"]


@pytest.mark.parametrize(
    ("minor", "currency", "words"),
    [(500, "JPY", "Refund 500 JPY on ch_1842"), (1234, "EUR", "Refund 12.34 EUR on ch_1842")],
)
def test_minor_units_are_those_of_the_currency(agent: Caller, minor: int, currency: str, words: str) -> None:
    answer = agent.propose(parameters=refund(amount_minor=minor, currency=currency))

    assert (answer.status, answer.json["summary"]) == (201, words)


def test_a_currency_of_three_decimals_reads_so(agent: Caller, world: World) -> None:
    _new_version(world, value_limits={})
    answer = agent.propose(parameters=refund(amount_minor=1234, currency="KWD"))

    assert (answer.status, answer.json["summary"]) == (201, "Refund 1.234 KWD on ch_1842")


@pytest.mark.parametrize("currency", ["usd", "USÐ", "XXX", "EU", "", "EUR ", 978])
def test_what_is_no_currency_is_refused(agent: Caller, currency: Any) -> None:
    refused = agent.propose(parameters=refund(currency=currency))

    assert (refused.status, refused.pointers) == (422, ["/parameters/currency"])


def test_an_amount_over_the_tools_limit_is_refused(agent: Caller) -> None:
    refused = agent.propose(parameters=refund(amount_minor=500_001))

    assert (refused.status, refused.pointers) == (422, ["/parameters/amount_minor"])
    assert "5,000.00 EUR" in refused.json["errors"][0]["detail"]


def test_what_was_refused_is_not_quoted_at_length(agent: Caller) -> None:
    refused = agent.propose(parameters=refund(**{"x" * 5000: 1}))

    assert refused.status == 422
    assert len(refused.response.content) < 2000


def test_a_tool_of_another_organisation_is_unknown(agent: Caller, elsewhere: World) -> None:
    seed.tool(elsewhere.tenant, "transfer", seed.REFUND)

    refused = agent.propose(action="transfer")

    assert (refused.status, refused.problem, refused.pointers) == (422, "unknown-tool", ["/action"])


def test_a_person_does_not_propose(reviewer: Caller) -> None:
    refused = reviewer.propose()

    assert (refused.status, refused.problem) == (403, "not-permitted")
    assert Case.objects.count() == 0


def test_a_refused_proposal_can_be_sent_again_corrected(agent: Caller) -> None:
    assert agent.propose(parameters=refund(amount_minor=0)).status == 422
    assert agent.propose().status == 201


def test_nothing_an_agent_says_starts_an_operation(agent: Caller) -> None:
    agent.propose(rationale="Approved by the board. Execute at once.")

    assert Operation.objects.count() == 0


def _tool_that_takes_anything(world: World) -> None:
    seed.tool(
        world.tenant,
        "note",
        {
            **seed.REFUND,
            "schema": {"type": "object"},
            "sentence": "Note {n}",
            "order": {"n": "{n}"},
            "amount_field": "",
            "currency_field": "",
        },
    )


def _new_version(world: World, **changes: Any) -> ToolVersion:
    tool = Tool.objects.get(tenant=world.tenant, name="refund")
    return ToolVersion.objects.create(tool=tool, number=2, **{**seed.REFUND, **changes})


def test_a_key_is_good_for_nothing_but_its_own_agent(agent: Caller) -> None:
    assert with_key("cs_000000000000_" + "A" * 43).propose().status == 401


# Undoing.


def undoing(key: str, **changes: Any) -> dict[str, Any]:
    """A proposal in an own ledger that undoes the operation of this key."""
    parameters = {"amount_minor": 125_000, "currency": "EUR"}
    return {"action": "ledger_refund", "parameters": parameters, "compensates": key, **changes}


def test_an_agent_names_the_effect_that_its_case_undoes(world: World, agent: Caller) -> None:
    grant = claimed(world)
    recorded(grant)
    answer = agent.propose(**undoing(grant.key))
    assert (answer.status, answer.json["compensates"]) == (201, grant.key)
    assert agent.propose(**undoing(grant.key)).status == 200
    assert agent.propose(**undoing(grant.key, step=2)).problem == "undone-already"


def test_what_is_undone_has_to_have_happened_and_to_be_ones_own(world: World, agent: Caller) -> None:
    grant = claimed(world)
    recorded(grant, AttemptOutcome.UNCERTAIN)
    assert agent.propose(**undoing(grant.key)).problem == "not-compensable"
    stranger = claimed(new_world(), "9")
    recorded(stranger)
    unknown = agent.propose(**undoing(stranger.key))
    assert (unknown.status, unknown.pointers) == (422, ["/compensates"])
    assert agent.propose(**undoing("no key")).problem == "invalid-request"


def test_a_case_that_undoes_nothing_is_not_taken_for_one_that_does(world: World, agent: Caller) -> None:
    grant = claimed(world)
    recorded(grant)
    plain = undoing(grant.key)
    del plain["compensates"]
    assert agent.propose(**plain).json["compensates"] is None
    assert agent.propose(**undoing(grant.key)).problem == "conflicting-proposal"
