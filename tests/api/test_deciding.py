"""POST /cases/{id}/decisions: a person's word on exactly what he or she saw."""

from typing import Any

import pytest

from accounts.models import Agent, Member
from approvals.models import Revision, Vote
from approvals.states import CaseState, Verdict
from ledger.models import Operation
from tests.api.conftest import Answer, Caller, by_key, refund, signed_in
from tests.worlds import World, case_in, make_late, new_world, open_finding


def answer_for(caller: Caller, case_id: int) -> Answer:
    """The case as the caller reads it."""
    return caller.get(f"/cases/{case_id}")


def test_an_approval_names_the_revision_it_saw_and_writes_the_operation_at_the_one_it_made(
    agent: Caller, reviewer: Caller, case: Answer
) -> None:
    approved = reviewer.decide(case, reason="The carrier confirms.", reason_code="verified")

    assert approved.status == 200
    body = approved.json
    assert (body["state"], body["revision"], approved.etag) == ("approved", 2, f'"2-{body["digest"][:8]}"')
    decision = body["decision"]
    assert (decision["verdict"], decision["revision"]) == ("approve", 1)
    assert (decision["reason"], decision["reason_code"]) == ("The carrier confirms.", "verified")
    assert [each["by"] for each in decision["approvals"]] == ["Rita Demo"]
    operation = body["operation"]
    assert (operation["approved_revision"], operation["state"]) == (2, "not_started")
    assert (operation["reference"], operation["settled_at"]) == (None, None)
    assert agent.get(operation["links"]["self"]).json["case"] == body["id"]
    assert agent.read(case).json == body


@pytest.mark.parametrize(
    ("verdict", "state", "reason"),
    [
        ("reject", "rejected", "Wrong parcel."),
        ("request_changes", "returned", "Name the invoice."),
        ("hold", "held", ""),
    ],
)
def test_the_agent_learns_the_verdict_and_its_reason(
    agent: Caller, reviewer: Caller, case: Answer, verdict: str, state: str, reason: str
) -> None:
    assert reviewer.decide(case, verdict, reason=reason).status == 200

    told = agent.propose().json
    assert told["state"] == state
    assert (told["decision"]["verdict"], told["decision"]["reason"]) == (verdict, reason)
    assert told["operation"] is None
    assert Operation.objects.count() == 0


@pytest.mark.parametrize(
    ("start", "verdict"),
    [
        (CaseState.HELD, "release"),
        (CaseState.REJECTED, "reopen"),
        (CaseState.APPROVED, "revoke"),
    ],
)
def test_a_decision_taken_back_leaves_the_case_pending_and_undecided(
    world: World, agent: Caller, reviewer: Caller, start: CaseState, verdict: str
) -> None:
    case = answer_for(agent, case_in(world, start).pk)

    back = reviewer.decide(case, verdict, reason="On second thoughts.")

    assert (back.status, back.json["state"]) == (200, "pending")
    assert (back.json["decision"], back.json["operation"]) == (None, None)
    if start == CaseState.APPROVED:
        assert [each.state for each in Operation.objects.all()] == ["failed_before_commit"]


@pytest.mark.parametrize("verdict", ["reject", "request_changes"])
def test_turning_down_needs_a_reason(reviewer: Caller, case: Answer, verdict: str) -> None:
    refused = reviewer.decide(case, verdict, reason="  ")

    assert (refused.status, refused.problem, refused.pointers) == (422, "reason-required", ["/reason"])
    assert Vote.objects.count() == 0


def test_the_same_click_again_is_answered_and_counted_once(reviewer: Caller, case: Answer) -> None:
    first = reviewer.decide(case)
    again = reviewer.decide(case)

    assert (again.status, again.json, again.etag) == (200, first.json, first.etag)
    assert again.headers["Idempotent-Replayed"] == "true"
    assert "Idempotent-Replayed" not in first.headers
    assert (Vote.objects.count(), Operation.objects.count()) == (1, 1)


def test_a_second_thought_on_the_first_revision_comes_too_late(reviewer: Caller, case: Answer) -> None:
    reviewer.decide(case)

    late = reviewer.decide(case, "reject", reason="No.")

    assert (late.status, late.problem) == (412, "version-conflict")
    assert late.json["state"] == "approved"


def test_a_decided_case_is_not_decided_again(reviewer: Caller, world: World, case: Answer) -> None:
    approved = reviewer.decide(case)

    refused = signed_in(world, "second_reviewer").decide(approved)

    assert (refused.status, refused.problem) == (409, "already-decided")
    assert refused.json["etag"] == approved.etag


def test_two_reviewers_make_a_quorum_and_the_votes_have_a_tag_of_their_own(db: None) -> None:
    world = new_world(approvals_required=2)
    agent, rita, sam = by_key(world), signed_in(world, "reviewer"), signed_in(world, "second_reviewer")
    case = agent.propose()
    votes = f"/cases/{case.json['id']}/votes"
    none = agent.get(votes)

    first = rita.decide(case)
    assert (first.json["state"], first.etag) == ("pending", case.etag)
    assert sam.get(votes, **{"If-None-Match": none.etag}).json["standing_approvals"] == 1
    assert rita.decide(case).headers["Idempotent-Replayed"] == "true"
    assert Operation.objects.count() == 0

    second = sam.decide(case)
    assert second.json["state"] == "approved"
    assert [each["by"] for each in second.json["decision"]["approvals"]] == ["Rita Demo", "Sam Demo"]
    listed = agent.get(votes)
    assert [(each["by"], each["verdict"], each["revision"]) for each in listed.json["items"]] == [
        ("Rita Demo", "approve", 1),
        ("Sam Demo", "approve", 1),
    ]
    assert agent.get(votes, **{"If-None-Match": listed.etag}).status == 304
    assert Operation.objects.count() == 1


def test_a_vote_stops_counting_with_its_givers_role_and_the_tag_of_the_votes_says_so(db: None) -> None:
    world = new_world(approvals_required=2)
    agent, rita = by_key(world), signed_in(world, "reviewer")
    case = agent.propose()
    rita.decide(case)
    votes = f"/cases/{case.json['id']}/votes"
    counted = agent.get(votes)

    Member.objects.filter(pk=world.member("reviewer").pk).update(roles=[])

    now = agent.get(votes, **{"If-None-Match": counted.etag})
    assert (now.status, now.json["standing_approvals"], len(now.json["items"])) == (200, 0, 1)


def test_a_revision_after_the_page_was_opened_voids_its_votes(db: None) -> None:
    world = new_world(approvals_required=2)
    agent, rita, sam = by_key(world), signed_in(world, "reviewer"), signed_in(world, "second_reviewer")
    case = agent.propose()
    rita.decide(case)
    newer = agent.revise(case, parameters=refund(amount_minor=99))

    assert (sam.decide(case).status, Operation.objects.count()) == (412, 0)
    # Rita's vote on the first revision is kept and counts for nothing now.
    assert sam.decide(newer).json["state"] == "pending"
    votes = agent.get(f"/cases/{case.json['id']}/votes").json
    assert [each["revision"] for each in votes["items"]] == [1, 2]
    assert votes["standing_approvals"] == 1


# Who may.


def test_an_agents_key_never_decides(agent: Caller, case: Answer) -> None:
    for verdict in Verdict:
        refused = agent.decide(case, verdict, reason="I am sure.")
        assert (refused.status, refused.problem) == (403, "person-required")
    # Not even one that would be refused for its form, or whose case is not there.
    assert agent.send("/cases/0/decisions", b"{").problem == "person-required"
    assert agent.read(case).etag == case.etag


@pytest.mark.parametrize("handle", ["operator", "admin", "auditor"])
def test_only_a_reviewer_decides(world: World, case: Answer, handle: str) -> None:
    refused = signed_in(world, handle).decide(case)

    assert (refused.status, refused.problem) == (403, "not-permitted")
    assert Vote.objects.count() == 0


def test_whoever_stands_behind_the_agent_does_not_approve_what_it_proposes(
    world: World, reviewer: Caller, agent: Caller, case: Answer
) -> None:
    Agent.objects.update(owner=world.member("reviewer"))

    refused = reviewer.decide(case)
    assert (refused.status, refused.problem) == (403, "self-approval")
    assert (Vote.objects.count(), agent.read(case).etag) == (0, case.etag)

    # Nor by way of the agent's key, or of a replay of somebody else's word.
    assert agent.decide(case).problem == "person-required"
    assert signed_in(world, "second_reviewer").decide(case).status == 200
    assert reviewer.decide(case).problem == "self-approval"


# What the tier asks for.


@pytest.mark.parametrize(
    ("said", "problem", "pointer"),
    [
        ({"typed_amount": "1,250.00"}, "reason-required", "/reason"),
        ({"reason": "Checked."}, "amount-mismatch", "/typed_amount"),
        ({"reason": "Checked.", "typed_amount": None}, "amount-mismatch", "/typed_amount"),
        ({"reason": "Checked.", "typed_amount": "1,250.01"}, "amount-mismatch", "/typed_amount"),
        ({"reason": "Checked.", "typed_amount": "125000"}, "amount-mismatch", "/typed_amount"),
        ({"reason": "Checked.", "typed_amount": "1250.000"}, "amount-mismatch", "/typed_amount"),
        ({"reason": "Checked.", "typed_amount": "1.250,00"}, "amount-mismatch", "/typed_amount"),
        ({"reason": "Checked.", "typed_amount": ""}, "amount-mismatch", "/typed_amount"),
        ({"reason": "Checked.", "typed_amount": "１２50.00"}, "invalid-request", "/typed_amount"),
        ({"reason": "Checked.", "typed_amount": "1_250.00"}, "invalid-request", "/typed_amount"),
        ({"reason": "Checked.", "typed_amount": "-1250.00"}, "invalid-request", "/typed_amount"),
        ({"reason": "Checked.", "typed_amount": " 1250.00 "}, "invalid-request", "/typed_amount"),
        ({"reason": "Checked.", "typed_amount": "1250.00\n"}, "invalid-request", "/typed_amount"),
        ({"reason": "Checked.", "typed_amount": 1250}, "invalid-request", "/typed_amount"),
        ({"reason": "Checked.", "typed_amount": "9" * 5000}, "invalid-request", "/typed_amount"),
    ],
)
def test_the_highest_tier_asks_for_a_reason_and_the_amount_as_it_stands(
    db: None, said: dict[str, Any], problem: str, pointer: str
) -> None:
    world = new_world(tier=3)
    case = by_key(world).propose()

    refused = signed_in(world, "reviewer").decide(case, **said)

    assert (refused.status, refused.problem, refused.pointers) == (422, problem, [pointer])
    assert (Vote.objects.count(), Operation.objects.count()) == (0, 0)


@pytest.mark.parametrize("typed", ["1,250.00", "1250.00", "1250"])
def test_the_amount_typed_as_shown_or_plainly_is_enough(db: None, typed: str) -> None:
    world = new_world(tier=3)
    case = by_key(world).propose()

    approved = signed_in(world, "reviewer").decide(case, reason="Checked.", typed_amount=typed)

    assert (approved.status, approved.json["state"]) == (200, "approved")


@pytest.mark.parametrize(
    ("word", "pointer"),
    [
        ({"verdict": "execute"}, "/verdict"),
        ({"verdict": "APPROVE"}, "/verdict"),
        ({"verdict": None}, "/verdict"),
        ({"digest": "0" * 63}, "/digest"),
        ({"digest": "A" * 64}, "/digest"),
        ({"digest": "0" * 63 + "\n"}, "/digest"),
        ({"reason": None}, "/reason"),
        ({"reason": "x" * 2001}, "/reason"),
        ({"reason_code": 1}, "/reason_code"),
        ({"actor": "somebody"}, "/actor"),
    ],
)
def test_a_word_that_is_not_of_its_form_is_refused(
    reviewer: Caller, case: Answer, word: dict[str, Any], pointer: str
) -> None:
    refused = reviewer.decide(case, **word)

    assert (refused.status, refused.problem, refused.pointers) == (422, "invalid-request", [pointer])


# What stands in the way.


def test_after_the_deadline_nothing_is_approved(world: World, agent: Caller, reviewer: Caller) -> None:
    row = case_in(world, CaseState.PENDING)
    case = answer_for(agent, row.pk)
    make_late(row)

    refused = reviewer.decide(case)

    assert (refused.status, refused.problem) == (409, "deadline-passed")
    assert Operation.objects.count() == 0


def test_while_a_finding_is_open_nothing_is_approved(world: World, agent: Caller, reviewer: Caller) -> None:
    row = case_in(world, CaseState.PENDING)
    open_finding(world, row)

    refused = reviewer.decide(answer_for(agent, row.pk))

    assert (refused.status, refused.problem) == (409, "disputed")


@pytest.mark.parametrize(
    ("state", "problem"),
    [
        (CaseState.EXECUTING, "in-progress"),
        (CaseState.UNKNOWN, "in-progress"),
        (CaseState.EXECUTED, "already-executed"),
    ],
)
def test_after_the_claim_a_person_learns_what_is_known_instead(
    world: World, agent: Caller, reviewer: Caller, state: CaseState, problem: str
) -> None:
    case = answer_for(agent, case_in(world, state).pk)

    for refused in (
        reviewer.decide(case, "revoke", reason="Stop!"),
        reviewer.withdraw(case),
        agent.withdraw(case),
    ):
        assert (refused.status, refused.problem) == (409, problem)
        assert refused.json["operation"] == case.json["operation"]
    assert Revision.objects.filter(case=case.json["id"]).count() == case.json["revision"]
