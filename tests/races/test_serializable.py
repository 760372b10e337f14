"""A serialization failure may come at the first statement, at the last or at COMMIT: the whole is done again."""

import threading
from collections.abc import Callable

import pytest
from django.db import connection, transaction

from ledger import budgets, serializable
from ledger.models import BudgetPeriod
from ledger.serializable import Exhausted
from ledger.states import BudgetSpan
from tests.races.rivals import PATIENCE, Holder, Rival, race
from tests.worlds import World

SERIALIZABLE = "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE"


@pytest.fixture
def periods(world: World) -> tuple[int, int]:
    made = [
        budgets.make(
            tenant_id=world.tenant.pk, span=span, currency="EUR", limit_minor=100, by="person:Demo"
        ).pk
        for span in (BudgetSpan.DAY, BudgetSpan.MONTH)
    ]
    first, second = sorted(room.period_id for room in budgets.rooms(made))
    return first, second


def total() -> int:
    return sum(BudgetPeriod.objects.values_list("reserved_minor", flat=True))


def add(period: int, minor: int = 1) -> None:
    row = BudgetPeriod.objects.get(pk=period)
    BudgetPeriod.objects.filter(pk=period).update(reserved_minor=row.reserved_minor + minor)


class Tries:
    """What a retried work has gone through."""

    def __init__(self) -> None:
        self.begun = 0
        self.retried: list[str] = []

    def run(self, work: Callable[[int], None]) -> None:
        def attempt() -> None:
            self.begun += 1
            work(self.begun)

        serializable.run(attempt, retried=self.retried.append)


def test_the_isolation_is_what_it_says(world: World) -> None:
    def level() -> str:
        with connection.cursor() as cursor:
            cursor.execute("SHOW transaction_isolation")
            shown: str = cursor.fetchone()[0]
        return shown

    assert serializable.run(level, retried=print) == "serializable"


def test_a_failure_at_the_first_statement_is_retried_from_the_beginning(periods: tuple[int, int]) -> None:
    first, _second = periods
    tries = Tries()
    won, lost = race(
        winner=lambda: BudgetPeriod.objects.filter(pk=first).update(reserved_minor=5),
        loser=lambda: tries.run(lambda _n: _raise_by_one(first)),
    )
    assert (won.error, lost.error) == (None, None)
    assert (tries.begun, tries.retried) == (2, ["40001"])
    assert total() == 6


def _raise_by_one(period: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE ledger_budgetperiod SET reserved_minor = reserved_minor + 1 WHERE id = %s", [period]
        )


def test_a_failure_at_the_last_statement_is_retried_from_the_beginning(periods: tuple[int, int]) -> None:
    first, second = periods
    tries = Tries()

    def work(n: int) -> None:
        seen = total()
        if n == 1:  # somebody who had read before us writes and commits between our read and our write
            rival = Rival(lambda: _serializable(lambda: add(second, total() + 1)))
            rival.start()
            assert rival.join().error is None
        BudgetPeriod.objects.filter(pk=second).update(reserved_minor=seen + 10)

    tries.run(work)
    assert (tries.begun, tries.retried) == (2, ["40001"])
    assert BudgetPeriod.objects.get(pk=first).reserved_minor == 0
    assert BudgetPeriod.objects.get(pk=second).reserved_minor == 11  # the retry has seen what the rival wrote


def _serializable(act: Callable[[], None]) -> None:
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute(SERIALIZABLE)
        act()


def test_a_failure_at_commit_is_retried_from_the_beginning(periods: tuple[int, int]) -> None:
    first, second = periods
    tries = Tries()
    may_write = threading.Event()

    def reads_then_writes() -> None:
        with connection.cursor() as cursor:
            cursor.execute(SERIALIZABLE)
        total()
        rival_has_read.set()
        assert may_write.wait(PATIENCE)
        add(second)

    rival_has_read = threading.Event()
    rival = Holder(reads_then_writes)

    def work(n: int) -> None:
        if n == 1:
            threading.Thread(target=rival.start, daemon=True).start()
            assert rival_has_read.wait(PATIENCE)
        total()
        add(first)
        if n == 1:  # the rival has read what we write, and now writes what we have read: one of us must go
            may_write.set()
            assert rival.let_go().error is None

    tries.run(work)
    assert (tries.begun, tries.retried) == (2, ["40001"])
    assert total() == 2


def test_a_deadlock_is_retried_from_the_beginning(periods: tuple[int, int]) -> None:
    first, second = periods
    tries = Tries()
    ours, theirs = threading.Event(), threading.Event()

    def rival() -> None:
        with transaction.atomic():
            with connection.cursor() as cursor:
                cursor.execute("SET LOCAL deadlock_timeout = '30s'")  # so that it is not this one that goes
            _raise_by_one(second)
            theirs.set()
            assert ours.wait(PATIENCE)
            _raise_by_one(first)

    def work(n: int) -> None:
        if n == 1:
            with connection.cursor() as cursor:
                cursor.execute("SET LOCAL deadlock_timeout = '20ms'")
        _raise_by_one(first)
        if n == 1:
            ours.set()
            assert theirs.wait(PATIENCE)
        _raise_by_one(second)

    other = Rival(rival)
    other.start()
    tries.run(work)
    assert other.join().error is None
    assert tries.begun >= 2
    assert set(tries.retried) <= {"40P01", "40001"}
    assert tries.retried[0] == "40P01"
    assert total() == 4


def test_retries_end_and_nothing_of_any_try_is_left(periods: tuple[int, int]) -> None:
    first, second = periods
    tries = Tries()

    def work(n: int) -> None:
        total()
        rival = Rival(lambda: _raise_by_one(second))
        rival.start()
        assert rival.join().error is None
        _raise_by_one(second)
        add(first)

    with pytest.raises(Exhausted):
        tries.run(work)
    assert tries.begun == len(tries.retried) == serializable.MOST_TRIES
    assert BudgetPeriod.objects.get(pk=first).reserved_minor == 0


def test_another_error_is_not_retried(world: World) -> None:
    tries = Tries()

    def work(_n: int) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        tries.run(work)
    assert (tries.begun, tries.retried) == (1, [])
