"""Probes for the platform: the process answers; the database answers."""

from django.db import DatabaseError, connection
from django.http import HttpRequest, HttpResponse


def livez(_request: HttpRequest) -> HttpResponse:
    """200 while the process serves requests."""
    return HttpResponse("ok\n", content_type="text/plain")


def readyz(_request: HttpRequest) -> HttpResponse:
    """200 while the database answers, else 503: send no traffic here."""
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except DatabaseError:
        return HttpResponse("database away\n", status=503, content_type="text/plain")
    return HttpResponse("ok\n", content_type="text/plain")
