"""What nobody knows yet, what is at stake in it and since when, and which of it only a person can settle."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django.db.models import Exists, OuterRef, Q, QuerySet

from approvals.console.known import UNKNOWN, Known, known, of_tenant
from approvals.console.lookups import OVERDUE, since, why_a_person
from approvals.console.times import age
from approvals.models import Case
from approvals.templatetags.times import until
from ledger import attestations, clock
from ledger.models import Attempt, Attestation, Operation
from ledger.money import digits
from ledger.states import AttemptOutcome, AttestedOutcome

SETTLED_WITHIN = timedelta(days=1)
"""How long what was unknown stays listed once it is settled."""


@dataclass(frozen=True, slots=True)
class Word:
    """What a person has said of an operation. ``counts``: it waits for a second, and the evidence is still the same."""

    said: Attestation
    counts: bool

    @property
    def words(self) -> str:
        """What was said, as the end of a sentence."""
        reference = f", reference {self.said.reference}" if self.said.reference else ""
        return SAID[self.said.testimony] + reference


SAID: Mapping[str, str] = {
    AttestedOutcome.HAPPENED: "it happened",
    AttestedOutcome.DID_NOT_HAPPEN: "it did not happen",
    AttestedOutcome.STILL_UNKNOWN: "it is still unknown",
}


@dataclass(frozen=True, slots=True)
class Item:
    """One operation with its case and the words given on it. ``why``: why only a person can settle it, or empty."""

    known: Known
    case: Case
    words: Sequence[Word]
    now: datetime
    why: str = ""

    @property
    def name(self) -> str:
        """What stands for it in the page's address."""
        return self.known.key

    @property
    def since(self) -> datetime:
        """Since when it may have happened; of what never left a worker's hands: since when its lease is over."""
        return since(self.known)

    @property
    def age(self) -> timedelta:
        """For how long nobody has known."""
        return max((self.known.operation.settled_at or self.now) - self.since, timedelta(0))

    @property
    def age_in_words(self) -> str:
        """The same, as it is written: ``57 min``, ``1 h 12 min``."""
        return age(self.age)

    @property
    def overdue(self) -> bool:
        """Whether that is longer than its tool's objective."""
        return self.age > self.objective

    @property
    def objective(self) -> timedelta:
        """How soon its tool wants an unknown outcome settled."""
        return self.known.operation.order.tool_version.objective

    @property
    def put_off_until(self) -> datetime | None:
        """When a person who left it unknown wants to look again, while that is to come."""
        last = next((each.said for each in reversed(self.words) if each.said.until), None)
        return last.until if last and last.until and last.until > self.now else None

    @property
    def first_word(self) -> Attestation | None:
        """The word that waits for a second person's."""
        return next((each.said for each in reversed(self.words) if each.counts), None)

    @property
    def attested_by(self) -> str:
        """Whose word settled it, if people's did."""
        return attested_by([each.said for each in self.words])

    @property
    def line(self) -> list[str]:
        """The few words under it in a list."""
        facts = [self.case.reference, self.known.operation.tool.name]
        if self.known.settled:
            return [*facts, self.how_settled]
        if any(each.reference for each in self.known.evidence):
            facts.append("late report")
        if self.why in ("", OVERDUE):
            return [*facts, _looking_up(self.known.operation.due_at, self.now)]
        return [*facts, self.why]

    @property
    def how_settled(self) -> str:
        """By whose word, or by itself."""
        if self.attested_by:
            return f"attested by {self.attested_by}"
        return "stopped by a person" if self.known.operation.reason == "never_sent" else "settled by itself"

    @property
    def rank(self) -> tuple[bool, float, timedelta]:
        """What has most at stake for longest comes first; what a person has put off comes last."""
        order = self.known.operation.order
        at_stake = exposure(order.amount_minor, order.currency)
        return (self.put_off_until is None, at_stake * self.age.total_seconds(), self.age)


def attested_by(words: Sequence[Attestation]) -> str:
    """The names of those on whose word an outcome rests, the first one's before the second's; empty: on nobody's."""
    last = next((each for each in reversed(words) if each.token is not None), None)
    if last is None:
        return ""
    rests_on = (last.testimony, last.reference, last.tag)
    first = [
        each.name
        for each in words
        if each.token is None and (each.testimony, each.reference, each.tag) == rests_on
    ]
    return " and ".join([*first[-1:], last.name])


def exposure(amount_minor: int | None, currency: str | None) -> float:
    """The amount in its currency's own units, so that yen and euro are not compared by their digits."""
    return float(amount_minor) / 10.0 ** digits(currency) if amount_minor is not None and currency else 0.0


def _looking_up(due_at: datetime | None, now: datetime) -> str:
    if due_at is None or due_at <= now:
        return "looking up now"
    return f"looking up, next in {until(due_at)}"


@dataclass(frozen=True, slots=True)
class Unsettled:
    """The organisation's unknown operations, those that need a person and those still looked up by themselves."""

    needing: Sequence[Item]
    looking: Sequence[Item]

    @property
    def all(self) -> list[Item]:
        """Both."""
        return [*self.needing, *self.looking]

    @property
    def at_risk(self) -> dict[str, int]:
        """Money whose outcome nobody knows, {currency: minor units}."""
        money: Counter[str] = Counter()
        for each in self.all:
            order = each.known.operation.order
            if order.currency and order.amount_minor:
                money[order.currency] += order.amount_minor
        return dict(sorted(money.items()))

    @property
    def oldest(self) -> Item | None:
        """The one that has been unknown for longest."""
        return max(self.all, key=lambda each: each.age, default=None)


def unsettled(tenant_id: UUID) -> Unsettled:
    """All of the organisation's that are unknown now, what has most at stake for longest first."""
    found = items(of_tenant(tenant_id).filter(UNKNOWN))
    ranked = sorted(found, key=lambda each: each.rank, reverse=True)
    return Unsettled([each for each in ranked if each.why], [each for each in ranked if not each.why])


def settled_lately(tenant_id: UUID) -> QuerySet[Operation]:
    """What was unknown, or a person had to end, and was settled within the last day; the newest first."""
    lately = of_tenant(tenant_id).filter(settled_at__gt=clock.now() - SETTLED_WITHIN)
    lost = Attempt.objects.filter(
        operation=OuterRef("pk"), outcome__in=(AttemptOutcome.UNCERTAIN, AttemptOutcome.SUPERSEDED)
    ).exclude(sent=False)
    return lately.filter(Exists(lost) | BY_A_PERSON).order_by("-settled_at", "-order_id")


BY_A_PERSON = Q(reason="never_sent") | Exists(
    Attestation.objects.filter(operation=OuterRef("pk"), token__isnull=False)
)
"""Operations that a person's word has settled, or a person has stopped."""


def items(operations: QuerySet[Operation]) -> list[Item]:
    """The operations with all that the page tells of them, in their own order."""
    found = known(list(operations.select_related("order__tool_version", "tool", "resource")))
    subjects = {each.operation.order.subject for each in found}
    cases = Case.objects.select_related("agent", "proposal__policy").in_bulk(subjects)
    said, now = _said(found), clock.now()
    return [
        Item(
            each,
            cases[each.operation.order.subject],
            said[each.id],
            now,
            "" if each.settled else _why_a_person(each, said[each.id], now),
        )
        for each in found
    ]


def _said(found: Iterable[Known]) -> Mapping[int, list[Word]]:
    by_id = {each.id: each for each in found}
    said: defaultdict[int, list[Word]] = defaultdict(list)
    words = list(Attestation.objects.filter(operation__in=by_id).order_by("pk"))
    waiting = {each.operation_id for each in words if not by_id[each.operation_id].settled}
    counting = {word.pk for id_ in waiting for word in attestations.standing_words(by_id[id_].operation)}
    for each in words:
        said[each.operation_id].append(Word(each, each.pk in counting))
    return said


def _why_a_person(known: Known, said: Sequence[Word], now: datetime) -> str:
    """In a few words; empty while the workers can still settle it, and are within the tool's objective."""
    return "waits for a second person" if any(each.counts for each in said) else why_a_person(known, now)
