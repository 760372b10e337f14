"""Carrying out many grants in one call, for connectors whose sink takes many and answers each."""

import logging
from collections import defaultdict
from collections.abc import Iterator, Sequence

from ledger.claims import Grant
from ledger.outcomes import Report
from workers.connectors import connector
from workers.connectors.answers import Answer, NotSent, TakesMany, Uncertain
from workers.leases import Lease
from workers.performance import report_of
from workers.slots import MOST_TOGETHER, takes_many

log = logging.getLogger(__name__)


def calls(grants: Sequence[Grant]) -> Iterator[list[Grant]]:
    """The grants as they go out: first sends of a connector that takes many together, every other one alone."""
    together: dict[str, list[Grant]] = defaultdict(list)
    for grant in grants:
        if grant.number > 1 or grant.earlier_keys or not takes_many(grant.connector):
            yield [grant]
        else:
            together[grant.connector].append(grant)
    for many in together.values():
        yield from (many[first : first + MOST_TOGETHER] for first in range(0, len(many), MOST_TOGETHER))


def perform_together(grants: Sequence[Grant], leases: Sequence[Lease], *, worker: str) -> list[Report]:
    """Sends first orders of one connector in one call, those whose lease holds; never raises.

    A call that breaks leaves all of them uncertain: each is looked up by itself.
    """
    holding = [(grant, lease) for grant, lease in zip(grants, leases, strict=True) if lease.holds()]
    answers = dict(zip((grant.order_id for grant, _lease in holding), _send(holding), strict=True))
    late = NotSent("The lease was over before the request could leave.")
    return [
        report_of(grant, answer, sent=not isinstance(answer, NotSent), lookups=0, worker=worker)
        for grant in grants
        for answer in [answers.get(grant.order_id, late)]
    ]


def _send(holding: Sequence[tuple[Grant, Lease]]) -> Sequence[Answer]:
    if not holding:
        return []
    grants = [grant for grant, _lease in holding]
    sink = connector(grants[0].connector)
    assert isinstance(sink, TakesMany)
    try:
        answers = sink.send_many(grants, timeout=min(lease.time_left for _grant, lease in holding))
    except Exception as error:  # whatever broke, the request may have left before
        log.exception("%d orders: the connector raised", len(grants))
        return [Uncertain(f"The connector raised {type(error).__name__}: {error}")] * len(grants)
    if len(answers) != len(grants):
        return [Uncertain("The sink did not answer every order.")] * len(grants)
    return answers
