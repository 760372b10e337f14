"""GET /metrics: what the platform scrapes, in Prometheus' text format, counted from rows across all organisations.

Gauges, not counters: each is what the database says now or said of the last 24 hours, so that it is the same whichever
process answers. Labels are bounded: kinds, states, the most used tools (the others together), kinds of source;
never a key, a reference, an organisation or a person.
"""

import secrets
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

from accounts.models import Tenant
from ledger import clock, halts
from ledger.looks import looks
from ledger.measures import QUERIES, WINDOWS, Measures, measures
from ledger.models import Finding, Tool
from ledger.states import ControlEventKind, FindingKind, OperationState

_MOST_ACTIONS = 50
"""Tools that are told by name; the rest is one label."""
_OTHER = "other"
_SOURCES = ("agent", "person", "queue", "worker")
_DAY = WINDOWS["24h"]


def metrics(request: HttpRequest) -> HttpResponse:
    """The numbers, for whoever carries METRICS_TOKEN; 404 where none is set, 401 for any other caller."""
    if not settings.METRICS_TOKEN:
        raise Http404("No METRICS_TOKEN is set.")
    told = request.headers.get("Authorization", "")
    if not secrets.compare_digest(told.encode(), f"Bearer {settings.METRICS_TOKEN}".encode()):
        return HttpResponse(
            "Send METRICS_TOKEN as a Bearer token.\n",
            status=401,
            content_type="text/plain",
            headers={"WWW-Authenticate": "Bearer"},
        )
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Rows())
    return HttpResponse(generate_latest(registry), content_type=CONTENT_TYPE_LATEST)


class _Rows(Collector):
    """Everything that is told, read once."""

    def __init__(self) -> None:
        self._tenants = list(Tenant.objects.order_by("pk").values_list("pk", flat=True))
        self._now = clock.now()

    def describe(self) -> list[GaugeMetricFamily]:
        """Nothing beforehand: a scrape reads the rows once."""
        return []

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Every family of numbers."""
        found = [measures(tenant_id=tenant_id, window=_DAY) for tenant_id in self._tenants]
        yield from _of_measures(found, self._now)
        yield _control_events(self._tenants, self._now)
        yield _findings()
        yield _halts(self._tenants)
        yield from _looks(self._now)


def _of_measures(found: Sequence[Measures], now: datetime) -> Iterator[GaugeMetricFamily]:
    review = _family("review_triggered", "Organisations in which a measure asks for a review now", "measure")
    for name in _NAMES:
        triggered = [each for one in found for each in one.six if each.name == name and each.triggered]
        review.add_metric([name], len(triggered))
    yield review
    settled = _family("operations_settled_day", "Operations settled in the last 24 hours", "state")
    for state in (OperationState.COMMITTED, OperationState.FAILED_BEFORE_COMMIT):
        settled.add_metric([state], sum(sum(one.settled[state]) for one in found))
    yield settled
    exposure = _family(
        "exposure_minor_units", "Money whose outcome is open, in minor units of its currency", "currency"
    )
    money: Counter[str] = Counter()
    for one in found:
        money.update(one.exposure)
    for currency, amount in sorted(money.items()):
        exposure.add_metric([currency], amount)
    yield exposure
    for name, words, value in _single(found, now):
        yield _family(name, words, value=value)


_NAMES = ("duplicates", "conflicts", "fenced", "serialization", "unknown", "effects")


def _single(found: Sequence[Measures], now: datetime) -> Iterator[tuple[str, str, float]]:
    unknowns = [one.unknowns for one in found]
    yield "outcome_unknown", "Operations whose outcome nobody knows", sum(each.count for each in unknowns)
    yield (
        "outcome_unknown_beyond_objective",
        "Of these, those older than their tool's objective",
        sum(each.beyond for each in unknowns),
    )
    oldest = {
        "outcome_unknown_oldest_seconds": (
            "Age of the oldest unknown outcome",
            [each.oldest for each in unknowns],
        ),
        "due_oldest_seconds": (
            "How long the longest waiting operation has been due",
            [o.oldest_due for o in found],
        ),
        "lease_lapsed_oldest_seconds": (
            "How long the worker has been silent that has been so for longest",
            [one.oldest_lapsed for one in found],
        ),
    }
    for name, (words, moments) in oldest.items():
        yield name, words, _age(min(filter(None, moments), default=None), now)
    largest = [one.identity.largest for one in found if one.identity.largest is not None]
    yield (
        "effects_per_identity_max",
        "Most effects of one identity, as the sinks list them",
        max(largest, default=0),
    )


def _age(moment: datetime | None, now: datetime) -> float:
    return max(0.0, (now - moment).total_seconds()) if moment else 0.0


def _control_events(tenants: Sequence[UUID], now: datetime) -> GaugeMetricFamily:
    family = _family(
        "control_events_day", "What the controls did in the last 24 hours", "kind", "action", "source"
    )
    counts: Counter[tuple[str, str, str]] = Counter()
    for tenant_id in tenants:
        day = {"since": now - timedelta(days=1), "until": now, "step": 86_400}
        for row in QUERIES.rows("events", tenant=tenant_id, **day):
            source = row.source.partition(":")[0]
            counts[row.kind, row.action, source if source in _SOURCES else _OTHER] += row.n
    named = _named_actions(counts)
    told: Counter[tuple[str, str, str]] = Counter(
        {(kind.value, _OTHER, _OTHER): 0 for kind in ControlEventKind}
    )
    for (kind, action, source), count in counts.items():
        told[kind, action if action in named else _OTHER, source] += count
    for labels, count in sorted(told.items()):
        family.add_metric(labels, count)
    return family


def _named_actions(counts: Counter[tuple[str, str, str]]) -> set[str]:
    """The tools most was done about. What is no tool's name may be somebody's free text."""
    by_action: Counter[str] = Counter()
    for (_, action, _), count in counts.items():
        by_action[action] += count
    tools = set(Tool.objects.filter(name__in=list(by_action)).values_list("name", flat=True))
    return set([action for action, _ in by_action.most_common() if action in tools][:_MOST_ACTIONS])


def _findings() -> GaugeMetricFamily:
    family = _family("findings_open", "Open disagreements between ledger and sinks", "kind")
    opened = Counter(Finding.objects.filter(closed_at=None).values_list("kind", flat=True))
    for kind in FindingKind:
        family.add_metric([kind], opened[kind])
    return family


def _halts(tenants: Sequence[UUID]) -> GaugeMetricFamily:
    """By who began them: a person, a breaker, a fence, a restore."""
    family = _family("halts_open", "What stands still now", "scope", "by")
    counts: Counter[tuple[str, str]] = Counter(
        {(scope, by): 0 for scope in ("organisation", "tool") for by in ("person", "breaker")}
    )
    for tenant_id in tenants:
        for halt in halts.open_ones(tenant_id=tenant_id):
            by = halt.began_by.partition(":")[0]
            known = by if by in ("person", "breaker", "fence", "restore") else _OTHER
            counts["tool" if halt.tool_id else "organisation", known] += 1
    for labels, count in sorted(counts.items()):
        family.add_metric(labels, count)
    return family


def _looks(now: datetime) -> Iterator[GaugeMetricFamily]:
    age = _family("sweep_age_seconds", "Since the last run of each regular look", "sweep")
    late = _family("sweep_late", "1 where nobody has made it in time", "sweep")
    for look in looks():
        age.add_metric([look.name], _age(look.ran_at, now))
        late.add_metric([look.name], float(look.late))
    yield age
    yield late


def _family(name: str, words: str, *labels: str, value: float | None = None) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"countersign_{name}", words, value=value, labels=labels or None)
