"""Who may limit what is moved: an admin opens a budget and closes it. Its terms never change."""

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
                "There is an open budget for the same tool, agent, time and currency. Close it first."
            ) from error


def close(*, actor: Actor, budget_id: int) -> None:
    """Closes a budget: from now on nothing is counted by it. Raises NotPermitted, NotFound, StateForbids."""
    with counted_act(actor, _ACTION):
        _require(actor)
        if not Budget.objects.filter(pk=budget_id, tenant_id=actor.tenant_id).exists():
            raise NotFound("There is no such budget. Open the list of budgets.")
        if not budgets.close(tenant_id=actor.tenant_id, budget_id=budget_id, by=actor.source):
            raise StateForbids("This budget is closed already.")


def _require(actor: Actor) -> None:
    if not may(actor):
        raise NotPermitted("Only an admin opens and closes budgets. Ask one.")


def _named(kind: type[Tool] | type[Agent], actor: Actor, name: str, noun: str) -> int | None:
    if not name:
        return None
    rows = Tool.objects if kind is Tool else Agent.objects
    found = rows.filter(tenant_id=actor.tenant_id, name=name).first()
    if found is None:
        raise NotFound(f"There is no such {noun}. Choose one of the list.")
    return int(found.pk)
