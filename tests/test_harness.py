"""The tests' own tools do what the other tests take for granted."""

import pytest
from django.core.management import call_command
from django.db import IntegrityError

from accounts.models import Tenant
from ledger.control_events import record
from ledger.models import ControlEvent
from ledger.states import ControlEventKind
from tests.browser_support import NewPage, Watch, accessibility_problems, find_chromium, stays_here

HTML = "data:text/html,<html lang=en><title>t</title><main><h1>t</h1>"


@pytest.mark.django_db(transaction=True)
def test_a_flush_empties_a_table_that_refuses_to_forget_and_leaves_it_refusing() -> None:
    record_something()
    with pytest.raises(IntegrityError):
        ControlEvent.objects.all().delete()

    call_command("flush", verbosity=0, interactive=False)

    assert not ControlEvent.objects.exists()
    assert not Tenant.objects.exists()
    record_something()
    with pytest.raises(IntegrityError):
        ControlEvent.objects.all().delete()


def record_something() -> None:
    tenant = Tenant.objects.create(name="Northwind")
    record(tenant_id=tenant.id, kind=next(iter(ControlEventKind)), source="queue", action="refund")


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("<script>null.x</script>", "script error: Cannot read properties of null"),
        ("<script>console.error('no')</script>", "console: no"),
        ("<img src=https://example.org/a.png>", "request to another machine: https://example.org/a.png"),
    ],
)
def test_a_page_that_goes_wrong_is_noticed(body: str, problem: str, new_page: NewPage, watch: Watch) -> None:
    new_page().goto(HTML + body, wait_until="load")

    assert any(problem in noticed for noticed in watch.problems)
    watch.problems.clear()


def test_an_error_that_the_test_provokes_is_allowed(new_page: NewPage, watch: Watch) -> None:
    watch.allow("meant so")

    new_page().goto(HTML + "<script>console.error('meant so')</script>")


def test_axe_finds_what_a_screen_reader_would_miss(new_page: NewPage) -> None:
    page = new_page()
    page.goto(HTML + "<img src=data:,>")

    assert [problem.split(":")[0] for problem in accessibility_problems(page)] == ["image-alt"]


@pytest.mark.parametrize(
    ("url", "stays"),
    [
        ("http://127.0.0.1:8000/", True),
        ("http://[::1]:8000/", True),
        ("http://localhost/", True),
        ("data:text/html,x", True),
        ("http://127.0.0.1.example.org/", False),
        ("https://example.org/", False),
        ("http://10.0.0.1/", False),
    ],
)
def test_only_this_machine_counts_as_here(url: str, stays: bool) -> None:
    assert stays_here(url) is stays


def test_a_browser_that_is_not_there_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHROMIUM", "/nowhere/chromium")

    with pytest.raises(pytest.UsageError, match=r"CHROMIUM=/nowhere/chromium is no program"):
        find_chromium()
