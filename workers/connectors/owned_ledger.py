"""A database of one's own as the sink: key, fingerprint, token and change in one transaction, behind its own fence.

The schema it calls is shipped beside this module (``owned_ledger.sql``) and described in docs/owned-write.md.

    {"database": "6f1c0a52-…"}     optional: only the database that calls itself so is used (countersign.identity())
"""

import json
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
from django.conf import settings
from psycopg.rows import namedtuple_row
from psycopg_pool import ConnectionPool, PoolTimeout

from ledger.claims import Grant
from workers.connectors.answers import (
    Absent,
    Answer,
    Busy,
    Differs,
    Effect,
    Fenced,
    Found,
    NotSent,
    Page,
    Receipt,
    Refused,
    SinkAway,
    Uncertain,
)
from workers.connectors.deadlines import cut_at
from workers.connectors.expected import Expected

SCHEMA = Path(__file__).with_suffix(".sql")
_CONNECTIONS = 16
_APPLY = "SELECT * FROM countersign.apply(%s::text[], %s::text[], %s::text[], %s::bigint[], %s::jsonb[])"
_LOOK_UP = "SELECT * FROM countersign.look_up(%s::text[], %s::text[], %s::text[], %s::bigint[])"
_EFFECTS = "SELECT * FROM countersign.effects(%s, %s, %s, %s)"
_FENCES = "SELECT * FROM countersign.fences(%s, %s)"
_IDENTITY = "SELECT countersign.identity() AS name"
_PAGE = 500
# The server ends a session in the middle, perhaps after the commit and before its answer (57P01–57P05, 08xxx).
_CUT_OFF = ("57P", "08")
_BAD_DATA = ("22", "23")


class OwnedLedger:
    """Applies orders to the database at ``url`` and looks effects up there."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._database = Expected("database", self._ask_identity)
        # A stopped worker's session must let go of the fence's row before its lease is over.
        limits = settings.DATABASES["default"]["OPTIONS"]["options"]
        self._pool: ConnectionPool[Any] = ConnectionPool(
            url,
            min_size=0,
            max_size=_CONNECTIONS,
            open=False,
            check=ConnectionPool.check_connection,
            kwargs={
                "autocommit": True,
                "row_factory": namedtuple_row,
                "options": limits,
                "connect_timeout": 5,
            },
        )

    def identity(self, sink_settings: Mapping[str, Any]) -> str:
        """Host and name of the database, and what it calls itself where the settings say so. Raises BadSetting."""
        named = self._database.named(sink_settings)
        place = psycopg.conninfo.conninfo_to_dict(self._url)
        where = f"{place.get('host', '')}/{place.get('dbname', '')}"
        return f"{where}/{named}" if named else where

    @classmethod
    def from_settings(cls) -> "OwnedLedger":
        """The database that REFUND_LEDGER_URL names."""
        return cls(settings.REFUND_LEDGER_URL)

    def close(self) -> None:
        """Ends its connections."""
        self._pool.close()

    def send(self, grant: Grant, *, timeout: float) -> Answer:
        """One autocommitted call of ``countersign.apply``."""
        return self.send_many([grant], timeout=timeout)[0]

    def send_many(self, grants: Sequence[Grant], *, timeout: float) -> Sequence[Answer]:
        """One autocommitted call of ``countersign.apply`` for all of them: they are applied or lost together."""
        until = time.monotonic() + timeout
        whys = self._database.why_not_each([grant.sink_settings for grant in grants], until)
        astray = {grant.key: NotSent(why) for grant, why in zip(grants, whys, strict=True) if why is not None}
        here = [grant for grant in grants if grant.key not in astray]
        answers = dict(zip((grant.key for grant in here), self._apply(here, until), strict=True))
        return [astray.get(grant.key) or answers[grant.key] for grant in grants]

    def _apply(self, grants: Sequence[Grant], until: float) -> Sequence[Answer]:
        if not grants:
            return []
        parameters = (
            [grant.key for grant in grants],
            [grant.fingerprint for grant in grants],
            [_resource(grant) for grant in grants],
            [grant.token for grant in grants],
            [grant.body for grant in grants],
        )
        rows = self._call(_APPLY, parameters, until)
        if isinstance(rows, Refused) and len(grants) > 1:  # one of them was bad, and all were rolled back
            rows = NotSent(f"Rolled back with others; it goes alone next. {rows.note}")
        if not isinstance(rows, list):
            return [rows] * len(grants)
        by_key = {row.key: row for row in rows}
        return [_applied(by_key.get(grant.key), grant) for grant in grants]

    def look_up(self, grant: Grant, *, timeout: float) -> Found:
        """Raises the fence to the grant's token and looks, in one call: what is absent then cannot happen any more."""
        until = time.monotonic() + timeout
        if (why := self._database.why_not(grant.sink_settings, timeout)) is not None:
            return Uncertain(why)
        parameters = ([grant.key], [grant.fingerprint], [_resource(grant)], [grant.token])
        rows = self._call(_LOOK_UP, parameters, until)
        if not isinstance(rows, list):
            return Uncertain(rows.note)
        (row,) = rows
        if row.verdict == "conflict":
            return Differs(_receipt(row, grant), "The key stands for other content at the sink.")
        return Absent() if row.verdict == "absent" else _known(row, grant)

    def list_effects(
        self,
        sink_settings: Mapping[str, Any],
        *,
        since: datetime,
        until: datetime,
        cursor: str | None,
        timeout: float,
    ) -> Page:
        """Pages of ``countersign.effects``, oldest first. Raises SinkAway."""
        self._database.require(sink_settings, timeout)
        rows = self._rows(_EFFECTS, (since, until, cursor, _PAGE), timeout)
        effects = [
            Effect(
                reference=row.reference,
                key=row.key,
                # A schema that was installed before it told of money has no such columns.
                amount_minor=getattr(row, "amount_minor", None),
                currency=getattr(row, "currency", None),
                status="committed",
                reversed=False,
                happened_at=row.happened_at,
            )
            for row in rows
        ]
        return Page(effects, rows[-1].key if len(rows) == _PAGE else None)

    def fences(
        self, sink_settings: Mapping[str, Any], *, after: str, most: int, timeout: float
    ) -> Sequence[tuple[str, int]]:
        """(resource as the sink names it, highest token) in the order of names after ``after``. Raises SinkAway."""
        self._database.require(sink_settings, timeout)
        return [(row.resource, row.token) for row in self._rows(_FENCES, (after, most), timeout)]

    def _ask_identity(self, timeout: float) -> str:
        """What the database calls itself. Raises SinkAway."""
        try:
            return str(self._rows(_IDENTITY, (), timeout)[0].name)
        except IndexError as error:
            raise SinkAway("The database has no name for itself: install its schema anew.") from error

    def _connection(self, timeout: float) -> AbstractContextManager[Any]:
        self._pool.open()  # at the first use: its threads are of no use to who only asks for its identity
        return self._pool.connection(timeout=timeout)

    def _rows(self, statement: str, parameters: tuple[Any, ...], timeout: float) -> list[Any]:
        try:
            until = time.monotonic() + timeout
            with (
                self._connection(timeout) as connection,
                cut_at(until, connection.fileno),
            ):
                rows: list[Any] = connection.execute(statement, parameters).fetchall()
        except (PoolTimeout, psycopg.Error) as error:
            raise SinkAway(str(error)) from error
        return rows

    def _call(
        self, statement: str, parameters: tuple[Any, ...], until: float
    ) -> "list[_Row] | NotSent | Busy | Refused | Uncertain":
        try:
            with (
                self._connection(max(until - time.monotonic(), 0.001)) as connection,
                cut_at(until, connection.fileno),
            ):
                if time.monotonic() >= until:
                    return NotSent("The time for the call was over before the request could leave.")
                rows = connection.execute(statement, parameters).fetchall()
                return [_Row(row.key, row.verdict, row.reference, row.token, row.detail) for row in rows]
        except PoolTimeout as error:
            return NotSent(f"No connection to the database: {error}")
        except psycopg.Error as error:
            if not error.sqlstate or error.sqlstate.startswith(_CUT_OFF):
                return Uncertain(f"The connection broke: {error}")
            # The server rolled the call back and says so; the same order would meet bad data again.
            words = f"{error.sqlstate}: {error}"
            return Refused(error.sqlstate, words) if error.sqlstate.startswith(_BAD_DATA) else Busy(words)


class _Row(NamedTuple):
    key: str
    verdict: str
    reference: str | None
    token: int
    detail: str | None


def _applied(row: _Row | None, grant: Grant) -> Answer:
    if row is None:
        return Uncertain("The sink did not answer this order.")
    if row.verdict == "refused":
        # The call that refused has raised the fence: no earlier worker can act any more.
        return Refused("refused", row.detail or "The change was refused.", final=True)
    return _known(row, grant)


def _known(row: _Row, grant: Grant) -> Receipt | Fenced | Uncertain:
    if row.verdict == "fenced":
        return Fenced(f"The sink has seen token {row.token}; {grant.token} is refused.")
    if row.verdict == "conflict":
        return Uncertain("The key stands for other content at the sink.", stored=True)
    answer = {"key": grant.key, "token": row.token, "request": json.loads(grant.body)}
    return Receipt(row.reference or grant.key, "committed", answer, key=grant.key)


def _receipt(row: _Row, grant: Grant) -> Receipt:
    """Of an effect whose content is not this order's."""
    return Receipt(
        row.reference or grant.key, "committed", {"key": grant.key, "token": row.token}, key=grant.key
    )


def _resource(grant: Grant) -> str:
    """Fences of different organisations never meet, even in one database."""
    return f"{grant.tenant_id}/{grant.resource}"
