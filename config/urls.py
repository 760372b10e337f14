"""Where everything answers: the console at the root, the agents' API under /api/v1/, two probes for the platform."""

from django.urls import include, path

from config import documentation, health

urlpatterns = [
    path("livez", health.livez, name="livez"),
    path("readyz", health.readyz, name="readyz"),
    path("docs/errors", documentation.errors, name="errors"),
    path("api/v1/", include("approvals.api_urls")),
    path("", include("approvals.urls")),
]

handler400 = "config.problems.bad_request"
handler403 = "config.problems.forbidden"
handler404 = "config.problems.not_found"
handler500 = "config.problems.server_error"
