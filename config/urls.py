"""Where everything answers: the console, the agents' API under /api/v1/, and the platform's probes and numbers."""

from django.urls import include, path

from config import documentation, health, inbound, metrics

urlpatterns = [
    path("livez", health.livez, name="livez"),
    path("readyz", health.readyz, name="readyz"),
    path("metrics", metrics.metrics, name="prometheus"),
    path("hooks/<int:tool_id>", inbound.receive, name="inbound"),
    path("docs/errors", documentation.errors, name="errors"),
    path("api/v1/", include("approvals.api_urls")),
    path("", include("approvals.urls")),
]

handler400 = "config.problems.bad_request"
handler403 = "config.problems.forbidden"
handler404 = "config.problems.not_found"
handler500 = "config.problems.server_error"
