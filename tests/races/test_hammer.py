"""Four claimers on a crowded table, beside one who approves and one who withdraws: all drained, none twice."""

import random
import threading
import time
from collections import Counter
from collections.abc import Callable

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
from tests.races.rivals import PATIENCE, Rival
from tests.worlds import LEASE, World, events, proposed, report, tag
from workers import claims, outcomes

CASES = 300
APPROVED_BEFORE = 200
HOT = 5
HOT_SHARE = 0.4
CLAIMERS = 4
WITHDRAWN = 60
OUTCOMES = [AttemptOutcome.COMMITTED] * 4 + [AttemptOutcome.REFUSED]


class Hammer:
    """Everybody at once, until nothing is due any more."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._all_approved = threading.Event()
        self._granted: Counter[int] = Counter()
        self._guard = threading.Lock()
        self._agent, self._reviewer = world.agent, world.reviewer
        picker = random.Random(1842)
        self.cases = [self._proposed(number, picker) for number in range(CASES)]
        self._approve(self.cases[:APPROVED_BEFORE])
        self.to_withdraw = picker.sample(self.cases, WITHDRAWN)

    def _proposed(self, number: int, picker: random.Random) -> Case:
        hot = picker.random() < HOT_SHARE
        target = f"order:hot-{picker.randrange(HOT)}" if hot else f"order:{number}"
        return proposed(self._world, str(number), target=target)

    def run(self) -> Counter[int]:
        """Answers how often each operation was granted; raises what anybody raised."""
        acts: list[Callable[[], object]] = [self._approve_the_rest, self._withdraw]
        acts += [lambda name=f"worker-{number}": self._claim(name) for number in range(CLAIMERS)]  # type: ignore[misc]
        rivals = [Rival(act) for act in acts]
        for rival in rivals:
            rival.start()
        errors = [error for error in (rival.join(patience=6 * PATIENCE).error for rival in rivals) if error]
        assert errors == []
        return self._granted

    def _approve_the_rest(self) -> None:
        try:
            self._approve(self.cases[APPROVED_BEFORE:])
        finally:
            self._all_approved.set()

    def _approve(self, waiting: list[Case]) -> None:
        for case in waiting:
            word = Word(Verdict.APPROVE, case.proposal.digest)
            try:
                decisions.decide(actor=self._reviewer, case_id=case.pk, seen=tag_of(case), word=word)
            except (VersionConflict, Illegal):  # it was withdrawn first
                continue

    def _withdraw(self) -> None:
        for case in self.to_withdraw:
            try:
                cases.withdraw(actor=self._agent, case_id=case.pk, seen=tag(case))
            except (VersionConflict, Illegal):  # it was claimed first, or in between
                continue

    def _claim(self, worker: str) -> None:
        picker, after = random.Random(worker), 0
        while True:
            nothing_new = self._all_approved.is_set()
            claimed = claims.claim(worker=worker, most=8, after=after, lease=LEASE)
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


def test_everything_is_drained_and_nothing_is_granted_twice(world: World) -> None:
    hammer = Hammer(world)
    deadlocks = deadlocks_so_far()

    granted = hammer.run()

    assert set(granted.values()) == {1}
    assert deadlocks_so_far() == deadlocks
    states = Counter(Operation.objects.values_list("state", flat=True))
    assert set(states) == {"committed", "failed_before_commit"}
    assert Attempt.objects.count() == len(granted)
    assert Attempt.objects.filter(ended_at=None).count() == 0
    by_case = Counter(Case.objects.values_list("state", flat=True))
    assert by_case.total() == CASES
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
