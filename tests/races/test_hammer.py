"""Four claimers on a crowded table, beside one who approves and one who withdraws: all drained, none twice.

``HAMMER=10000`` makes it ten thousand operations; that takes minutes.
"""

import logging
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

import pytest
from django.db import connection

from approvals import cases, decisions
from approvals.decisions import Word
from approvals.errors import Illegal, VersionConflict
from approvals.models import Case, Revision
from approvals.states import Act, Verdict
from approvals.tags import tag_of
from ledger.claims import Grant
from ledger.models import Attempt, Operation
from ledger.states import AttemptOutcome, ControlEventKind
from tests.races.rivals import Rival
from tests.seeding import Named, cases_like
from tests.worlds import LEASE, World, approved, events, report, tag
from workers import claims, outcomes

CASES = int(os.environ.get("HAMMER") or 300)
APPROVED_BEFORE = CASES * 2 // 3
HOT = 5
HOT_SHARE = 0.4
CLAIMERS = 4
WITHDRAWN = CASES // 5
OUTCOMES = [AttemptOutcome.COMMITTED] * 4 + [AttemptOutcome.REFUSED]
PATIENCE = 60 + CASES / 10
"""Seconds; many times what it takes."""
TOGETHER = 8 if CASES < 1000 else 50
"""What a worker claims and records at once."""


class Hammer:
    """Everybody at once, until nothing is due any more."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._all_approved = threading.Event()
        self._granted: Counter[int] = Counter()
        self._guard = threading.Lock()
        self._agent, self._reviewer = world.agent, world.reviewer
        picker = random.Random(1842)
        names = [self._name(number, picker) for number in range(CASES)]
        model = approved(world, "model", target="order:model")
        before = cases_like(model, names[:APPROVED_BEFORE], approved=True)
        self._to_approve = cases_like(model, names[APPROVED_BEFORE:], approved=False)
        self.to_withdraw = picker.sample([*before, *self._to_approve], WITHDRAWN)

    def _name(self, number: int, picker: random.Random) -> Named:
        hot = picker.random() < HOT_SHARE
        return Named(str(number), f"order:hot-{picker.randrange(HOT)}" if hot else f"order:{number}")

    def run(self) -> Counter[int]:
        """Answers how often each operation was granted; raises what anybody raised."""
        acts: list[Callable[[], object]] = [self._approve_the_rest, self._withdraw]
        acts += [lambda name=f"worker-{number}": self._claim(name) for number in range(CLAIMERS)]  # type: ignore[misc]
        rivals = [Rival(act) for act in acts]
        for rival in rivals:
            rival.start()
        errors = [error for error in (rival.join(patience=PATIENCE).error for rival in rivals) if error]
        assert errors == []
        return self._granted

    def _approve_the_rest(self) -> None:
        try:
            for case_id in self._to_approve:
                case = Case.objects.select_related("proposal").get(pk=case_id)
                word = Word(Verdict.APPROVE, case.proposal.digest)
                with suppress(VersionConflict, Illegal):  # it was withdrawn first
                    decisions.decide(actor=self._reviewer, case_id=case_id, seen=tag_of(case), word=word)
        finally:
            self._all_approved.set()

    def _withdraw(self) -> None:
        for case_id in self.to_withdraw:
            with suppress(VersionConflict, Illegal):  # it was claimed first, or in between
                cases.withdraw(actor=self._agent, case_id=case_id, seen=tag(Case(pk=case_id)))

    def _claim(self, worker: str) -> None:
        picker, after = random.Random(worker), 0
        while True:
            nothing_new = self._all_approved.is_set()
            claimed = claims.claim(worker=worker, most=TOGETHER, after=after, lease=LEASE)
            grants, after = claimed.grants, claimed.go_on
            if grants:
                self._carry_out(grants, worker, picker)
            elif after == 0 and nothing_new and not self._anything_left():
                return

    def _carry_out(self, grants: list[Grant], worker: str, picker: random.Random) -> None:
        with self._guard:
            self._granted.update(grant.order_id for grant in grants)
        said = [report(grant, picker.choice(OUTCOMES), worker=worker) for grant in grants]
        outcomes.record(said)

    def _anything_left(self) -> bool:
        time.sleep(0.005)  # a case somebody was deciding on is put off for a moment
        return Operation.objects.filter(state="not_started").exists()


@pytest.mark.timeout(90 if CASES < 1000 else 3600)
def test_everything_is_drained_and_nothing_is_granted_twice(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    hammer = Hammer(world)
    deadlocks = deadlocks_so_far()

    granted = hammer.run()

    assert set(granted.values()) == {1}
    assert deadlocks_so_far() == deadlocks
    assert caplog.records == []  # a recording that a constraint refuses is caught, and said
    states = Counter(Operation.objects.values_list("state", flat=True))
    assert set(states) == {"committed", "failed_before_commit"}
    assert Attempt.objects.count() == len(granted)
    assert Attempt.objects.filter(ended_at=None).count() == 0
    by_case = Counter(Case.objects.values_list("state", flat=True))
    assert by_case.total() == CASES + 1  # and the model
    assert set(by_case) == {"executed", "failed", "withdrawn"}
    assert Revision.objects.filter(act=Act.CLAIMED).count() == len(granted)
    assert by_case["executed"] == states["committed"]
    assert events(ControlEventKind.FENCED_WRITE, ControlEventKind.REFUSED_CLAIM) == []


def deadlocks_so_far() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_clear_snapshot()")
        cursor.execute("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
        (count,) = cursor.fetchone()
    return int(count)
