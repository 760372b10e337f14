"""/operations/{key}/lookups, /resolutions, /stop, /compensation; /findings and /control-events."""

import pytest

from approvals import corrections
from approvals.models import Case
from approvals.states import Verdict
from config.demo import seed
from ledger import attestations, findings
from ledger.claims import Grant
from ledger.models import Finding, Tool, ToolVersion
from ledger.states import AttemptOutcome, FindingKind
from tests.api.conftest import Caller, by_key, signed_in
from tests.worlds import World, case_of, claimed, new_world, operation, recorded, revised, say

EVIDENCE = "The provider's own list at 14:02."
HAPPENED = {"testimony": "happened", "reference": "re_1", "evidence": EVIDENCE}
ACTS = [("lookups", {}), ("resolutions", HAPPENED), ("stop", {"reason": "No longer wanted."})]


@pytest.fixture
def unknown(world: World) -> Grant:
    grant = claimed(world)
    recorded(grant, AttemptOutcome.UNCERTAIN)
    return grant


@pytest.fixture
def operator(world: World) -> Caller:
    return signed_in(world, "operator")


def tag(grant: Grant) -> str:
    return attestations.tag_of(operation(grant))


def test_a_word_settles_the_operation_and_stands_beside_it(operator: Caller, unknown: Grant) -> None:
    read = operator.get(f"/operations/{unknown.key}")
    answer = operator.post(f"/operations/{unknown.key}/resolutions", HAPPENED, if_match=read.etag)
    assert (answer.status, answer.json["state"], answer.json["reference"]) == (200, "committed", "re_1")
    (word,) = operator.get(f"/operations/{unknown.key}").json["attestations"]
    assert (word["attested_by"], word["evidence"], word["settles"]) == ("Olga Demo", EVIDENCE, True)
    again = operator.post(f"/operations/{unknown.key}/resolutions", HAPPENED, if_match=read.etag)
    assert (again.status, again.headers["Idempotent-Replayed"]) == (200, "true")


def test_a_first_word_is_not_hidden_behind_an_old_tag(world: World, operator: Caller) -> None:
    tool = Tool.objects.get(tenant=world.tenant, name="refund")
    ToolVersion.objects.create(
        tool=tool, number=2, second_person=True, **{**seed.REFUND, "title": "Refund by two"}
    )
    grant = claimed(world)
    recorded(grant, AttemptOutcome.UNCERTAIN)
    path = f"/operations/{grant.key}"
    read = operator.get(path)
    assert operator.post(f"{path}/resolutions", HAPPENED, if_match=read.etag).status == 202
    again = operator.get(path, **{"If-None-Match": read.etag})
    assert (again.status, len(again.json["attestations"])) == (200, 1)
    assert again.etag != read.etag


@pytest.mark.parametrize(
    "until", ["2027-01-01T23:59:60Z", "9999-12-31T23:59:59-12:00", "2020-01-01T00:00:00Z"]
)
def test_a_time_that_nobody_can_wait_for_is_refused(operator: Caller, unknown: Grant, until: str) -> None:
    body = {"testimony": "still_unknown", "evidence": EVIDENCE, "until": until}
    answer = operator.post(f"/operations/{unknown.key}/resolutions", body, if_match=tag(unknown))
    assert (answer.status, answer.pointers) == (422, ["/until"])


def test_a_word_that_cannot_be_given_yet_says_until_when(operator: Caller, unknown: Grant) -> None:
    body = {"testimony": "did_not_happen", "evidence": EVIDENCE}
    answer = operator.post(f"/operations/{unknown.key}/resolutions", body, if_match=tag(unknown))
    assert (answer.status, answer.problem) == (409, "not-possible-yet")
    assert answer.json["until"].endswith("Z")


def test_the_sink_is_asked_at_once(operator: Caller, unknown: Grant) -> None:
    assert operator.post(f"/operations/{unknown.key}/lookups", {}, if_match=tag(unknown)).status == 202


def test_a_sink_that_cannot_be_asked_is_said_to_be_none(world: World, operator: Caller) -> None:
    tool = Tool.objects.get(tenant=world.tenant, name="refund")
    unkept = {**seed.REFUND, "enforcement": "none", "key_window": None}
    ToolVersion.objects.create(tool=tool, number=2, **unkept)
    grant = claimed(world)
    recorded(grant, AttemptOutcome.UNCERTAIN)
    answer = operator.post(f"/operations/{grant.key}/lookups", {}, if_match=tag(grant))
    assert (answer.status, answer.problem) == (409, "cannot-be-asked")
    assert answer.json["case"] == f"/api/v1/cases/{grant.subject}"


def test_what_was_never_sent_is_stopped(world: World, operator: Caller) -> None:
    grant = claimed(world)
    recorded(grant, AttemptOutcome.NOT_SENT)
    answer = operator.post(f"/operations/{grant.key}/stop", {"reason": "No."}, if_match=tag(grant))
    assert (answer.status, answer.json["state"]) == (200, "failed_before_commit")


@pytest.mark.parametrize(("act", "body"), ACTS)
def test_every_act_names_what_was_seen(
    operator: Caller, unknown: Grant, act: str, body: dict[str, str]
) -> None:
    path = f"/operations/{unknown.key}/{act}"
    assert operator.post(path, body).problem == "precondition-required"
    for malformed in ("7-unknown", '"1", "2"', "*", '"'):
        assert operator.post(path, body, if_match=malformed).status == 400
    moved = operator.post(path, body, if_match='"0-unknown"')
    assert (moved.status, moved.problem) == (412, "operation-moved")
    assert operation(unknown).state == "outcome_unknown"


@pytest.mark.parametrize(("act", "body"), [*ACTS, ("compensation", {})])
def test_every_act_is_an_operators(world: World, unknown: Grant, act: str, body: dict[str, str]) -> None:
    path, seen = f"/operations/{unknown.key}/{act}", tag(unknown)
    assert by_key(world).post(path, body, if_match=seen).problem == "person-required"
    assert signed_in(world, "reviewer").post(path, body, if_match=seen).problem == "not-permitted"
    assert signed_in(new_world(), "operator").post(path, body, if_match=seen).status == 404
    assert operation(unknown).state == "outcome_unknown"


@pytest.mark.parametrize("act", ["lookups", "resolutions", "stop", "compensation"])
def test_an_act_is_posted(operator: Caller, unknown: Grant, act: str) -> None:
    assert operator.get(f"/operations/{unknown.key}/{act}").status == 405


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ({**HAPPENED, "testimony": "maybe"}, "invalid-request"),
        ({**HAPPENED, "until": "soon"}, "invalid-request"),
        ({**HAPPENED, "more": 1}, "invalid-request"),
        ({"testimony": "happened"}, "invalid-request"),
        ({**HAPPENED, "evidence": " "}, "evidence-required"),
        ({**HAPPENED, "reference": ""}, "reference-required"),
    ],
)
def test_a_word_that_is_not_whole_is_refused(
    operator: Caller, unknown: Grant, body: dict[str, str], problem: str
) -> None:
    answer = operator.post(f"/operations/{unknown.key}/resolutions", body, if_match=tag(unknown))
    assert (answer.status, answer.problem) == (422, problem)


def test_only_a_proven_effect_is_undone(operator: Caller, unknown: Grant) -> None:
    assert operator.post(f"/operations/{unknown.key}/compensation", {}).problem == "not-compensable"


def test_findings_are_listed_and_closed_by_an_operator(
    world: World, operator: Caller, unknown: Grant
) -> None:
    findings.open_finding(
        tenant_id=world.tenant.pk,
        kind=FindingKind.MISSING,
        about=unknown.key,
        subject=unknown.subject,
        order_id=unknown.order_id,
    )
    (item,) = operator.get("/findings?kind=missing&state=open").json["items"]
    path = f"/findings/{item['id']}/closure"
    assert signed_in(world, "reviewer").post(path, {"reason": "So."}).status == 403
    assert signed_in(new_world(), "operator").post(path, {"reason": "So."}).status == 404
    assert operator.post(path, {"reason": " "}).problem == "evidence-required"
    closed = operator.post(path, {"reason": "Found under another date."})
    assert (closed.status, closed.json["closed_by"]) == (200, "person:Olga Demo")
    assert operator.get("/findings?state=open").json["items"] == []
    assert by_key(new_world()).get("/findings").json["items"] == []
    assert Finding.objects.count() == 1


def test_control_events_are_listed_by_kind_source_action_and_case(
    world: World, operator: Caller, unknown: Grant
) -> None:
    signed_in(world, "reviewer").post(f"/operations/{unknown.key}/lookups", {}, if_match=tag(unknown))
    case = Case.objects.get()
    query = f"kind=refused_act&source=person:Rita Demo&action=refund&case={case.pk}"
    (event,) = operator.get(f"/control-events?{query}").json["items"]
    assert event["detail"]["refusal"] == "NotPermitted"
    assert operator.get("/control-events?kind=replay").json["items"] == []
    assert operator.get("/control-events?case=x").json["items"] == []
    assert operator.get("/control-events?colour=x").status == 400
    assert by_key(new_world()).get("/control-events").json["items"] == []


def test_a_corrected_case_names_the_decision_that_was_carried_out(world: World, operator: Caller) -> None:
    grant = claimed(world)
    recorded(grant, AttemptOutcome.REFUSED)
    say(Verdict.REJECT, revised(world, case_of(grant), amount_minor=1), world.reviewer)
    receipt = {"receipt_reference": "re_1", "receipt_text": "{}"}
    assert corrections.correct(order_id=grant.order_id, source="reconciliation", **receipt)
    case = operator.get(f"/cases/{grant.subject}").json
    assert (case["state"], case["operation"]["state"]) == ("executed", "committed")
    assert (case["decision"]["verdict"], case["decision"]["revision"]) == ("approve", 1)
    assert case["parameters"]["amount_minor"] == 125_000
