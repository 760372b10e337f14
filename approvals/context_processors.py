"""What the console's frame shows on every page. Read only where a page asks for it: an error page needs none of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from django.http import HttpRequest
from django.urls import NoReverseMatch, reverse

from accounts.models import Member
from approvals.console import known, queue
from approvals.console.entrance import Visitor, memberships, visitor_of
from approvals.console.halts import Shown, open_now
from approvals.console.preferences import preference
from ledger.looks import Look, late_looks
from ledger.models import Finding


@dataclass(frozen=True, slots=True)
class Entry:
    """One page of the navigation; ``dock``: a phone keeps it in the bar at the bottom."""

    name: str
    word: str
    icon: str
    dock: bool = False

    @property
    def url(self) -> str:
        """Where it leads."""
        return reverse(self.name)


ENTRIES = (
    (Entry("conflicts", "Conflicts", "shield-ban"), Entry("metrics", "Metrics", "chart-column", dock=True)),
    (
        Entry("tools", "Write tools", "wrench"),
        Entry("budgets", "Budgets", "wallet"),
        Entry("halts", "Halts", "octagon-pause"),
        Entry("evidence", "Release evidence", "shield-check"),
    ),
)
_SECTIONS = {
    "tool": "tools",
    "decisions-made": "metrics",
    "halt": "halts",
    "make-budget": "budgets",
    "resolve": "reconcile",
    "look-up": "reconcile",
    "stop": "reconcile",
    "compensate": "reconcile",
    "close-finding": "reconcile",
    "mute-finding": "reconcile",
}
"""Addresses that belong to the entry of another name."""


class Frame:
    """Navigation with its counts, the organisation, who is signed in, and how the page is to look."""

    def __init__(self, request: HttpRequest) -> None:
        self._request = request

    @cached_property
    def visitor(self) -> Visitor | None:
        """Who is signed in, and where."""
        return visitor_of(self._request)

    @property
    def tenant_name(self) -> str:
        """The organisation's name; empty for a stranger."""
        return self.visitor.member.tenant.name if self.visitor else ""

    @property
    def environment(self) -> str:
        """Whether what happens here is real."""
        if self.visitor is None:
            return ""
        return "DEMO" if self.visitor.member.tenant.is_demo else "LIVE"

    @property
    def person_name(self) -> str:
        """The signed-in person's name."""
        return self.visitor.member.user.name if self.visitor else ""

    @property
    def person_email(self) -> str:
        """The signed-in person's address."""
        return self.visitor.member.user.email if self.visitor else ""

    @property
    def roles(self) -> str:
        """The roles held, in words."""
        return self.visitor.roles if self.visitor else ""

    @cached_property
    def others(self) -> Sequence[Member]:
        """The person's memberships in other organisations."""
        here = self.visitor.member.pk if self.visitor else None
        return [each for each in memberships(self._request) if each.pk != here]

    @cached_property
    def queue_count(self) -> int:
        """Cases that wait for this person."""
        return queue.mine_count(self.visitor) if self.visitor else 0

    @cached_property
    def unknown_count(self) -> int:
        """Operations whose outcome nobody knows now."""
        return known.unknown_count(self.visitor.tenant_id) if self.visitor else 0

    @cached_property
    def unsettled_count(self) -> int:
        """What waits on the Reconcile page: unknown outcomes and open findings."""
        if self.visitor is None:
            return 0
        findings = Finding.objects.filter(tenant_id=self.visitor.tenant_id, closed_at=None, muted_at=None)
        return self.unknown_count + findings.count()

    @property
    def reconcile_url(self) -> str:
        """The Reconcile page, where there is one."""
        try:
            return reverse("reconcile")
        except NoReverseMatch:
            return ""

    @property
    def section(self) -> str:
        """The name of the entry of the navigation that one is in."""
        match = self._request.resolver_match
        name = str(match.url_name) if match else ""
        return _SECTIONS.get(name, name)

    @property
    def entries(self) -> Sequence[Sequence[Entry]]:
        """The navigation's pages beyond queue, cases and operations, in its two groups."""
        return ENTRIES

    @cached_property
    def halts(self) -> Sequence[Shown]:
        """What of the organisation stands still now."""
        return open_now(self.visitor) if self.visitor else []

    @cached_property
    def late_looks(self) -> Sequence[Look]:
        """Regular looks that nobody has made in time."""
        return late_looks() if self.visitor else []

    @property
    def here(self) -> str:
        """The page one is on, as an address one can come back to: that of an answered form is its case."""
        if self._request.method in ("GET", "HEAD"):
            return self._request.get_full_path()
        match = self._request.resolver_match
        case_id = match.kwargs.get("case_id") if match else None
        return reverse("case", args=[case_id]) if case_id else reverse("queue")

    @property
    def theme(self) -> str:
        """``light`` or ``dark``; empty follows the system."""
        return preference(self._request, "theme")

    @property
    def shortcuts(self) -> str:
        """``off``, or empty: on."""
        return preference(self._request, "shortcuts")

    @property
    def live(self) -> str:
        """``off``, or empty: on."""
        return preference(self._request, "live")


def console(request: HttpRequest) -> dict[str, Frame]:
    """The frame of the page."""
    return {"console": Frame(request)}
