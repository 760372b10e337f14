"""What an agent sends is data on every page: never HTML, never invisible, never cut off before the end."""

from typing import Any

import pytest

from approvals.models import Case
from approvals.templatetags import reveal
from config.demo import seed
from ledger.models import Finding
from ledger.states import AttemptOutcome
from tests import worlds
from tests.console.doors import at_the_console, words
from tests.worlds import World

pytestmark = pytest.mark.django_db

HIDDEN = {
    "\u202e": "U+202E",
    "\u2066": "U+2066",
    "\u200b": "U+200B",
    "\u00ad": "U+00AD",
    "\U000e0041": "U+E0041",
    "p\u0430y.example": "U+0430",
}
MARKUP = [
    "<img src=x onerror=alert(1)>",
    "</script><script>alert(1)</script>",
    '"><a href="javascript:alert(1)">x</a>',
    "{{1234567*2}}",
    "![x](https://tracker.example/p.png)",
    "</textarea></dialog>",
]
PAGES = ["/?view=all", "/cases/", "/search/?q=host"]


def open_tool(world: World) -> None:
    """A tool whose sentence carries the agent's own words."""
    seed.tool(
        world.tenant,
        "note",
        {
            **seed.REFUND,
            "sentence": "Note {text} on the order",
            "schema": {"type": "object"},
            "order": {"text": "{text}"},
            "amount_field": "",
            "currency_field": "",
        },
    )


def hostile(world: World, text: str) -> Case:
    """The text in every place an agent can put it, in two revisions that differ by it."""
    open_tool(world)
    everywhere: dict[str, Any] = {
        "parameters": {"text": text, text: [text, {"deep": text}]},
        "rationale": text,
        "evidence": [{"statement": text, "source": text, "fetched_at": text}],
    }
    case = worlds.proposed(world, "hostile", action="note", parameters={"text": "fine"})
    return worlds.revised(world, case, **everywhere)


def all_pages(world: World, text: str) -> list[str]:
    case, reviewer = hostile(world, text), at_the_console(world)
    stale = {"revision": "1", "digest": "0" * 64, "verdict": "reject", "reason": "x"}
    conflict = reviewer.send(case, stale).content.decode()
    pages = [reviewer.read(url) for url in PAGES]
    pending = reviewer.case(case)
    reviewer.decide(case, "approve")
    operation = worlds.operation(case)
    approved = reviewer.read(f"/cases/{case.pk}/")
    (grant,) = worlds.claim()
    worlds.recorded(grant, AttemptOutcome.UNCERTAIN)
    worlds.open_finding(world, case)
    finding = Finding.objects.get()
    return [
        *pages,
        pending,
        conflict,
        approved,
        reviewer.read("/operations/"),
        reviewer.read(f"/operations/{operation.order_id}/"),
        reviewer.read("/reconcile/", view="looking"),
        reviewer.read("/reconcile/", item=grant.key),
        reviewer.read("/reconcile/", view="findings", item=str(finding.pk)),
        reviewer.read("/conflicts/"),
        reviewer.read("/metrics/decisions/"),
    ]


@pytest.mark.parametrize("text", MARKUP)
def test_markup_is_inert_on_every_page(text: str, world: World) -> None:
    for page in all_pages(world, f"hostile {text} end"):
        assert "<img" not in page
        assert "<script>" not in page
        assert 'href="javascript' not in page
        assert "</textarea></dialog>" not in page
        assert "2469134" not in page
        assert text in words(page), "what was sent is shown as it is"


@pytest.mark.parametrize(("text", "code"), HIDDEN.items())
def test_what_cannot_be_seen_is_shown_as_its_code_on_every_page(text: str, code: str, world: World) -> None:
    hidden = [char for char in text if reveal.is_hidden(char)]
    for page in all_pages(world, f"hostile{text} end"):
        assert not any(char in page for char in hidden)
        assert code in page


def test_the_case_page_warns_of_what_is_hidden(world: World) -> None:
    page = words(at_the_console(world).case(hostile(world, "a\u202eb")))
    assert "hidden or look-alike characters in what the agent sent" in page


def test_a_payload_below_sixty_empty_lines_or_after_much_text_is_on_the_page(world: World) -> None:
    text = "fine" + "\n" * 60 + "x" * 200 + " rm -rf /"
    page = at_the_console(world).case(hostile(world, text))
    assert ">60 line breaks</span>" in page
    assert words(page).count("rm -rf /") >= 3


def test_a_name_an_agent_chose_is_no_markup_in_titles_and_labels(world: World) -> None:
    case = worlds.proposed(world, '1842"><b>x', target="</title><b>")
    page = at_the_console(world).case(case)
    assert "<b>x" not in page
    assert "</title><b>" not in page


def test_a_reviewers_own_words_are_escaped_too(world: World) -> None:
    case, reviewer = worlds.proposed(world), at_the_console(world)
    reviewer.decide(case, "reject", reason="</p><script>alert(1)</script>", reason_code="other")
    page = reviewer.case(case)
    assert "<script>alert" not in page
    assert "</p><script>alert(1)</script>" in words(page)
