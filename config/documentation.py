"""The page behind the ``type`` of every problem: docs/errors.md, each error under its own anchor."""

import re

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.template.loader import get_template
from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe


def errors(_request: HttpRequest) -> HttpResponse:
    """What each error means and what to do next; for everybody, since a program's author has no session."""
    text = (settings.BASE_DIR / "docs" / "errors.md").read_text(encoding="utf-8")
    page = get_template("docs/errors.html")
    return HttpResponse(page.render({"blocks": [_block(each) for each in text.split("\n\n")]}))


def _block(text: str) -> dict[str, str | SafeString]:
    """A heading or a paragraph of Markdown, as far as that page uses it."""
    for kind, mark in (("name", "## "), ("title", "# ")):
        if text.startswith(mark):
            return {"kind": kind, "words": text.removeprefix(mark).strip()}
    words = re.sub("`([^`]+)`", r"<code>\1</code>", escape(text.strip()))
    return {"kind": "words", "words": mark_safe(words)}  # noqa: S308  escaped in the line above
