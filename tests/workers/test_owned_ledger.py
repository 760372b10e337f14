"""The schema we ship for a database of one's own, spoken to by its connector: applied, replayed, refused, fenced."""

import dataclasses
import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from ledger.claims import Grant
from ledger.states import EnforcementClass, OperationState
from tests.databases import database_url
from workers.connectors import owned_ledger
from workers.connectors.answers import Absent, Differs, Fenced, NotSent, Receipt, Refused, SinkAway, Uncertain
from workers.connectors.owned_ledger import OwnedLedger

SECONDS = 60.0


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    name = f"owned_{uuid4().hex[:8]}"
    with psycopg.connect(database_url("postgres"), autocommit=True) as server:
        server.execute(f'CREATE DATABASE "{name}"')
        with psycopg.connect(database_url(name)) as own:
            own.execute(owned_ledger.SCHEMA.read_bytes())
            own.execute(owned_ledger.SCHEMA.read_bytes())  # installing it twice changes nothing
        yield database_url(name)
        server.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


@pytest.fixture
def ledger(url: str) -> Iterator[OwnedLedger]:
    ledger = OwnedLedger(url)
    yield ledger
    ledger.close()


def grant(*, amount: Any = 100, token: int = 481, **changes: Any) -> Grant:
    """A grant on a resource of its own, unless the changes name one."""
    made = Grant(
        order_id=1,
        tenant_id=UUID(int=1),
        key=uuid4().hex,
        fingerprint="f" * 64,
        subject=1,
        body=json.dumps({"order": "order:1", "amount": amount, "currency": "EUR"}),
        tool="ledger_refund",
        connector="owned_ledger",
        enforcement=EnforcementClass.OWNED_WRITE,
        resource=f"order:{uuid4().hex}",
        number=1,
        token=token,
        state=OperationState.STARTED,
        maybe_sent=False,
        may_send=True,
        key_window_left=None,
        answer_stored=False,
        in_progress_count=0,
        sink_settings={},
        settle_time=1.0,
        since_sent=None,
    )
    return dataclasses.replace(made, **changes)


def changes_of(url: str, key: str) -> int:
    with psycopg.connect(url) as own:
        row = own.execute("SELECT count(*) FROM countersign.refund WHERE key = %s", [key]).fetchone()
    assert row is not None
    return int(row[0])


def test_the_same_order_again_is_answered_from_the_stored_result(ledger: OwnedLedger, url: str) -> None:
    order = grant()
    first, again = (ledger.send(order, timeout=SECONDS) for _ in range(2))
    assert isinstance(first, Receipt)
    assert first == again
    assert changes_of(url, order.key) == 1


def test_a_token_below_the_highest_seen_is_fenced_and_changes_nothing(ledger: OwnedLedger, url: str) -> None:
    stale = grant(token=481)
    assert isinstance(ledger.look_up(dataclasses.replace(stale, token=482), timeout=SECONDS), Absent)
    assert isinstance(ledger.send(stale, timeout=SECONDS), Fenced)
    assert isinstance(ledger.look_up(stale, timeout=SECONDS), Fenced)
    assert changes_of(url, stale.key) == 0


def test_a_fence_is_of_one_resource_and_one_organisation(ledger: OwnedLedger) -> None:
    high = grant(token=900)
    assert isinstance(ledger.send(high, timeout=SECONDS), Receipt)
    other = grant(token=1, resource=high.resource, tenant_id=UUID(int=2))
    assert isinstance(ledger.send(other, timeout=SECONDS), Receipt)


def test_a_key_that_stands_for_other_content_is_a_conflict_and_never_a_receipt(
    ledger: OwnedLedger, url: str
) -> None:
    order = grant()
    made = ledger.send(order, timeout=SECONDS)
    other = dataclasses.replace(order, token=482, fingerprint="0" * 64)
    answer, found = ledger.send(other, timeout=SECONDS), ledger.look_up(other, timeout=SECONDS)
    assert isinstance(answer, Uncertain)
    assert answer.stored
    assert isinstance(found, Differs)
    assert isinstance(made, Receipt)
    assert found.receipt.reference == made.reference
    assert changes_of(url, order.key) == 1


def test_effects_are_listed_by_time_a_page_at_a_time(
    ledger: OwnedLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owned_ledger, "_PAGE", 2)
    began = datetime.now(UTC) - timedelta(seconds=1)
    orders = [grant() for _ in range(5)]
    for order in orders:
        ledger.send(order, timeout=SECONDS)
    listed, cursor = [], None
    while True:
        page = ledger.list_effects({}, since=began, until=datetime.now(UTC), cursor=cursor, timeout=SECONDS)
        listed += [each.key for each in page.effects]
        if (cursor := page.cursor) is None:
            break
    assert [key for key in listed if key in {order.key for order in orders}] == [
        order.key for order in orders
    ]
    assert len(listed) == len(set(listed))


def money_listed(ledger: OwnedLedger, key: str) -> list[tuple[int | None, str | None]]:
    now = datetime.now(UTC)
    page = ledger.list_effects(
        {}, since=now - timedelta(hours=1), until=now + timedelta(hours=1), cursor=None, timeout=SECONDS
    )
    return [(each.amount_minor, each.currency) for each in page.effects if each.key == key]


def test_an_effect_is_listed_with_the_money_of_its_own_row_and_not_of_the_request(
    ledger: OwnedLedger, url: str
) -> None:
    order = grant(amount=1200)
    ledger.send(order, timeout=SECONDS)
    assert money_listed(ledger, order.key) == [(1200, "EUR")]
    with psycopg.connect(url) as own:
        own.execute("UPDATE countersign.refund SET amount_minor = 1300 WHERE key = %s", [order.key])
    assert money_listed(ledger, order.key) == [(1300, "EUR")]
    with psycopg.connect(url) as own:  # a change that moves no money has no row of it
        own.execute("DELETE FROM countersign.refund WHERE key = %s", [order.key])
    assert money_listed(ledger, order.key) == [(None, None)]


def test_a_schema_that_told_no_money_is_still_listed_and_tells_it_once_it_is_installed_anew(
    ledger: OwnedLedger, url: str
) -> None:
    order = grant()
    ledger.send(order, timeout=SECONDS)
    with psycopg.connect(url) as own:
        own.execute(BEFORE_MONEY)
    assert money_listed(ledger, order.key) == [(None, None)]
    with psycopg.connect(url) as own:
        own.execute(owned_ledger.SCHEMA.read_bytes())
    assert money_listed(ledger, order.key) == [(100, "EUR")]


BEFORE_MONEY = """
DROP FUNCTION countersign.effects(timestamptz, timestamptz, text, integer);
CREATE FUNCTION countersign.effects(since timestamptz, until timestamptz, after text, most integer)
RETURNS TABLE (key text, reference text, resource text, happened_at timestamptz) LANGUAGE sql STABLE AS $$
    SELECT e.key, e.reference, e.resource, e.happened_at FROM countersign.effect e
    WHERE e.happened_at BETWEEN since AND until ORDER BY e.happened_at, e.key LIMIT most
$$;
"""


def test_a_database_that_calls_itself_otherwise_is_left_alone(ledger: OwnedLedger, url: str) -> None:
    with psycopg.connect(url) as own:
        row = own.execute("SELECT countersign.identity()").fetchone()
    assert row is not None
    here, elsewhere = {"database": row[0]}, {"database": str(uuid4())}
    known, astray, unnamed = grant(sink_settings=here), grant(sink_settings=elsewhere), grant()
    answers = ledger.send_many([known, astray, unnamed], timeout=SECONDS)
    assert [type(each) for each in answers] == [Receipt, NotSent, Receipt]
    assert isinstance(answers[1], NotSent)
    assert elsewhere["database"] in answers[1].note
    assert changes_of(url, astray.key) == 0
    found = ledger.look_up(astray, timeout=SECONDS)
    assert isinstance(found, Uncertain)  # not absent: it may have happened where the tool was published for
    assert isinstance(ledger.look_up(known, timeout=SECONDS), Receipt)
    now = datetime.now(UTC)
    with pytest.raises(SinkAway):
        ledger.list_effects(elsewhere, since=now, until=now, cursor=None, timeout=SECONDS)
    with pytest.raises(SinkAway):
        ledger.fences(elsewhere, after="", most=1, timeout=SECONDS)
    assert here["database"] in ledger.identity(here)


def test_what_a_database_calls_itself_is_asked_once_for_a_call_however_many_orders_it_has() -> None:
    nowhere = OwnedLedger("postgresql://nobody@127.0.0.1:1/nowhere")
    names = [str(uuid4()), str(uuid4())]
    orders = [grant(sink_settings={"database": name}) for name in names * 10]
    began = time.monotonic()
    try:
        answers = nowhere.send_many(orders, timeout=0.3)
    finally:
        nowhere.close()
    assert [type(each) for each in answers] == [NotSent] * 20
    assert time.monotonic() - began < 2.0  # and not 0.3 s for each of the twenty


def test_nothing_leaves_once_the_time_for_the_call_is_over(ledger: OwnedLedger, url: str) -> None:
    assert isinstance(ledger.send(grant(), timeout=SECONDS), Receipt)  # the connection is there
    orders = [grant() for _ in range(20)]
    assert [type(ledger.send(order, timeout=0.0)) for order in orders] == [NotSent] * 20
    assert sum(changes_of(url, order.key) for order in orders) == 0


def test_fences_are_told_by_name_a_page_at_a_time(ledger: OwnedLedger) -> None:
    orders = [grant(token=token, tenant_id=UUID(int=7)) for token in (7, 9, 8)]
    for order in orders:
        ledger.send(order, timeout=SECONDS)
    told: dict[str, int] = {}
    after = f"{UUID(int=7)}/"
    while page := ledger.fences({}, after=after, most=2, timeout=SECONDS):
        told.update(page)
        after = page[-1][0]
    assert [told[f"{UUID(int=7)}/{order.resource}"] for order in orders] == [7, 9, 8]


def test_a_database_that_is_not_there_lists_nothing() -> None:
    nowhere = OwnedLedger("postgresql://nobody@127.0.0.1:1/nowhere")
    try:
        with pytest.raises(SinkAway):
            nowhere.fences({}, after="", most=2, timeout=0.3)
    finally:
        nowhere.close()


def test_what_the_change_refuses_is_refused_for_good_under_this_token(ledger: OwnedLedger, url: str) -> None:
    order = grant(amount=-5)
    answer = ledger.send(order, timeout=SECONDS)
    assert isinstance(answer, Refused)
    assert answer.final
    assert changes_of(url, order.key) == 0
    assert isinstance(ledger.send(dataclasses.replace(order, token=480), timeout=SECONDS), Fenced)


def test_data_the_database_cannot_read_is_refused_and_not_tried_for_ever(ledger: OwnedLedger) -> None:
    answer = ledger.send(grant(amount="many"), timeout=SECONDS)
    assert isinstance(answer, Refused)
    assert (answer.reason, answer.final) == ("refused", True)


def test_many_orders_in_one_call_have_each_an_answer_of_its_own(ledger: OwnedLedger, url: str) -> None:
    good, bad, refused, last = grant(), grant(amount="many"), grant(amount=-5), grant()
    ledger.send(good, timeout=SECONDS)
    other = dataclasses.replace(last, key=uuid4().hex, token=480)

    answers = ledger.send_many([good, bad, refused, last, other], timeout=SECONDS)

    kinds = [type(answer).__name__ for answer in answers]
    assert kinds == ["Receipt", "Refused", "Refused", "Receipt", "Fenced"]
    assert [changes_of(url, each.key) for each in (good, bad, refused, last, other)] == [1, 0, 0, 1, 0]


def test_an_order_that_no_call_can_carry_takes_the_others_back_and_they_go_alone(
    ledger: OwnedLedger, url: str
) -> None:
    good, bad = grant(), grant(body='{"order":"\\u0000"}')
    answers = ledger.send_many([good, bad], timeout=SECONDS)
    assert [type(answer).__name__ for answer in answers] == ["NotSent", "NotSent"]
    assert isinstance(ledger.send(bad, timeout=SECONDS), Refused)
    assert isinstance(ledger.send(good, timeout=SECONDS), Receipt)
    assert changes_of(url, good.key) == 1


def test_a_database_that_is_not_there_was_sent_nothing() -> None:
    nowhere = OwnedLedger("postgresql://nobody@127.0.0.1:1/nowhere")
    try:
        assert isinstance(nowhere.send(grant(), timeout=0.3), NotSent)
    finally:
        nowhere.close()
