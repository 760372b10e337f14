"""The ways every call can be wrong: method, person, state, revision, organisation. Each writes nothing."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from approvals.models import Case, Proposal, Revision, Vote
from approvals.states import CaseState
from ledger.models import Operation
from tests.api.conftest import REFUND, Answer, Caller, by_key, refund, signed_in, with_key
from tests.worlds import World, case_in, current, tag


@dataclass(frozen=True)
class Call:
    """One call of the interface: how it is made rightly, by whom, and from which state."""

    method: str
    path: str
    by: str
    body: Callable[[Case], Any] = lambda _case: None
    state: CaseState = CaseState.PENDING
    wrong_states: tuple[CaseState, ...] = ()
    wrong_callers: tuple[str, ...] = ()
    success: int = 200

    def __str__(self) -> str:
        return f"{self.method} {self.path}"

    @property
    def acts_on_a_revision(self) -> bool:
        """Whether If-Match is asked for."""
        return self.method == "post" and "{id}" in self.path


def _word(verdict: str) -> Callable[[Case], Any]:
    return lambda case: {"verdict": verdict, "digest": case.proposal.digest, "reason": "Because."}


CLAIMED = (CaseState.EXECUTING, CaseState.EXECUTED, CaseState.UNKNOWN)
NOT_REVIEWERS = ("agent", "operator", "admin", "auditor")


def _decision(verdict: str, state: CaseState, *wrong: CaseState) -> Call:
    path = "/cases/{id}/decisions"
    return Call("post", path, "reviewer", _word(verdict), state, (*wrong, *CLAIMED), NOT_REVIEWERS)


PENDING, RETURNED, HELD, APPROVED = CaseState.PENDING, CaseState.RETURNED, CaseState.HELD, CaseState.APPROVED
REJECTED, WITHDRAWN, EXPIRED, FAILED = (
    CaseState.REJECTED,
    CaseState.WITHDRAWN,
    CaseState.EXPIRED,
    CaseState.FAILED,
)

ACTS = [
    _decision("approve", PENDING, RETURNED, HELD, APPROVED, REJECTED, WITHDRAWN, EXPIRED, FAILED),
    _decision("reject", PENDING, APPROVED, REJECTED, WITHDRAWN, EXPIRED, FAILED),
    _decision("request_changes", PENDING, RETURNED, HELD, APPROVED, REJECTED, WITHDRAWN, EXPIRED, FAILED),
    _decision("hold", PENDING, RETURNED, HELD, APPROVED, REJECTED, WITHDRAWN, EXPIRED, FAILED),
    _decision("release", HELD, PENDING, RETURNED, APPROVED, REJECTED, WITHDRAWN, EXPIRED, FAILED),
    _decision("revoke", APPROVED, PENDING, RETURNED, HELD, REJECTED, WITHDRAWN, EXPIRED, FAILED),
    _decision("reopen", REJECTED, PENDING, RETURNED, HELD, APPROVED, WITHDRAWN, EXPIRED, FAILED),
    Call(
        "post",
        "/cases/{id}/revisions",
        "agent",
        lambda _case: {"parameters": refund(amount_minor=99)},
        PENDING,
        (HELD, APPROVED, REJECTED, *CLAIMED),
        ("reviewer", "operator", "admin", "auditor"),
        201,
    ),
    Call(
        "post",
        "/cases/{id}/withdrawal",
        "agent",
        lambda _case: {"reason": "Found the parcel."},
        PENDING,
        (REJECTED, WITHDRAWN, EXPIRED, *CLAIMED),
        ("operator", "admin", "auditor"),
    ),
]
READS = [
    Call("get", "/cases/{id}", "agent"),
    Call("get", "/cases/{id}/revisions", "agent"),
    Call("get", "/cases/{id}/votes", "agent"),
    Call("get", "/operations/{key}", "agent", state=APPROVED),
]
LISTS = [
    Call("get", "/cases", "agent"),
    Call("get", "/operations", "agent"),
    Call("get", "/tools", "agent"),
    Call("get", "/agents/me", "agent"),
    Call("get", "/resources/order:88213", "agent"),
]
PROPOSE = Call("post", "/cases", "agent", lambda _case: {**REFUND, "reference": "1843"}, success=201)


def make(call: Call, caller: Caller, case: Case, if_match: str | None = None) -> Answer:
    """Makes the call about the case as it is now."""
    operation = Operation.objects.filter(order__subject=case.pk).select_related("order").last()
    address = call.path.format(id=case.pk, key=operation.order.key if operation else "0" * 40)
    if call.method == "get":
        return caller.get(address)
    return caller.post(address, call.body(current(case)), if_match=if_match or str(tag(case)))


def callers(world: World, handle: str) -> Caller:
    return by_key(world) if handle == "agent" else signed_in(world, handle)


def rows() -> tuple[int, ...]:
    """How much has been written."""
    return tuple(model.objects.count() for model in (Case, Revision, Proposal, Vote, Operation))


@pytest.mark.parametrize("call", [*ACTS, *READS, *LISTS, PROPOSE], ids=str)
def test_it_works(world: World, call: Call) -> None:
    case = case_in(world, call.state)

    answer = make(call, callers(world, call.by), case)

    assert answer.status == call.success, answer.json


METHODS: dict[str, set[str]] = {}
for each in (*ACTS, *READS, *LISTS, PROPOSE):
    METHODS.setdefault(each.path, set()).add(each.method)


@pytest.mark.parametrize("path", METHODS)
def test_a_wrong_method_is_refused_and_the_right_ones_named(world: World, path: str) -> None:
    case = case_in(world, APPROVED)
    operation = Operation.objects.select_related("order").get()
    before = rows()

    for method in {"put", "patch", "delete", "options", "trace", "get", "post"} - METHODS[path]:
        refused = by_key(world).any(method, path.format(id=case.pk, key=operation.order.key))
        assert (method, refused.status, refused.problem) == (method, 405, "method-not-allowed")
        named = {each.strip().lower() for each in refused.headers["Allow"].split(",")}
        assert named - {"head"} == METHODS[path]
    assert rows() == before


@pytest.mark.parametrize("path", sorted({call.path for call in [*READS, *LISTS]}))
def test_head_is_get_without_the_body(world: World, path: str) -> None:
    case = case_in(world, APPROVED)
    operation = Operation.objects.select_related("order").get()

    answer = by_key(world).any("head", path.format(id=case.pk, key=operation.order.key))

    assert (answer.status, answer.response.content) == (200, b"")


@pytest.mark.parametrize("call", ACTS, ids=str)
def test_a_wrong_person_is_refused(world: World, call: Call) -> None:
    case = case_in(world, call.state)
    before = rows()

    for handle in call.wrong_callers:
        refused = make(call, callers(world, handle), case)
        assert (handle, refused.status) == (handle, 403)
        assert refused.problem == ("person-required" if handle == "agent" else "not-permitted")
    assert rows() == before


def test_nobody_is_refused_first_of_all(world: World) -> None:
    case = case_in(world, APPROVED)
    before = rows()

    for call in (*ACTS, *READS, *LISTS, PROPOSE):
        assert make(call, with_key("x"), case).problem == "unauthenticated"
        assert with_key("x").send(call.path.format(id=0, key="0" * 40), b"{", "text/plain").status == 401
    assert rows() == before


@pytest.mark.parametrize("state", CaseState)
def test_a_wrong_state_is_refused_by_its_name(world: World, state: CaseState) -> None:
    case = case_in(world, state)
    before = rows()

    for call in [call for call in ACTS if state in call.wrong_states]:
        refused = make(call, callers(world, call.by), case)
        assert (str(call), refused.status) == (str(call), 409)
        assert refused.problem in {"state-forbids", "already-decided", "in-progress", "already-executed"}
        assert (refused.json["state"], refused.json["etag"]) == (state, str(tag(case)))
    assert rows() == before


@pytest.mark.parametrize("call", ACTS, ids=str)
def test_a_stale_revision_is_refused(world: World, call: Call) -> None:
    case = case_in(world, call.state)
    before = rows()
    stale = f'"{case.revision + 1}-{case.proposal.digest[:8]}"'

    refused = make(call, callers(world, call.by), case, if_match=stale)

    assert (refused.status, refused.problem) == (412, "version-conflict")
    assert refused.json["etag"] == str(tag(case))
    assert rows() == before


@pytest.mark.parametrize("call", [*ACTS, *READS], ids=str)
def test_another_organisations_is_not_told_from_what_is_not_there(
    world: World, elsewhere: World, call: Call
) -> None:
    case = case_in(world, call.state)
    case_in(elsewhere, call.state)
    before = rows()
    caller = callers(elsewhere, call.by)
    absent = call.path.format(id=2**40, key="0" * 40)

    theirs = make(call, caller, case)
    nobodys = (
        caller.get(absent)
        if call.method == "get"
        else caller.post(absent, call.body(case), if_match=str(tag(case)))
    )

    assert (theirs.status, theirs.problem) == (404, "not-found")
    assert theirs.response.content == nobodys.response.content
    assert dict(theirs.headers) == dict(nobodys.headers)
    assert rows() == before


@pytest.mark.parametrize("call", ACTS, ids=str)
def test_who_may_not_know_of_the_case_is_not_asked_for_its_revision(
    world: World, elsewhere: World, call: Call
) -> None:
    case = case_in(world, call.state)

    refused = callers(elsewhere, call.by).send(call.path.format(id=case.pk), b"{", "text/plain")

    assert refused.status == 404


@pytest.mark.parametrize("call", LISTS, ids=str)
def test_a_list_shows_its_own_organisation_only(world: World, elsewhere: World, call: Call) -> None:
    case_in(world, CaseState.EXECUTED, "secret-1842")

    for caller in (by_key(elsewhere), signed_in(elsewhere, "auditor")):
        answer = caller.get(call.path)
        assert "secret-1842" not in answer.response.content.decode()
        if answer.status == 200 and call.path in ("/cases", "/operations"):
            assert answer.json["items"] == []
    assert by_key(elsewhere).get("/resources/order:88213").json == {
        "name": "order:88213",
        "version": 0,
        "holder": None,
    }


NOWHERE = [
    "/cases/x",
    "/cases/-1",
    "/cases/1.0",
    "/cases/0x1",
    "/cases/%D9%A1",
    "/cases/" + "9" * 30,
    "/cases/" + "9" * 5000,
    "/cases/1/",
    "/cases/1%00",
    "/cases/1/votes/1",
    "/operations/x",
    "/operations/" + "0" * 41,
    "/operations/" + "A" * 40,
    "/operations/" + "0" * 40 + "%0A",
    "/resources/a%00b",
    "/resources/",
    "/nothing",
    "/api/v2/cases",
    "/api/",
]


def test_an_address_of_nothing_is_a_problem_document_too(agent: Caller) -> None:
    for path in NOWHERE:
        refused = agent.get(path)
        assert (path, refused.status, refused.problem) == (path, 404, "not-found")
