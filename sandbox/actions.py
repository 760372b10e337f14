"""Actions on anything: a service with idempotency keys, versions and a look-up by key, as many inner tools have them.

`POST /actions` takes a JSON object with a `target`; every action raises its target's version by one, and `If-Match`
names the version it may act on (412 otherwise). `GET /actions?key=` finds an action again; 404 says there is none.
`GET /actions?since=&until=&after=&limit=` lists them, oldest first; `next` in the answer is the next page's `after`.
"""

import sqlite3
import time

from sandbox import effects
from sandbox.errors import invalid_request
from sandbox.forms import Parameters, integer, moment, refuse_unknown, text
from sandbox.store import Store
from sandbox.wire import Answer

KIND = "action"


def target_of(content: dict[str, object]) -> str:
    target = content.get("target")
    if not isinstance(target, str) or not 0 < len(target) <= 255:
        raise invalid_request("target is a string of 1 to 255 characters.", param="target", status=422)
    return target


def act(
    db: sqlite3.Connection, content: dict[str, object], *, key: str | None, if_match: str | None
) -> Answer:
    target = target_of(content)
    row = db.execute("SELECT count(*) FROM effects WHERE kind = ? AND charge = ?", (KIND, target)).fetchone()
    version = int(row[0])
    if if_match is not None and if_match != f'"{version}"':
        message = f"{target} is at version {version}."
        return invalid_request(message, code="version_mismatch", status=412).answer
    parameters = {**content, "key": key, "version": version + 1, "status": "done"}
    made = effects.make(db, kind=KIND, prefix="act", key=key, subject=target, parameters=parameters)
    return Answer.of(effects.shown(made), status=201)


def found(store: Store, parameters: Parameters, *, not_younger_than: float = 0) -> Answer:
    """The action of this key; one younger than so many seconds is not shown."""
    refuse_unknown(parameters, ("key",))
    rows = store.rows(
        "SELECT * FROM effects WHERE kind = ? AND idempotency_key = ? AND created <= ? ORDER BY sequence",
        (KIND, text(parameters, "key"), time.time() - not_younger_than),
    )
    if not rows:
        raise invalid_request("There is no action with this key.", code="resource_missing", status=404)
    return Answer.of(effects.shown(rows[0]))


def listed(store: Store, parameters: Parameters, *, not_younger_than: float = 0) -> Answer:
    """By time, after an id; actions younger than so many seconds are not shown."""
    refuse_unknown(parameters, ("since", "until", "after", "limit"))
    limit = min(integer(parameters, "limit", least=1) or 100, 100)
    rows = store.rows(
        LISTED,
        {
            "kind": KIND,
            "since": moment(parameters, "since"),
            "until": moment(parameters, "until"),
            "after": text(parameters, "after"),
            "visible": time.time() - not_younger_than,
            "limit": limit + 1,
        },
    )
    page = [effects.shown(row) for row in rows[:limit]]
    return Answer.of({"data": page, "next": page[-1]["id"] if len(rows) > limit else None})


LISTED = """
SELECT * FROM effects
WHERE kind = :kind AND created <= :visible
  AND (:since IS NULL OR created >= :since) AND (:until IS NULL OR created <= :until)
  AND (:after IS NULL OR sequence > (SELECT sequence FROM effects WHERE id = :after))
ORDER BY sequence LIMIT :limit
"""
