"""The one clock: the database's. Leases, windows and deadlines are never judged by a worker's own."""

from datetime import datetime

from django.db import connection


def now() -> datetime:
    """The database's time at this moment, not the transaction's beginning: a lock may have been waited for."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        moment: datetime = cursor.fetchone()[0]
    return moment
