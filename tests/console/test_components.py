"""How the console writes values, above all text that an agent supplied and that may try to deceive."""

import unicodedata
from datetime import UTC, datetime, timedelta

import pytest
import time_machine
from django.http import HttpRequest, HttpResponse
from django.template import Context, Template
from django.urls import path
from hypothesis import given
from hypothesis import strategies as st

from approvals.states import CaseState, Verdict
from approvals.templatetags import console, reveal, states, times
from ledger.states import OperationState

NOON = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)

HOSTILE_MARKUP = [
    "<img src=x onerror=alert(1)>",
    "</script><script>alert(1)</script>",
    '"><a href="javascript:alert(1)">refund policy</a>',
    "{{7*7}} {% load console states times %}",
    "![x](https://tracker.example/pixel.png)",
    "&lt;b&gt;",
]


def render(source: str, **context: object) -> str:
    return Template("{% load console states times %}" + source).render(Context(context))


# Agent-supplied text


@pytest.mark.parametrize(
    ("char", "code"),
    [
        ("\u202e", "U+202E"),  # right-to-left override
        ("\u2066", "U+2066"),  # isolate
        ("\u200b", "U+200B"),  # zero-width space
        ("\u00ad", "U+00AD"),  # soft hyphen
        ("\U000e0041", "U+E0041"),  # tag letter
        ("\u2028", "U+2028"),  # line separator
        ("\x00", "U+0000"),
        ("\x1b", "U+001B"),
        ("\t", "U+0009"),
        ("\ue000", "U+E000"),  # private use
        ("\ufdd0", "U+FDD0"),  # unassigned for good
        ("\u3164", "U+3164"),  # Hangul filler: a letter that draws nothing
        ("\ufe0f", "U+FE0F"),  # variation selector
        ("\u2003", "U+2003"),  # em space
    ],
)
def test_a_hidden_character_is_shown_as_a_chip_that_names_it(char: str, code: str) -> None:
    html = render("{{ text|revealed }}", text=f"pay{char}pal")
    assert char not in html
    assert f">{code}</span>" in html
    assert reveal.count_oddities(f"pay{char}pal") == 1


@pytest.mark.parametrize("text", HOSTILE_MARKUP)
@pytest.mark.parametrize(
    "source",
    ["{{ text|revealed }}", "{% sentence text 100 'EUR' %}", "{{ text|as_json }}", "{{ text|plain }}"],
)
def test_markup_from_an_agent_is_inert_text(text: str, source: str) -> None:
    html = render(source, text=text)
    assert "<img" not in html
    assert "<script" not in html
    assert "<a " not in html
    assert "49" not in html


def test_markup_from_an_agent_is_inert_inside_the_title_of_a_copied_identifier() -> None:
    assert "<img" not in render("{% identifier text 'key' %}", text=HOSTILE_MARKUP[0])


@given(st.text())
def test_no_text_whatever_leaves_a_hidden_character_or_a_bare_bracket_in_the_page(text: str) -> None:
    html = reveal.reveal(text)
    assert not [char for char in html if unicodedata.category(char) in reveal.HIDDEN_CATEGORIES]
    body = html.removeprefix('<bdi class="revealed">').removesuffix("</bdi>")
    for tag in ('<span class="uchar"', '<span class="newline"', "</span>", "<br>", "<mark>", "</mark>"):
        body = body.replace(tag, "")
    assert body.count("<") == 0


@given(st.text())
def test_a_title_never_holds_a_hidden_character(text: str) -> None:
    assert not any(reveal.is_hidden(char) for char in reveal.plain(text))


def test_a_cyrillic_letter_in_a_latin_domain_is_marked_and_named() -> None:
    assert "p<mark>а</mark>" in render("{{ text|revealed }}", text="pаypal.example")
    assert ">U+0430</span>" in render("{{ text|revealed }}", text="pаypal.example")


def test_a_word_made_only_of_letters_that_look_latin_is_marked() -> None:
    assert reveal.count_oddities("log in at сосо.example") == 4


def test_letters_of_a_mathematical_or_fullwidth_font_are_marked() -> None:
    assert reveal.count_oddities("𝐩ay ｐaypal") == 2


@pytest.mark.parametrize(
    "text",
    [
        "Fäll-1, Zahlung an Empfänger:Ü für 1 250,00 €",
        "Возврат за потерянный заказ, а не за опоздание",
        "Επιστροφή χρημάτων για την παραγγελία",
        "返金 Tシャツ 2枚",
        "سداد الفاتورة",
        "5 µm, 3 × 4, ‘quoted’, naïve – dash…",
    ],
)
def test_honest_text_in_any_language_is_left_alone(text: str) -> None:
    assert reveal.count_oddities(text) == 0
    assert "uchar" not in reveal.reveal(text)


def test_sixty_line_breaks_are_counted_so_that_what_follows_is_seen() -> None:
    html = reveal.reveal("fine" + "\n" * 60 + "rm -rf")
    assert ">60 line breaks</span><br>rm -rf" in html
    assert html.count("<br>") == 1
    assert reveal.count_oddities("fine" + "\n" * 60 + "rm -rf") == 1


def test_an_ordinary_line_break_is_drawn_and_is_nothing_odd() -> None:
    assert reveal.reveal("one\r\ntwo").count("<br>") == 1
    assert reveal.count_oddities("one\r\ntwo\n\nthree") == 0


def test_a_long_text_is_shown_whole() -> None:
    assert "x" * 5000 + "rm" in reveal.reveal("x" * 5000 + "rm")


def test_oddities_are_counted_through_nested_parameters_and_their_names() -> None:
    value = {"no\u200bte": ["a", {"memo": "\u202eb"}], "amount": 3}
    assert render("{% count_oddities value 'c\u2066' %}", value=value) == "3"


def test_raw_json_shows_the_direction_override_it_contains() -> None:
    html = render("{{ value|as_json }}", value={"memo": "a\u202eb", "n": 1})
    assert "\u202e" not in html
    assert "U+202E" in html


# Money


@pytest.mark.parametrize(
    ("minor", "currency", "written"),
    [
        (125_000, "EUR", "1,250.00"),
        (18_900, "JPY", "18,900"),
        (1_500, "KWD", "1.500"),
        (5, "EUR", "0.05"),
        (0, "JPY", "0"),
    ],
)
def test_money_is_written_with_the_digits_of_its_currency(minor: int, currency: str, written: str) -> None:
    assert render("{{ minor|money:currency }}", minor=minor, currency=currency) == written


def test_the_amount_in_a_sentence_is_the_only_bold_part() -> None:
    html = render("{% sentence text 125000 'EUR' %}", text="Refund 1,250.00 EUR to J. Meyer")
    assert html.count("<b>") == 1
    assert "<b>1,250.00 EUR</b>" in html


def test_a_sentence_inside_another_begins_small_and_keeps_its_abbreviations() -> None:
    assert ">refund it</bdi>" in render("{% sentence 'Refund it.' inside=True %}")
    assert ">PDF sent</bdi>" in render("{% sentence 'PDF sent' inside=True %}")


# Time


@time_machine.travel(NOON, tick=False)
@pytest.mark.parametrize(
    ("passed", "written"),
    [
        (timedelta(0), "just now"),
        (timedelta(seconds=59), "59 s ago"),
        (timedelta(minutes=41, seconds=59), "41 min ago"),
        (timedelta(hours=25), "25 h ago"),
        (timedelta(days=3), "3 days ago"),
    ],
)
def test_past_time_is_relative(passed: timedelta, written: str) -> None:
    assert times.ago(NOON - passed) == written


@time_machine.travel(NOON, tick=False)
def test_a_deadline_is_rounded_down_and_never_negative() -> None:
    assert times.until(NOON + timedelta(minutes=19, seconds=59)) == "19 min"
    assert times.until(NOON - timedelta(seconds=1)) == "over"


@time_machine.travel(NOON, tick=False)
def test_a_moment_is_shown_relative_and_absolute_with_its_zone() -> None:
    html = render("{% when moment %}", moment=NOON - timedelta(minutes=41))
    assert "41 min ago" in html
    assert "11:19 UTC" in html
    assert 'datetime="2026-11-30T11:19:00+00:00"' in html


@time_machine.travel(NOON, tick=False)
def test_another_day_is_named_beside_the_time() -> None:
    assert times.clock(NOON - timedelta(days=2)) == "28 Nov 12:00"
    assert times.day(NOON - timedelta(days=2)) == "28 Nov"
    assert times.clock(NOON - timedelta(days=400)).startswith("26 Oct 2025")


# States, identifiers, counts


@pytest.mark.parametrize("state", [*CaseState, *OperationState])
def test_every_state_has_a_word_and_a_shape_or_an_outline(state: str) -> None:
    html = render("{% state_badge state %}", state=state)
    assert states.look(state).word in html
    assert 'class="badge"' in html or 'class="review"' in html


def test_approved_is_an_outline_and_never_wears_the_colour_of_an_effect() -> None:
    html = render("{% state_badge 'approved' %}")
    assert 'data-review="approved"' in html
    assert "data-state" not in html


def test_a_started_operation_whose_lease_is_over_is_drawn_as_unknown() -> None:
    assert 'data-state="outcome_unknown"' in render("{% state_badge 'started' lease_over=True %}")
    assert 'data-state="started"' in render("{% state_badge 'started' lease_over=False %}")


def nowhere(request: HttpRequest, case_id: int) -> HttpResponse:
    return HttpResponse()


urlpatterns = [
    path("cases/<int:case_id>/", nowhere, name="case"),
    path("cases/<int:case_id>/decisions/", nowhere, name="decisions"),
]


@pytest.mark.urls(__name__)
@pytest.mark.parametrize("verdict", [*Verdict, "withdraw"])
def test_every_verdict_has_a_button_and_a_panel_bound_to_revision_and_digest(verdict: str) -> None:
    digest = "9f2c" * 16
    html = render(
        "{% include act.verdict|panel_template %}",
        act={"verdict": str(verdict), "why": ""},
        case={"id": 1, "revision": 6, "target": "order:1"},
        proposal={"sentence": "Refund it", "digest": digest},
        panel="",
    )
    assert console.button(verdict).label
    assert states.said(verdict)
    assert f'name="verdict" value="{verdict}"' in html
    assert 'name="revision" value="6"' in html
    assert f'name="digest" value="{digest}"' in html
    assert " open>" not in html


@pytest.mark.parametrize(
    ("attempts", "sends", "state", "written"),
    [
        (2, 1, "committed", "2 attempts, 1 send, 1 effect"),
        (0, 0, "not_started", "no attempt, nothing sent"),
        (1, 0, "failed_before_commit", "1 attempt, no send, no effect"),
        (2, 1, "outcome_unknown", "2 attempts, 1 send, effect not known"),
    ],
)
def test_attempts_sends_and_effects_are_counted_apart(
    attempts: int, sends: int, state: str, written: str
) -> None:
    assert states.tally(attempts, sends, state) == written


def test_an_identifier_is_shortened_in_the_middle_and_copied_whole() -> None:
    key = "8cacf0d228544a7a24ed04c3bd448547535be36d"
    html = render("{% identifier key 'action key' %}", key=key)
    assert "8cacf0d2…be36d" in html
    assert f'data-copy="{key}"' in html
    assert console.shorten("re_3PqK") == "re_3PqK"


@pytest.mark.parametrize(
    ("name", "letters"), [("Ana Ruiz", "AR"), ("refund-agent", "RA"), ("Bo", "B"), ("", "?")]
)
def test_a_face_shows_initials(name: str, letters: str) -> None:
    assert console.initials(name) == letters


def test_a_tier_fills_one_bar_more_than_its_level() -> None:
    assert render("{% tier 2 %}").count('class="off"') == 1
    assert render("{% tier 0 %}").count('class="off"') == 3


def test_an_icon_is_hidden_from_screen_readers() -> None:
    assert 'aria-hidden="true"' in render("{% icon 'inbox' %}")
