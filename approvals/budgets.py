"""Who may limit what is moved: an admin opens a budget, replaces and closes it. Its terms never change."""

from django.db import IntegrityError, transaction

from accounts.actors import Actor
from accounts.models import Agent, Role
from approvals.counting import counted_act
from approvals.errors import NotFound, NotPermitted, StateForbids
from ledger import budgets
from ledger.models import Budget, Tool
from ledger.states import BudgetSpan

_ACTION = "budget"
"""What control events about a budget name as their action."""
_CLOSED = "This budget is closed already. Look at the list for the one that is open now."


def may(actor: Actor) -> bool:
    """Whether this actor may open and close budgets."""
    return actor.has_role(Role.ADMIN)


def make(
    *, actor: Actor, span: BudgetSpan, currency: str, limit_minor: int, tool: str = "", agent: str = ""
) -> Budget:
    """Opens a budget of the actor's organisation, for the tool and agent of these names or for all.

    Raises NotPermitted, NotFound, ledger.money.UnknownCurrency; StateForbids where one is open for the same scope.
    """
    with counted_act(actor, _ACTION):
        _require(actor)
        try:
            with transaction.atomic():
                return budgets.make(
                    tenant_id=actor.tenant_id,
                    span=span,
                    currency=currency,
                    limit_minor=limit_minor,
                    by=actor.source,
                    tool_id=_named(Tool, actor, tool, "write tool"),
                    agent_id=_named(Agent, actor, agent, "agent"),
                )
        except IntegrityError as error:
            if "one_open_budget_per_scope" not in str(error):
                raise
            raise StateForbids(
                "There is an open budget for the same tool, agent, time and currency. Change its limit instead."
            ) from error


def replace(*, actor: Actor, budget_id: int, limit_minor: int) -> Budget:
    """Puts a budget of another limit in this one's place, at once; what the present period has counted counts on.

    Raises NotPermitted, NotFound; StateForbids where it is closed already.
    """
    with counted_act(actor, _ACTION):
        _require_open_to(actor, budget_id)
        made = budgets.replace(
            tenant_id=actor.tenant_id, budget_id=budget_id, limit_minor=limit_minor, by=actor.source
        )
        if made is None:
            raise StateForbids(_CLOSED)
        return made


def close(*, actor: Actor, budget_id: int) -> None:
    """Closes a budget: from now on nothing is counted by it. Raises NotPermitted, NotFound, StateForbids."""
    with counted_act(actor, _ACTION):
        _require_open_to(actor, budget_id)
        if not budgets.close(tenant_id=actor.tenant_id, budget_id=budget_id, by=actor.source):
            raise StateForbids(_CLOSED)


def _require(actor: Actor) -> None:
    if not may(actor):
        raise NotPermitted("Only an admin opens and closes budgets. Ask one.")


def _require_open_to(actor: Actor, budget_id: int) -> None:
    _require(actor)
    if not Budget.objects.filter(pk=budget_id, tenant_id=actor.tenant_id).exists():
        raise NotFound("There is no such budget. Open the list of budgets.")


def _named(kind: type[Tool] | type[Agent], actor: Actor, name: str, noun: str) -> int | None:
    if not name:
        return None
    rows = Tool.objects if kind is Tool else Agent.objects
    found = rows.filter(tenant_id=actor.tenant_id, name=name).first()
    if found is None:
        raise NotFound(f"There is no such {noun}. Choose one of the list.")
    return int(found.pk)
