"""Probes for the platform: the process answers; the database answers, and says whether the regular looks are made."""

from django.db import DatabaseError, connection
from django.http import HttpRequest, HttpResponse

from ledger.looks import Look, looks


def livez(_request: HttpRequest) -> HttpResponse:
    """200 while the process serves requests."""
    return HttpResponse("ok\n", content_type="text/plain")


def readyz(_request: HttpRequest) -> HttpResponse:
    """200 while the database answers, else 503: send no traffic here.

    A look that is late is told in a line of its own and leaves it at 200: it is the workers that are late, and a
    console that is taken out of traffic for it is missing just when somebody needs it.
    """
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
        lines = [_late(each) for each in looks() if each.late]
    except DatabaseError:
        return HttpResponse("database away\n", status=503, content_type="text/plain")
    return HttpResponse("\n".join([*lines, "ok", ""]), content_type="text/plain")


def _late(look: Look) -> str:
    return f"late: {look.name}, last made {look.ran_at:%Y-%m-%dT%H:%M:%SZ}"
