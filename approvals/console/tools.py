"""The write tools: everything an agent may change here, what is promised about it happening once, and the pauses."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from urllib.parse import urlencode

from django.db.models import Count
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse

from approvals import halts
from approvals.console import halts as halts_page
from approvals.console.budgets import limits_of
from approvals.console.entrance import Visitor, page
from approvals.console.forms import Form
from approvals.console.guarantees import Promise, promise
from approvals.console.halts import Shown
from approvals.console.known import UNKNOWN
from approvals.errors import NotFound
from approvals.models import Policy
from ledger import clock
from ledger import tools as ledger_tools
from ledger.guarantees import length
from ledger.measures import QUERIES
from ledger.models import Halt, Operation, Probe, Tool, ToolVersion
from ledger.money import format_money
from ledger.states import OperationState

_LIST = ("committed", "failed_before_commit", "outcome_unknown")
_MOST_HALTS = 20


@dataclass(frozen=True, slots=True)
class Outcome:
    """How many operations of a tool came to a state in the last day, or stand in it now."""

    state: str
    count: int
    url: str


@dataclass(frozen=True, slots=True)
class Listed:
    """One tool with its newest version."""

    tool: Tool
    version: ToolVersion
    promise: Promise
    limits: Sequence[str]
    outcomes: Sequence[Outcome]
    pause: Shown | None


@page
def tools(request: HttpRequest, visitor: Visitor) -> HttpResponse:
    """The inventory, by title."""
    listed = _listed(visitor, Tool.objects.filter(tenant_id=visitor.tenant_id))
    context = {
        "tools": sorted(listed, key=lambda each: (each.version.title, each.tool.name)),
        "may": halts.may(visitor.actor),
        "empty": {
            "title": "No write tool yet",
            "words": "An agent can only propose actions of registered tools: until there is one, nothing is sent.",
        },
    }
    return render(request, "approvals/tools.html", context)


def _listed(visitor: Visitor, tools_: Iterable[Tool]) -> list[Listed]:
    by_id = {each.pk: each for each in tools_}
    newest = ledger_tools.newest_versions(by_id)
    outcomes = _outcomes(by_id)
    pauses = {each.tool: each for each in halts_page.open_now(visitor) if each.tool}
    limits = limits_of(visitor.tenant_id)
    return [
        Listed(
            tool=tool,
            version=newest[tool_id],
            promise=promise(newest[tool_id]),
            limits=[*_each(newest[tool_id]), *limits.get(tool_id, []), *limits.get(None, [])],
            outcomes=outcomes[tool_id],
            pause=pauses.get(tool.name),
        )
        for tool_id, tool in by_id.items()
        if tool_id in newest
    ]


def _each(version: ToolVersion) -> list[str]:
    """What one action may move at most."""
    if not version.value_limits:
        return []
    money = [format_money(limit, currency) for currency, limit in sorted(version.value_limits.items())]
    return [f"{' or '.join(money)} each"]


def _outcomes(tools_: Mapping[int, Tool]) -> dict[int, list[Outcome]]:
    until = clock.now()
    day = {"since": until - timedelta(days=1), "until": until, "step": 86_400}
    counts: defaultdict[tuple[int, str], int] = defaultdict(int)
    for row in QUERIES.rows("settled", tools=list(tools_), **day):
        counts[row.tool_id, row.state] += row.n
    unknown = Operation.objects.filter(UNKNOWN, tool_id__in=tools_).order_by().values_list("tool_id")
    for tool_id, count in unknown.annotate(Count("pk")):
        counts[tool_id, OperationState.OUTCOME_UNKNOWN] = count
    return {
        tool_id: [Outcome(state, counts[tool_id, state], _rows(tool.name, state)) for state in _LIST]
        for tool_id, tool in tools_.items()
    }


def _rows(tool: str, state: str) -> str:
    settled = {} if state == OperationState.OUTCOME_UNKNOWN else {"settled": "24h"}
    return f"{reverse('operations')}?{urlencode({'tool': tool, 'view': state, **settled})}"


# One tool.


@page
def tool(request: HttpRequest, visitor: Visitor, name: str) -> HttpResponse:
    """Everything that is known of the tool of this name."""
    return answer(request, visitor, name)


def answer(request: HttpRequest, visitor: Visitor, name: str, form: Form | None = None) -> HttpResponse:
    """The tool's page; ``form``: a pause that lacks something, its panel open again."""
    found = _listed(visitor, Tool.objects.filter(tenant_id=visitor.tenant_id, name=name))
    if not found:
        raise NotFound("There is no such write tool.")
    listed = found[0]
    context = {
        "listed": listed,
        "tool": listed.tool,
        "version": listed.version,
        "may": halts.may(visitor.actor),
        "facts": _facts(listed.version),
        "policy": Policy.objects.filter(tool=listed.tool).order_by("-version").first(),
        "versions": _versions(listed.tool),
        "observations": _observations(listed.promise.probe),
        "pauses": _pauses(listed.tool),
        "panel": form.panel if form else request.GET.get("panel", ""),
        "form": form,
    }
    return render(request, "approvals/tool.html", context, status=422 if form else 200)


def _facts(version: ToolVersion) -> list[tuple[str, str]]:
    """What the version says about time and care, in words."""
    return [
        ("Key window", length(version.key_window) if version.key_window else "none"),
        ("Settle time", f"{length(version.settle_time)}, by which the sink’s own records may lag behind"),
        ("Objective", f"an unknown outcome is settled within {length(version.objective)}"),
        ("Retry horizon", f"{length(version.retry_horizon)}, then what failed expires"),
        ("Content is kept", f"{length(version.retention)} after it is settled; keys for ever"),
        ("Dispatch delay", length(version.dispatch_delay) if version.dispatch_delay else "none"),
        ("In flight", f"at most {version.calls_in_flight} calls in one worker"),
        (
            "Second person",
            "needed for a word on an unknown outcome" if version.second_person else "not needed",
        ),
        (
            "Undone by",
            str(version.compensation.get("action", "–")) if version.compensation else "nothing declared",
        ),
    ]


def _versions(tool_: Tool) -> list[tuple[ToolVersion, str]]:
    """Every version, the newest first, each with what it changed."""
    rows = list(ToolVersion.objects.filter(tool=tool_).order_by("-number"))
    older = [*rows[1:], None]
    return [(each, _changed(each, before)) for each, before in zip(rows, older, strict=True)]


_COMPARED = (
    "title",
    "schema",
    "sentence",
    "resource",
    "enforcement",
    "connector",
    "sink",
    "order",
    "value_limits",
    "key_window",
    "sink_settings",
    "settle_time",
    "objective",
    "retry_horizon",
    "retention",
    "dispatch_delay",
    "calls_in_flight",
    "second_person",
    "probe_target",
    "compensation",
)


def _changed(version: ToolVersion, before: ToolVersion | None) -> str:
    if before is None:
        return "registered"
    names = [each for each in _COMPARED if getattr(version, each) != getattr(before, each)]
    return "changed " + (", ".join(name.replace("_", " ") for name in names) or "nothing")


@dataclass(frozen=True, slots=True)
class Observation:
    """What a probe tried, and what it saw."""

    claim: str
    holds: bool | None
    seen: str


def _observations(probe: Probe | None) -> list[Observation]:
    told = probe.observations if probe and isinstance(probe.observations, list) else []
    return [
        Observation(str(each.get("claim", "–")), each.get("holds"), str(each.get("seen", "")))
        for each in told
        if isinstance(each, dict)
    ]


def _pauses(tool_: Tool) -> list[Shown]:
    rows = Halt.objects.filter(tenant_id=tool_.tenant_id, tool=tool_).select_related("tool")
    now: datetime = clock.now()
    return halts_page.shown(rows.order_by("-began_at", "-pk")[:_MOST_HALTS], now=now)
