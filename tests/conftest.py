"""What every test can rely on. PostgreSQL comes from `embedded_postgres`, Chromium from `browser_support`."""

from collections.abc import Iterator, Sequence

import pytest
from django.conf import settings
from django.contrib.contenttypes.management import create_contenttypes
from django.core.management.color import Style
from django.db.backends.postgresql.operations import DatabaseOperations
from django.db.models.signals import post_migrate
from django.test import override_settings
from pytest_django import DjangoDbBlocker

from tests import databases

pytest_plugins = ["tests.browser_support"]

MADE_BY_MIGRATIONS = {"django_content_type", "auth_permission"}


@pytest.fixture(autouse=True, scope="session")
def quick_passwords() -> Iterator[None]:
    """A good password hasher takes a third of a second a person; nobody attacks a test."""
    with override_settings(PASSWORD_HASHERS=["django.contrib.auth.hashers.MD5PasswordHasher"]):
        yield


@pytest.fixture(autouse=True, scope="session")
def folder_of_static_files() -> None:
    """WhiteNoise warns where there is none, and warnings are errors here."""
    settings.STATIC_ROOT.mkdir(parents=True, exist_ok=True)


@pytest.fixture(scope="session")
def django_db_setup(django_test_environment: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """In place of pytest-django's: a copy of a database that is migrated once, however many processes there are.

    Lets tests that commit clean up after themselves, in spite of the tables that refuse to forget.
    """
    with django_db_blocker.unblock():
        databases.make_template()
    # On the class: while an event loop runs in a thread, Django gives it a connection of its own.
    DatabaseOperations.sql_flush = _delete_without_triggers  # type: ignore[assignment,method-assign]
    # Django makes these rows again after every such test; we never take them away.
    post_migrate.disconnect(create_contenttypes)
    post_migrate.disconnect(dispatch_uid="django.contrib.auth.management.create_permissions")
    with databases.copy_of_template():
        yield


def _delete_without_triggers(
    operations: DatabaseOperations,
    style: Style,
    tables: Sequence[str],
    *,
    reset_sequences: bool = False,
    allow_cascade: bool = False,
) -> list[str]:
    """Django's own TRUNCATE is refused by the append-only tables, and slower than DELETE on a few rows.

    Triggers and foreign keys are off for this one transaction; that takes a superuser.
    """
    emptied = sorted(set(tables) - MADE_BY_MIGRATIONS)
    deletions = [f"DELETE FROM {operations.quote_name(table)}" for table in emptied]
    return ["SET LOCAL session_replication_role = replica", *deletions]
