"""The console's addresses."""

from django.contrib.auth.views import LogoutView
from django.urls import path, register_converter

from approvals.console import (
    case,
    cases,
    decisions,
    operation,
    operations,
    preferences,
    queue,
    search,
    sign_in,
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
    path("search/", search.search, name="search"),
    path("preferences/", preferences.preferences, name="preferences"),
    path("organisation/", sign_in.organisation, name="organisation"),
    path("sign-in/", sign_in.SignIn.as_view(), name="sign-in"),
    path("sign-out/", LogoutView.as_view(), name="sign-out"),
]
