"""The statements of each app name its own tables only; import-linter cannot see into SQL."""

import re
from pathlib import Path

import pytest
from django.apps import apps

from accounts.sql import Queries

ROOT = Path(__file__).resolve().parents[2]
APPS = ["accounts", "ledger", "approvals", "workers"]
COMMENT = re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)

STATEMENTS = [
    pytest.param(app, statement, id=f"{app}:{name}")
    for app in APPS
    for path in sorted((ROOT / app).glob("*.sql"))
    for name, statement in Queries(path)
]


@pytest.mark.parametrize(("app", "statement"), STATEMENTS)
def test_a_statement_names_tables_of_its_own_app_only(app: str, statement: str) -> None:
    assert tables_of_others(app, statement) == set()


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT 1 FROM accounts_tenant",
        "SELECT 1 FROM ledger_operation o, accounts_tenant t WHERE o.tenant_id = t.id",
        "SELECT 1 FROM ledger_operation JOIN\n  public.accounts_tenant USING (id)",
        'UPDATE "accounts_tenant" SET name = 1',
        "DELETE FROM ledger_operation USING accounts_tenant",
        "WITH x AS (INSERT INTO ACCOUNTS_TENANT DEFAULT VALUES RETURNING id) SELECT id FROM x",
        "SELECT 'accounts_tenant'::regclass",
    ],
)
def test_a_statement_that_reaches_into_another_app_is_found(statement: str) -> None:
    assert tables_of_others("ledger", statement) == {"accounts_tenant"}


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT 1 FROM ledger_operation -- not accounts_tenant",
        "SELECT accounts_tenants FROM ledger_operation /* accounts_tenant */",
        "WITH tenant AS (SELECT 1) SELECT 1 FROM tenant",
    ],
)
def test_a_statement_that_stays_at_home_is_not(statement: str) -> None:
    assert tables_of_others("ledger", statement) == set()


def tables_of_others(app: str, statement: str) -> set[str]:
    """The statement's words that are tables of another app. Words, not clauses: no syntax can hide one."""
    words = set(re.findall(r"\w+", COMMENT.sub(" ", statement).lower()))
    models = apps.get_models(include_auto_created=True)
    return words & {model._meta.db_table for model in models if model._meta.app_label != app}
