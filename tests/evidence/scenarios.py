"""The matrix: what is done, at which sinks, and how it has to end there."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from approvals.models import Case
from ledger.states import EnforcementClass
from tests.evidence import crashes, disorder, failures, faults, weakened
from tests.evidence.rows import CONTROL, Expected
from tests.evidence.scene import Scene
from tests.evidence.sinks import SINKS

DONE = Expected(1, "committed")
REFUSED = Expected(0, "failed_before_commit")
DONE_OR_NOT = Expected(1, "outcome_unknown", needs_person=True)
"""It happened, and this sink cannot tell."""
LOST_OR_NOT = Expected(0, "outcome_unknown", needs_person=True)
"""It did not happen, and nothing that can be asked proves that it cannot happen still."""
TWO = Expected(2, "")

_Classes = Mapping[EnforcementClass, Expected]


@dataclass(frozen=True, slots=True)
class Scenario:
    """One line of the matrix. ``act`` returns the case that is watched, at rest."""

    name: str
    act: Callable[[Scene], Case]
    expected: Mapping[str, Expected]
    restarts: bool = False
    """On a PostgreSQL of its own."""
    hears: bool = False
    """The sandbox sends events to a server of ours."""
    keyless: bool = False
    """At a sandbox that ignores idempotency keys."""
    schema: Callable[[str], str] | None = None
    """What is done to the own ledger's schema before it is installed."""

    @property
    def is_control(self) -> bool:
        return self.name.startswith(CONTROL)


def _at(classes: _Classes, sinks: Iterable[str] = SINKS) -> dict[str, Expected]:
    return {name: classes[SINKS[name].enforcement] for name in sinks}


def _classes(
    keyed: Expected,
    owned: Expected | None = None,
    natural: Expected | None = None,
    none: Expected | None = None,
) -> _Classes:
    """One outcome for all, or another where a class promises less."""
    return {
        EnforcementClass.PROVIDER_KEY: keyed,
        EnforcementClass.OWNED_WRITE: owned or keyed,
        EnforcementClass.NATURAL_REFERENCE: natural or keyed,
        EnforcementClass.NONE: none or keyed,
    }


EVERYWHERE = _classes(DONE)
AFTER_A_LOST_REQUEST = _classes(DONE, natural=LOST_OR_NOT, none=LOST_OR_NOT)
AFTER_A_LOST_ANSWER = _classes(DONE, none=DONE_OR_NOT)


def _crashes() -> list[Scenario]:
    return [
        Scenario(f"killed {name}", act, _at(classes))
        for name, act, classes in (
            ("before the operation record", crashes.before_the_record, EVERYWHERE),
            ("after the operation record", crashes.after_the_record, EVERYWHERE),
            ("before the conditional transition", crashes.before_the_transition, EVERYWHERE),
            ("after the conditional transition", crashes.after_the_transition, AFTER_A_LOST_REQUEST),
            ("before the request arrives", crashes.before_the_request_arrives, AFTER_A_LOST_REQUEST),
            ("after the effect", crashes.after_the_effect, AFTER_A_LOST_ANSWER),
            ("before the local confirmation", crashes.before_the_confirmation, AFTER_A_LOST_ANSWER),
            ("after the local confirmation", crashes.after_the_confirmation, EVERYWHERE),
        )
    ]


def _disorder() -> list[Scenario]:
    return [
        Scenario(name, act, _at(classes))
        for name, act, classes in (
            (
                "paused beyond the lease after the effect",
                crashes.paused_after_the_effect,
                AFTER_A_LOST_ANSWER,
            ),
            ("paused between last check and send", crashes.paused_before_the_send, AFTER_A_LOST_ANSWER),
            ("paused with the request on the wire", crashes.paused_on_the_wire, AFTER_A_LOST_ANSWER),
            ("the request is lost on the wire", faults.request_lost, AFTER_A_LOST_REQUEST),
            ("the answer is lost on the wire", faults.answer_lost, AFTER_A_LOST_ANSWER),
            ("the same message twice at once", disorder.twice_at_once, EVERYWHERE),
            ("the same message after it is final", disorder.again_when_final, EVERYWHERE),
            ("the same message after retention", disorder.again_after_retention, EVERYWHERE),
            ("message before the approval", disorder.message_before_approval, EVERYWHERE),
            ("record before claim", disorder.record_before_claim, EVERYWHERE),
            ("approve after withdraw", disorder.approve_after_withdraw, _classes(Expected(0, "withdrawn"))),
            ("step 2 before step 1", disorder.later_step_first, EVERYWHERE),
            ("the broker is away at the approval", failures.broker_away, EVERYWHERE),
            ("the broker loses every message", failures.messages_lost, EVERYWHERE),
        )
    ]


def _failures() -> list[Scenario]:
    serialization = [
        Scenario(f"{sqlstate} {where}", partial(failures.fails_once, point), _at(EVERYWHERE))
        for where, sqlstate, point in failures.POINTS
    ]
    restarts = [
        Scenario(
            f"PostgreSQL {words} between claim and recording",
            partial(failures.restarted, immediate=immediate),
            _at(EVERYWHERE),
            restarts=True,
        )
        for words, immediate in (("restarted", False), ("crashed", True))
    ]
    held = Scenario(
        "40001 behind another writer of the budget",
        failures.behind_another_writer,
        _at(EVERYWHERE, ("stripe_refunds", "owned_ledger", "supplier_invoices")),
    )
    return [*serialization, held, *restarts]


_AFTER_FAULT: Mapping[str, _Classes] = {
    "drop_before_commit": AFTER_A_LOST_REQUEST,
    "drop_after_commit": AFTER_A_LOST_ANSWER,
    "hang_before_commit": AFTER_A_LOST_ANSWER,
    "hang_after_commit": AFTER_A_LOST_ANSWER,
    "error_before_commit": _classes(LOST_OR_NOT),
    "decline": _classes(REFUSED),
    "conflict": _classes(DONE, natural=REFUSED),  # a service without keys means the invoice when it says 409
}


def _faults() -> list[Scenario]:
    names = list(dict.fromkeys(fault for entry in SINKS.values() for fault in entry.faults))
    return [
        Scenario(
            f"fault {name}",
            partial(faults.struck_by, name),
            _at(_AFTER_FAULT.get(name, EVERYWHERE), [sink for sink in SINKS if name in SINKS[sink].faults]),
            hears=name.startswith("event_"),
        )
        for name in names
    ]


def _controls() -> list[Scenario]:
    """What holds each promise is taken away; and, beside it, the same scene with the protection in place."""
    late = crashes.paused_on_the_wire
    return [
        Scenario(
            f"{CONTROL}the sink ignores the key",
            late,
            dict.fromkeys(("stripe_refunds", "http_action"), TWO),
            keyless=True,
        ),
        Scenario(
            "the own ledger without its key: its fence holds",
            late,
            {"owned_ledger": DONE},
            schema=weakened.keyless,
        ),
        Scenario(
            f"{CONTROL}the fence is ignored, too", late, {"owned_ledger": TWO}, schema=weakened.fenceless
        ),
        Scenario(
            "a stale refusal while the successor's call is on the wire",
            weakened.stale_refusal,
            {"stripe_refunds": DONE},
        ),
        Scenario(
            f"{CONTROL}recorded without the token condition",
            weakened.stale_refusal_believed,
            {"stripe_refunds": TWO},
        ),
    ]


SCENARIOS = {each.name: each for each in (*_crashes(), *_disorder(), *_failures(), *_faults(), *_controls())}
ROWS = [(scenario.name, sink) for scenario in SCENARIOS.values() for sink in scenario.expected]
