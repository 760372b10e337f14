"""Open findings as the Reconcile page tells them: what the ledger says, what the sink shows, and what is at stake."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from approvals.console.history import finding_in_words
from approvals.console.known import Known, known, of_tenant
from approvals.console.lists import cursor
from approvals.console.sources import source_in_words
from approvals.console.times import age
from approvals.console.unsettled import exposure
from approvals.errors import NotFound
from approvals.models import Case
from approvals.templatetags.states import words as in_plain_words
from approvals.templatetags.times import zoned
from ledger import clock
from ledger.models import Finding, Operation
from ledger.money import format_money
from ledger.states import FindingKind


@dataclass(frozen=True, slots=True)
class Disagreement:
    """One finding with the case and the operation it is about, where it is about any."""

    finding: Finding
    case: Case | None
    operation: Known | None
    now: datetime

    @property
    def name(self) -> str:
        """What stands for it in the page's address."""
        return str(self.finding.pk)

    @property
    def kind(self) -> str:
        """Its kind in words."""
        return in_plain_words(self.finding.kind).capitalize()

    @property
    def words(self) -> str:
        """What ledger and sink disagree about, as a sentence."""
        return finding_in_words(self.finding.kind)

    @property
    def money(self) -> str:
        """The amount in question."""
        if self.finding.amount_minor is None or self.finding.currency is None:
            return ""
        return format_money(self.finding.amount_minor, self.finding.currency)

    @property
    def tool(self) -> str:
        """The tool whose sink it is."""
        if self.finding.tool:
            return self.finding.tool.name
        return self.operation.operation.tool.name if self.operation else ""

    @property
    def details(self) -> list[tuple[str, str]]:
        """What was found to differ, (name, value); only what is one word or number; when it was comes last."""
        told: Any = self.finding.detail
        pairs = told.items() if isinstance(told, dict) else ()
        plain = {name: str(value) for name, value in pairs if isinstance(value, str | int | float)}
        known = {self.operation.key} if self.operation else set()  # the ledger's side shows it
        return [
            *(
                (in_plain_words(name), value)
                for name, value in plain.items()
                if name not in _WHEN and value not in known
            ),
            *((_WHEN[name], _moment(plain[name])) for name in _WHEN if name in plain),
        ]

    @property
    def can_be_muted(self) -> bool:
        """Whether it is an effect that was never ours, about which somebody is still asked."""
        return self.finding.kind == FindingKind.FOREIGN and not self.finding.muted_at and not self.closed

    @property
    def closed(self) -> bool:
        """Whether it is settled."""
        return self.finding.closed_at is not None

    @property
    def closed_by(self) -> str:
        """Who settled it."""
        return source_in_words(self.finding.closed_by or "")

    @property
    def age(self) -> timedelta:
        """For how long it has been open."""
        return max(self.now - self.finding.opened_at, timedelta(0))

    @property
    def age_in_words(self) -> str:
        """The same, as it is written: ``57 min``, ``1 h 12 min``."""
        return age(self.age)


_WHEN: Mapping[str, str] = {"from": "happened from", "to": "to"}
"""What a finding's detail bounds the effect's time with, in order."""


def _moment(text: str) -> str:
    """A stored moment as pages write it; what is none, as it is."""
    try:
        return zoned(datetime.fromisoformat(text), "seconds")
    except ValueError:
        return text


def open_ones(tenant_id: UUID) -> Sequence[Finding]:
    """The organisation's open findings that nobody has muted, what has most in question for longest first."""
    rows = Finding.objects.filter(tenant_id=tenant_id, closed_at=None, muted_at=None)
    now = clock.now()
    return sorted(rows.select_related("tool"), key=lambda each: _rank(each, now), reverse=True)


def _rank(finding: Finding, now: datetime) -> tuple[float, timedelta]:
    age = now - finding.opened_at
    return exposure(finding.amount_minor, finding.currency) * age.total_seconds(), age


def muted_count(tenant_id: UUID) -> int:
    """How many nobody is asked about any more."""
    return Finding.objects.filter(tenant_id=tenant_id, closed_at=None, muted_at__isnull=False).count()


def visible(tenant_id: UUID, finding_id: int) -> Finding:
    """The organisation's finding of this number. Raises NotFound."""
    found = Finding.objects.filter(tenant_id=tenant_id, pk=finding_id).select_related("tool").first()
    if found is None:
        raise NotFound("There is no such finding.")
    return found


def one(tenant_id: UUID, name: str) -> Disagreement:
    """The finding of this number, open or not. Raises NotFound."""
    if (pk := cursor(name)) is None:
        raise NotFound("There is no such finding.")
    return listed([visible(tenant_id, pk)])[0]


def about(operation: Operation) -> list[Disagreement]:
    """The open findings about one operation or its case."""
    rows = Finding.objects.filter(
        tenant_id=operation.order.tenant_id, subject=operation.order.subject, closed_at=None
    )
    return listed(list(rows.select_related("tool").order_by("pk")))


def listed(findings: Sequence[Finding]) -> list[Disagreement]:
    """The findings, all of one organisation, with their cases and operations."""
    if not findings:
        return []
    tenant_id, now = findings[0].tenant_id, clock.now()
    subjects = {each.subject for each in findings if each.subject is not None}
    cases = Case.objects.filter(tenant_id=tenant_id).select_related("proposal").in_bulk(subjects)
    its = _operations(tenant_id, findings)
    return [
        Disagreement(
            each,
            cases.get(each.subject) if each.subject else None,
            its.get(each.operation_id) if each.operation_id else None,
            now,
        )
        for each in findings
    ]


def _operations(tenant_id: UUID, findings: Sequence[Finding]) -> Mapping[int, Known]:
    ids = {each.operation_id for each in findings if each.operation_id is not None}
    rows = of_tenant(tenant_id).filter(pk__in=ids).select_related("order__tool_version", "tool", "resource")
    return {each.id: each for each in known(list(rows))}
