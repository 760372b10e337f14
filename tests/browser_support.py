"""A real Chromium for the tests of pages. A browser that cannot be found is an error, not a skip.

Every page is watched: a script error, an error on the console or a request to another machine fails the
test that caused it, unless the test says beforehand that it means it (`watch.allow`).
"""

import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

import pytest
from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import Browser, ConsoleMessage, Page, expect, sync_playwright
from pytest_django.live_server_helper import LiveServer

# tests/install_chromium.sh looks for the same names.
CHROMIUM_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = [
    "--no-sandbox",  # root has no user namespace to put it in
    "--disable-gpu",
    "--disable-quic",
    "--disable-sync",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE localhost, EXCLUDE 127.0.0.1",
]
PATIENCE = 30_000  # milliseconds for a page or an element to appear

NewPage = Callable[..., Page]


expect.set_options(timeout=PATIENCE)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """One process per module. While it lives, an event loop runs in this thread, and Django must not mind."""
    with pytest.MonkeyPatch.context() as patch, sync_playwright() as playwright:
        patch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def watch() -> Iterator["Watch"]:
    watch = Watch()
    yield watch
    assert watch.problems == []


@pytest.fixture
def new_page(chromium: Browser, watch: "Watch") -> Iterator[NewPage]:
    """Opens a page in a session of its own; takes the options of Playwright's `new_context`."""
    contexts = []

    def open_page(**options: Any) -> Page:
        context = chromium.new_context(**options)
        contexts.append(context)
        context.set_default_timeout(PATIENCE)
        page = context.new_page()
        watch.follow(page)
        return page

    yield open_page
    for context in contexts:
        context.close()


@pytest.fixture
def page(new_page: NewPage, live_server: LiveServer) -> Page:
    """A page on the running product: `page.goto("/cases/")`."""
    return new_page(base_url=live_server.url)


class Watch:
    """What went wrong in the pages of one test."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self._allowed: list[str] = []

    def allow(self, pattern: str) -> None:
        """For a test that provokes an error, say a refusal: `watch.allow("status of 409")`."""
        self._allowed.append(pattern)

    def follow(self, page: Page) -> None:
        page.on("console", self._on_console)
        page.on("pageerror", lambda error: self._note(f"script error: {error}"))
        page.on("request", lambda request: self._on_request(request.url))

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self._note(f"console: {message.text} ({message.location.get('url', '')})")

    def _on_request(self, url: str) -> None:
        if not stays_here(url):
            self._note(f"request to another machine: {url}")

    def _note(self, problem: str) -> None:
        if not any(re.search(pattern, problem) for pattern in self._allowed):
            self.problems.append(problem)


def stays_here(url: str) -> bool:
    """Whether a request for this address stays on this machine."""
    address = urlsplit(url)
    if address.scheme in {"about", "blob", "data"}:
        return True
    try:
        return ip_address(address.hostname or "").is_loopback
    except ValueError:
        return address.hostname == "localhost"


def accessibility_problems(page: Page, *, only: Sequence[str] = ()) -> list[str]:
    """What axe has to say about the page as it stands, by all of its rules or some: rule, and where it is broken."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE_SCRIPT)
    found: list[str] = page.evaluate(_VIOLATIONS, {**_AXE_OPTIONS, **({"runOnly": [*only]} if only else {})})
    return found


# What is right is not described. Stylesheets and sounds are not loaded once more: no rule that is on reads the
# stylesheets' text, and there are no sounds.
_AXE_OPTIONS = {"resultTypes": ["violations"], "preload": False}
_VIOLATIONS = """async (options) => (await axe.run(options)).violations.flatMap(
    (rule) => rule.nodes.map((node) => `${rule.id}: ${node.target} ${node.html}`))"""


def find_chromium() -> str:
    named = os.environ.get("CHROMIUM")
    found = shutil.which(named) if named else next(filter(None, map(shutil.which, CHROMIUM_NAMES)), None)
    if not found:
        what = (
            f"CHROMIUM={named} is no program"
            if named
            else f"None of {', '.join(CHROMIUM_NAMES)} is installed"
        )
        raise pytest.UsageError(
            f"{what}. `sh tests/install_chromium.sh` installs it, or set CHROMIUM to its path."
        )
    return found
