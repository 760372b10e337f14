"""The addresses of the REST interface, under /api/v1/."""

from django.urls import path, re_path

from approvals.api.cases import Cases, OneCase, Revisions, Withdrawal
from approvals.api.decisions import Decisions, Votes
from approvals.api.findings import Closure, ControlEvents, Findings
from approvals.api.operations import OneOperation, OneResource, Operations
from approvals.api.resolutions import Compensation, Lookups, Resolutions, Stop
from approvals.api.tools import Me, Tools

_KEY = "(?P<key>[0-9a-f]{40})"

urlpatterns = [
    path("cases", Cases.as_view(), name="api-cases"),
    path("cases/<int:case_id>", OneCase.as_view(), name="api-case"),
    path("cases/<int:case_id>/revisions", Revisions.as_view(), name="api-revisions"),
    path("cases/<int:case_id>/withdrawal", Withdrawal.as_view(), name="api-withdrawal"),
    path("cases/<int:case_id>/decisions", Decisions.as_view(), name="api-decisions"),
    path("cases/<int:case_id>/votes", Votes.as_view(), name="api-votes"),
    path("operations", Operations.as_view(), name="api-operations"),
    re_path(rf"^operations/{_KEY}\Z", OneOperation.as_view(), name="api-operation"),
    re_path(rf"^operations/{_KEY}/lookups\Z", Lookups.as_view(), name="api-lookups"),
    re_path(rf"^operations/{_KEY}/resolutions\Z", Resolutions.as_view(), name="api-resolutions"),
    re_path(rf"^operations/{_KEY}/stop\Z", Stop.as_view(), name="api-stop"),
    re_path(rf"^operations/{_KEY}/compensation\Z", Compensation.as_view(), name="api-compensation"),
    path("findings", Findings.as_view(), name="api-findings"),
    path("findings/<int:finding_id>/closure", Closure.as_view(), name="api-closure"),
    path("control-events", ControlEvents.as_view(), name="api-control-events"),
    path("resources/<path:name>", OneResource.as_view(), name="api-resource"),
    path("tools", Tools.as_view(), name="api-tools"),
    path("agents/me", Me.as_view(), name="api-me"),
]
