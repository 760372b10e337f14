"""What every list of the console shares: the query in its URL, filters, tabs and pages."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar
from urllib.parse import urlencode

from django.db.models import Model, QuerySet
from django.http import QueryDict

ROWS = 50
"""Rows on one page of a list."""
_LONGEST_VALUE = 200  # characters; the longest thing one can look for is a target
_LAST_PAGE = 10_000

M = TypeVar("M", bound=Model)


@dataclass(frozen=True, slots=True)
class Query:
    """The known part of a list's URL. What is not known is dropped, so that links made of it are ours alone."""

    path: str
    values: dict[str, str]

    @classmethod
    def read(cls, path: str, told: QueryDict, *names: str) -> "Query":
        """The values of these names and the page, without characters a database cannot look for."""
        return cls(path, {name: _clean(told.get(name, "")) for name in (*names, "page")})

    def __getitem__(self, name: str) -> str:
        return self.values[name]

    @property
    def page(self) -> int:
        """The number of the page asked for, from 1."""
        text = self.values["page"]
        is_number = text.isascii() and text.isdigit() and len(text) < 6
        return min(max(int(text), 1), _LAST_PAGE) if is_number else 1

    def but(self, **changes: str) -> "Query":
        """The same query with some values changed."""
        return Query(self.path, {**self.values, **changes})

    def url(self, **changes: str) -> str:
        """The list's address with some values changed; another page only if asked for."""
        return f"{self.path}?{self.encoded(**changes)}"

    def encoded(self, **changes: str) -> str:
        """The values as they stand in a URL, with some changed; the page is left out unless asked for."""
        values = {**self.values, "page": "", **changes}
        return urlencode({name: value for name, value in values.items() if value})


def _clean(text: str) -> str:
    return text.strip().replace("\0", "\N{REPLACEMENT CHARACTER}")[:_LONGEST_VALUE]


@dataclass(frozen=True, slots=True)
class Tab:
    """One view of a list and how many rows it has."""

    url: str
    label: str
    count: int | None
    current: bool
    state: str = ""


@dataclass(frozen=True, slots=True)
class Filter:
    """One filter: a choice among names, or, without options, a text."""

    name: str
    label: str
    value: str
    options: list[dict[str, str]] = field(default_factory=list)

    @property
    def chosen(self) -> str:
        """The value as the filter shows it."""
        labels = {each["value"]: each["label"] for each in self.options}
        return labels.get(self.value, self.value)


def choice(query: Query, name: str, label: str, among: Sequence[str]) -> Filter:
    """A filter by one of the names; a value that is none of them stays visible, since it filters everything out."""
    names = list(among) if not query[name] or query[name] in among else [*among, query[name]]
    return Filter(name, label, query[name], [{"value": each, "label": each} for each in names])


def in_words(filters: Sequence[Filter]) -> str:
    """The filters that are on: ``the tool “refund” and the agent “refund-agent”``."""
    return " and ".join(f"the {each.label.lower()} “{each.chosen}”" for each in filters if each.value)


@dataclass(frozen=True, slots=True)
class Page:
    """Which rows of how many are shown, and where the others are."""

    first: int
    last: int
    total: int
    newer_url: str
    older_url: str


def cut(rows: QuerySet[M], query: Query, *, total: int) -> tuple[list[M], Page]:
    """The rows of the page asked for, or of the last one there is."""
    number = min(query.page, max((total + ROWS - 1) // ROWS, 1))
    start = (number - 1) * ROWS
    shown = list(rows[start : start + ROWS])
    return shown, Page(
        first=start + 1 if shown else 0,
        last=start + len(shown),
        total=total,
        newer_url=query.url(page=_page(number - 1)) if number > 1 else "",
        older_url=query.url(page=_page(number + 1)) if start + ROWS < total else "",
    )


def _page(number: int) -> str:
    return str(number) if number > 1 else ""


def cursor(text: str) -> int | None:
    """The number of the row after which a list goes on; None: from its beginning."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None
