"""The console's addresses."""

from django.contrib.auth.views import LogoutView
from django.urls import path, register_converter

from approvals.console import (
    budgets,
    case,
    cases,
    conflicts,
    decided,
    decisions,
    evidence,
    halting,
    halts,
    metrics,
    operation,
    operations,
    preferences,
    queue,
    reconcile,
    resolving,
    search,
    sign_in,
    tools,
)


class OperationName:
    """An operation's number, or its idempotency key."""

    regex = "[0-9]{1,18}|[0-9a-f]{40}"

    def to_python(self, value: str) -> str:
        """As it stands."""
        return value

    def to_url(self, value: object) -> str:
        """As it stands."""
        return str(value)


register_converter(OperationName, "operation_name")

urlpatterns = [
    path("", queue.queue, name="queue"),
    path("cases/", cases.cases, name="cases"),
    path("cases/<int:case_id>/", case.case, name="case"),
    path("cases/<int:case_id>/decisions/", decisions.decide, name="decisions"),
    path("operations/", operations.operations, name="operations"),
    path("operations/<operation_name:name>/", operation.operation, name="operation"),
    path("conflicts/", conflicts.conflicts, name="conflicts"),
    path("reconcile/", reconcile.reconcile, name="reconcile"),
    path("reconcile/findings/<int:finding_id>/close/", resolving.close_finding, name="close-finding"),
    path("reconcile/findings/<int:finding_id>/mute/", resolving.mute_finding, name="mute-finding"),
    path("reconcile/<operation_name:key>/", resolving.resolve, name="resolve"),
    path("reconcile/<operation_name:key>/look-up/", resolving.look_up, name="look-up"),
    path("reconcile/<operation_name:key>/stop/", resolving.stop, name="stop"),
    path("reconcile/<operation_name:key>/compensate/", resolving.compensate, name="compensate"),
    path("metrics/", metrics.metrics, name="metrics"),
    path("metrics/decisions/", decided.decisions, name="decisions-made"),
    path("tools/", tools.tools, name="tools"),
    path("tools/<path:name>/", tools.tool, name="tool"),
    path("halts/", halts.page_of_halts, name="halts"),
    path("halts/begin/", halting.begin, name="halt"),
    path("halts/end/", halting.end, name="resume"),
    path("budgets/", budgets.page_of_budgets, name="budgets"),
    path("budgets/make/", budgets.make, name="make-budget"),
    path("budgets/<int:budget_id>/replace/", budgets.replace, name="replace-budget"),
    path("budgets/<int:budget_id>/close/", budgets.close, name="close-budget"),
    path("evidence/", evidence.evidence, name="evidence"),
    path("search/", search.search, name="search"),
    path("preferences/", preferences.preferences, name="preferences"),
    path("organisation/", sign_in.organisation, name="organisation"),
    path("sign-in/", sign_in.SignIn.as_view(), name="sign-in"),
    path("sign-out/", LogoutView.as_view(), name="sign-out"),
]
