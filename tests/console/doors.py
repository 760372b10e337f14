"""People at the console, as Django's test client sees them: they open pages and send the forms that stand there."""

import re
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any

from django.test import Client
from django.test.client import ClientHandler

from accounts.models import Member
from approvals.models import Case
from tests.worlds import World

# Middleware is loaded once for all, as a server does.
_handler = ClientHandler(enforce_csrf_checks=False)


def new_client() -> Client:
    """A browser without a session."""
    client = Client()
    client.handler = _handler
    return client


@dataclass(slots=True)
class Person:
    """A signed-in member. Whatever is opened is read as text; whatever is sent is a form."""

    member: Member
    client: Client = field(default_factory=new_client)

    def __post_init__(self) -> None:
        self.client.force_login(self.member.user)
        session = self.client.session
        session["member_id"] = self.member.pk
        session.save()

    def open(self, url: str, **query: str) -> Any:
        """The answer to a GET."""
        return self.client.get(url, query)

    def read(self, url: str, **query: str) -> str:
        """The text of a page that opens."""
        answer = self.open(url, **query)
        assert answer.status_code == 200, f"{url} answered {answer.status_code}"
        html: str = answer.content.decode()
        return html

    def case(self, case: Case, **query: str) -> str:
        """The text of the case's page."""
        return self.read(f"/cases/{case.pk}/", **query)

    def form(self, case: Case, verdict: str) -> dict[str, str]:
        """The form of the panel, as it stands on the case's page now."""
        found = panel(self.case(case), verdict)
        assert found, f"there is no panel to {verdict}"
        return found

    def send(self, case: Case, form: dict[str, str], **typed: str) -> Any:
        """The answer to the panel's form with something typed into it."""
        return self.client.post(f"/cases/{case.pk}/decisions/", {**form, **typed})

    def decide(self, case: Case, verdict: str, **typed: str) -> Any:
        """Opens the case, fills in the panel and sends it."""
        return self.send(case, self.form(case, verdict), **typed)


def at_the_console(world: World, handle: str = "reviewer") -> Person:
    """The world's member of this handle, signed in."""
    return Person(world.member(handle))


def raw_form(case: Case, verdict: str, **changes: str) -> dict[str, str]:
    """What the panel would send for the case as it is given, whether or not the page offers it."""
    return {
        "revision": str(case.revision),
        "digest": case.proposal.digest,
        "verdict": verdict,
        **changes,
    }


def panel(html: str, verdict: str) -> dict[str, str]:
    """The named fields of a panel's form and their values; empty where the page has no such panel."""
    reader = _Fields(f"panel-{verdict}")
    reader.feed(html)
    return reader.fields


class _Fields(HTMLParser):
    def __init__(self, wanted: str) -> None:
        super().__init__()
        self._wanted = wanted
        self._inside = False
        self._text_field = ""
        self.fields: dict[str, str] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        if tag == "dialog":
            self._inside = attributes.get("id") == self._wanted
        name = attributes.get("name")
        if self._inside and tag in {"input", "select", "textarea"} and name:
            self.fields[name] = attributes.get("value") or ""
            self._text_field = name if tag == "textarea" else ""

    def handle_endtag(self, tag: str) -> None:
        if tag == "textarea":
            self._text_field = ""

    def handle_data(self, data: str) -> None:
        if self._text_field:
            self.fields[self._text_field] += data


def words(answer: Any) -> str:
    """What a person reads on a page, or in an answer: its text, without tags and doubled spaces."""
    html: str = answer if isinstance(answer, str) else answer.content.decode()
    reader = _Text()
    reader.feed(re.sub(r"<(script|style|head).*?</\1>", " ", html, flags=re.DOTALL))
    return re.sub(r"\s+", " ", "".join(reader.text))


class _Text(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.text.append(" " if tag in _BLOCKS else "")

    def handle_endtag(self, tag: str) -> None:
        self.text.append(" " if tag in _BLOCKS else "")

    def handle_data(self, data: str) -> None:
        self.text.append(data)


_BLOCKS = {"br", "button", "dd", "div", "dt", "h1", "h2", "li", "p", "section", "summary", "td", "th", "tr"}
