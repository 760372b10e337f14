"""One pass over a tool: its sink's own listing against the ledger, and the ledger against what the listing showed.

The listing is streamed a page at a time, and so is the ledger; what was seen is kept in the database. A pass that is
cut short goes on where it was; two at once are harmless, since a page is compared once (docs/protocol.md, Reconcile).
"""

import logging
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import Error, close_old_connections, transaction

from approvals import corrections, execution
from ledger import operations, outcomes, reconciliation, sweeps, tools
from ledger.identity import canonical
from ledger.models import InboundEvent, Reconciliation, Tool, ToolVersion
from ledger.reconciliation import Found, Lag, Overtaken
from ledger.states import SETTLED, FindingKind, OperationState
from workers.connectors import UnknownConnector, connector
from workers.connectors.answers import Effect, Listing, ListsIfTold, Page, SinkAway

log = logging.getLogger(__name__)

NAME = "reconcile"
SOURCE = "reconciliation"
_MOST_ABOUT = 255
_KEY = re.compile(r"[0-9a-f]{40}", re.ASCII)


class NotListed(Exception):
    """This tool's sink cannot list its effects, so there is nothing to hold the ledger against."""

    def __init__(self) -> None:
        super().__init__(self.__doc__)


def run_due() -> int:
    """A pass over every tool whose sink can list; returns how many findings are new. One that fails stops no other."""
    opened = 0
    for tool in Tool.objects.order_by("pk"):
        try:
            row = reconcile(tool=tool)
            opened += row.opened if row is not None else 0
        except (NotListed, Overtaken):
            continue
        except SinkAway as away:
            log.warning("the sink of %s (tool %s) could not be listed: %s", tool.name, tool.pk, away)
        except Error:
            log.warning("the pass over %s (tool %s) was cut short", tool.name, tool.pk, exc_info=True)
            close_old_connections()
        except Exception:  # the next tool's pass must still be made
            log.exception("the pass over %s (tool %s) failed", tool.name, tool.pk)
    sweeps.note(NAME, opened)
    return opened


def reconcile(*, tool: Tool, since: datetime | None = None) -> Reconciliation | None:
    """Makes the tool's due pass, or goes on with one that was cut short; None where nothing is old enough to judge.

    ``since``: reach back so far at least. Raises NotListed, SinkAway (the pass goes on next time) and Overtaken.
    """
    try:
        version = tools.current_version(tenant_id=tool.tenant_id, name=tool.name)
    except tools.UnknownTool:
        raise NotListed from None  # it has no version yet, so it has done nothing
    return pass_over(version=version, sink=_listing(version), since=since)


def reconcile_about(*, event_id: int) -> bool:
    """Makes a pass that reaches back to what a provider's event tells of; returns whether one was needed and made.

    A pass that is under way goes on first: it may be the one that is asked for, and would else begin for ever.
    """
    event = InboundEvent.objects.select_related("operation__tool", "operation__order").get(pk=event_id)
    operation, matched_at = event.operation, event.matched_at
    assert operation is not None  # only a matched one rings
    assert matched_at is not None  # matched_iff_matched_at
    first = operation.attempts.order_by("number").first()
    sent_at = first.started_at if first is not None else operation.order.created_at
    back_to = sent_at - 2 * timedelta(seconds=settings.EXECUTION.call_timeout)
    try:
        for since in (None, back_to):
            if reconciliation.has_looked(tool=operation.tool, back_to=back_to, after=matched_at):
                return since is not None
            reconcile(tool=operation.tool, since=since)
    except (NotListed, Overtaken):
        return False
    except SinkAway as away:
        log.warning("the sink of %s could not be listed: %s", operation.tool.name, away)
        return False
    return True


def pass_over(*, version: ToolVersion, sink: Listing, since: datetime | None = None) -> Reconciliation | None:
    """As ``reconcile``, with the listing to hold the ledger against."""
    lag = lag_of(version)
    row = reconciliation.begin(tool=version.tool, lag=lag, since=since)
    if row is None:
        return None
    judged_until = row.until - lag.longest_call  # the sink's clock may be so far from ours
    try:
        _go_through_sink(row, sink, version)
    except SinkAway as away:
        reconciliation.stopped(row, str(away))
        raise
    _go_through_ledger(row, judged_until)
    reconciliation.finish(row, until=judged_until)
    return row


def lag_of(version: ToolVersion) -> Lag:
    """How far the tool's sink may be behind what it has done."""
    return Lag(version.settle_time, timedelta(seconds=settings.EXECUTION.call_timeout))


def _listing(version: ToolVersion) -> Listing:
    try:
        sink = connector(version.connector)
    except UnknownConnector:
        raise NotListed from None
    if not isinstance(sink, Listing) or (
        isinstance(sink, ListsIfTold) and not sink.can_list(version.sink_settings)
    ):
        raise NotListed
    return sink


# The sink's side.


def _go_through_sink(row: Reconciliation, sink: Listing, version: ToolVersion) -> None:
    kin = reconciliation.kin(row.tool, version)
    unread, cursor = reconciliation.sink_cursor(row)
    while unread:
        page = sink.list_effects(
            version.sink_settings,
            since=row.since,
            until=row.until,
            cursor=cursor,
            timeout=settings.EXECUTION.call_timeout,
        )
        if page.cursor is not None and page.cursor == cursor:
            raise SinkAway("The sink's listing leads in a circle: a page names itself as the next one.")
        _compare(row, page, kin)
        unread, cursor = reconciliation.sink_cursor(row)


def _compare(row: Reconciliation, page: Page, kin: Sequence[int]) -> None:
    judged = _judge(row, page.effects, kin)
    if judged.look_again:
        reconciliation.look_again(judged.look_again)
    with transaction.atomic():
        _lock_cases(judged.found)
        reconciliation.compared(
            row,
            following=page.cursor,
            effects=len(page.effects),
            seen=judged.seen,
            found=judged.found,
            foreign=judged.foreign,
        )


def _lock_cases(found: Iterable[Found]) -> None:
    """Whoever opens a finding about a case holds it, so that an approval counts either before or after."""
    for subject in sorted({each.subject for each in found if each.subject is not None}):
        execution.lock_case(subject)


@dataclass(slots=True)
class _Judged:
    """What a page of effects comes to."""

    seen: set[int] = field(default_factory=set)
    found: list[Found] = field(default_factory=list)
    look_again: list[int] = field(default_factory=list)
    foreign: defaultdict[date, list[tuple[datetime, str]]] = field(default_factory=lambda: defaultdict(list))


def _judge(row: Reconciliation, effects: Sequence[Effect], kin: Sequence[int]) -> _Judged:
    judged = _Judged()
    recorded = reconciliation.by_reference(kin, {_stored(each.reference) for each in effects})
    rest = [each for each in effects if _stored(each.reference) not in recorded]
    known = reconciliation.by_key(
        {each.key for each in rest if each.key is not None and _KEY.fullmatch(each.key)}
    )
    for effect in effects:
        operation = recorded.get(_stored(effect.reference))
        if operation is not None:
            _judge_recorded(row, effect, operation, judged)
        elif effect.key is None:
            judged.foreign[effect.happened_at.astimezone(UTC).date()].append(
                (effect.happened_at, _stored(effect.reference))
            )
        else:
            _judge_unrecorded(row, effect, known.get(effect.key), judged)
    return judged


def _judge_recorded(row: Reconciliation, effect: Effect, operation: Any, judged: _Judged) -> None:
    """The effect of a committed operation: as it was ordered, and still standing?"""
    if operation.tool_id != row.tool_id:
        return  # that tool's own pass judges it
    judged.seen.add(operation.order_id)
    if effect.key is not None and effect.key != operation.key:
        judged.found.append(_found(FindingKind.DIFFERS, effect, operation, carries=effect.key[:100]))
    elif not _same_money(effect, operation):
        judged.found.append(_found(FindingKind.DIFFERS, effect, operation))
    if effect.reversed:
        judged.found.append(_found(FindingKind.REVERSED, effect, operation))


def _judge_unrecorded(row: Reconciliation, effect: Effect, operation: Any | None, judged: _Judged) -> None:
    """An effect with our marker that no committed operation is recorded with."""
    if operation is None:
        judged.found.append(_found(FindingKind.UNRECORDED, effect, None))
    elif operation.tenant_id != row.tenant_id or operation.tool_id != row.tool_id:
        return  # of another tool or tenant at the same sink
    elif operation.state == OperationState.COMMITTED:
        _judge_second(effect, operation, judged)
    elif operation.state not in SETTLED and operation.state != OperationState.NOT_STARTED:
        judged.look_again.append(operation.order_id)
    elif not effect.reversed:
        _judge_denied(effect, operation, judged)


def _judge_second(effect: Effect, operation: Any, judged: _Judged) -> None:
    """Another effect of an action that has one; not where it was undone, or a compensation has undone it."""
    if not effect.reversed and not 0 < operation.extras <= operation.undone:
        judged.found.append(_found(FindingKind.TWICE, effect, operation, action_key=operation.action_key))


def _judge_denied(effect: Effect, operation: Any, judged: _Judged) -> None:
    """An effect of an operation that is recorded as not having happened, or that was not even started."""
    if operation.rival is not None and operation.rival_state == OperationState.COMMITTED:
        _judge_second(effect, operation, judged)
    elif not _same_money(effect, operation):
        judged.found.append(_found(FindingKind.DIFFERS, effect, operation))
    elif _correct(effect, operation):
        judged.seen.add(operation.order_id)
    elif operation.state == OperationState.NOT_STARTED:
        judged.found.append(_found(FindingKind.UNRECORDED, effect, operation))


def _correct(effect: Effect, operation: Any) -> bool:
    """Corrects the operation by the sink's own record; where it cannot be yet, that has opened a finding.

    One that is not started happened all the same: the ledger has gone backwards, and is ahead again with this.
    """
    try:
        with transaction.atomic():
            if operation.state == OperationState.NOT_STARTED:
                outcomes.lock([operation.order_id])
                execution.lock_case(operation.subject)
                operations.end_unstarted(subject=operation.subject, reason="earlier_effect")
            corrected = corrections.correct(
                order_id=operation.order_id,
                receipt_reference=_stored(effect.reference),
                receipt_text=_receipt(effect),
                source=SOURCE,
            )
            if operation.state == OperationState.NOT_STARTED and not corrected:
                raise _Undecided
    except _Undecided:
        return False
    return corrected


class _Undecided(Exception):
    """It could not be corrected: whatever was written on the way is taken back."""


def _receipt(effect: Effect) -> str:
    """The sink's own record, as far as a listing shows it."""
    answer = {
        "amount_minor": effect.amount_minor,
        "currency": effect.currency,
        "happened_at": effect.happened_at.isoformat(),
    }
    said = {"reference": _stored(effect.reference), "status": _stored(effect.status), "answer": answer}
    return canonical(said)


def _same_money(effect: Effect, operation: Any) -> bool:
    """Compared where both sides name it: key alone does not make two effects the same."""
    if effect.amount_minor is None or operation.amount_minor is None:
        return True
    same_currency = effect.currency is None or effect.currency.upper() == operation.currency
    return effect.amount_minor == operation.amount_minor and same_currency


def _found(kind: FindingKind, effect: Effect, operation: Any | None, **detail: Any) -> Found:
    key = operation.key if operation is not None else _stored(effect.key or "")
    ordered = {"amount_minor": operation.amount_minor, "currency": operation.currency} if operation else None
    return Found(
        kind=kind,
        about=f"{key}:{_stored(effect.reference)}"[:_MOST_ABOUT],
        began=effect.happened_at,
        ended=effect.happened_at,
        subject=operation.subject if operation is not None else None,
        order_id=operation.order_id if operation is not None else None,
        reference=_stored(effect.reference),
        amount_minor=effect.amount_minor,
        currency=effect.currency.upper()[:3] if effect.currency else None,
        detail={"status": _stored(effect.status), "key": key, "ordered": ordered, **detail},
    )


def _stored(text: str) -> str:
    """A sink's words as the tables take them."""
    clean = text.replace("\x00", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode("utf-8")
    return clean[:_MOST_ABOUT]


# The ledger's side.


def _go_through_ledger(row: Reconciliation, until: datetime) -> None:
    """Looks for committed operations that a whole listing has not shown."""
    while page := reconciliation.unseen(row, until=until):
        missing = [_missing(each) for each in page if not each.agrees]
        with transaction.atomic():
            _lock_cases(missing)
            reconciliation.looked_through(row, page, missing)


def _missing(unseen: Any) -> Found:
    return Found(
        kind=FindingKind.MISSING,
        about=unseen.key,
        began=unseen.sent_at or unseen.settled_at,
        ended=unseen.settled_at,
        subject=unseen.subject,
        order_id=unseen.order_id,
        reference=unseen.reference,
        amount_minor=unseen.amount_minor,
        currency=unseen.currency,
        detail={"key": unseen.key},
    )


# What is open afterwards.


@dataclass(frozen=True, slots=True)
class Open:
    """What is open about a tool: findings by kind, and how many of them ask for a person."""

    tool: Tool
    kinds: Mapping[str, int]
    asking: int


def still_open(tools: Sequence[Tool]) -> list[Open]:
    """What is open about each of the tools, muted ones included."""
    return [_open(tool) for tool in tools]


def _open(tool: Tool) -> Open:
    rows = reconciliation.still_open(tenant_id=tool.tenant_id, tools=[tool.pk])
    return Open(tool, {row.kind: row.n for row in rows}, sum(row.asking for row in rows))
