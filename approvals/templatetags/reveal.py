"""Show agent-supplied text as data: nothing in it is HTML, and nothing in it is invisible."""

import re
import unicodedata
from collections.abc import Iterator

from django.utils.html import escape, format_html
from django.utils.safestring import SafeString, mark_safe

# Controls, formats (bidi, zero-width, tags), line and paragraph separators, private, surrogate, unassigned.
HIDDEN_CATEGORIES = frozenset({"Cc", "Cf", "Zl", "Zp", "Co", "Cs", "Cn"})

# Code points of ordinary categories that draw nothing or draw an empty box.
BLANKS = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")

# Spaces people do write: plain, no-break, narrow no-break (1 250), ideographic.
ORDINARY_SPACES = frozenset("\u0020\u00a0\u202f\u3000")

# Scripts with letters one can take for Latin ones. Han or kana beside Latin is everyday writing.
CONFUSABLE_SCRIPTS = frozenset({"CYRILLIC", "GREEK", "COPTIC", "ARMENIAN", "CHEROKEE", "LISU"})

# Cyrillic and Greek letters drawn like a Latin one: a word of only these could pass for Latin.
LATIN_DOUBLES = frozenset("асеорхуіјѕһԁԛԝАВСЕНІЈКМОРЅТХУԌԚԜοανρυικτΑΒΕΖΗΙΚΜΝΟΡΤΥΧ")

# More line breaks than this in a row are counted instead of drawn, so that no text hides below a void.
MOST_LINE_BREAKS = 2

TOKEN = re.compile(r"(?:\r?\n)+|\w+|.", re.DOTALL)


def reveal(text: str) -> SafeString:
    """Return `text` as safe HTML in which every hidden or look-alike character is a chip naming it."""
    suspects = find_lookalike_words(text)
    pieces = "".join(_draw(token, suspects) for token in TOKEN.findall(text))
    return format_html('<bdi class="revealed">{}</bdi>', mark_safe(pieces))  # noqa: S308  escaped


def plain(text: str) -> str:
    """Return `text` for places that take no markup (titles, labels): hidden characters as [U+XXXX]."""
    return "".join(f"[{_code(char)}]" if is_hidden(char) else char for char in text)


def count_oddities(text: str) -> int:
    """Count the characters that `reveal` would draw as chips; ordinary line breaks are none."""
    suspects = find_lookalike_words(text)
    return sum(_count(token, suspects) for token in TOKEN.findall(text))


def is_hidden(char: str) -> bool:
    """Say whether a reader could overlook this character altogether."""
    if char in ORDINARY_SPACES:
        return False
    category = unicodedata.category(char)
    return category in HIDDEN_CATEGORIES or category == "Zs" or char in BLANKS or _is_variation_selector(char)


def find_lookalike_words(text: str) -> dict[str, frozenset[str]]:
    """Map each word that may pass for another one to the letters in it which are not what they seem."""
    words = set(re.findall(r"\w+", text))
    found = {word: _odd_letters(word) for word in words}
    if not any(_is_plainly_foreign(word) for word in words):
        found |= {word: _letters(word) for word in words if _could_pass_for_latin(word)}
    return {word: odd for word, odd in found.items() if odd}


def _odd_letters(word: str) -> frozenset[str]:
    by_script: dict[str, set[str]] = {}
    for char in word:
        if char.isalpha():
            by_script.setdefault(_script(char), set()).add(char)
    styled = by_script.pop("STYLED", set())
    mixed = {script: letters for script, letters in by_script.items() if script in CONFUSABLE_SCRIPTS}
    if "LATIN" in by_script:
        return frozenset(styled.union(*mixed.values()))
    if len(mixed) > 1:
        rarest = min(mixed.values(), key=len)
        return frozenset(styled | rarest)
    return frozenset(styled)


def _script(char: str) -> str:
    if char.isascii():
        return "LATIN"
    name = unicodedata.name(char, "")
    first = name.partition(" ")[0]
    # 𝐩𝐚𝐲 and ｐａｙ are letters of a font, not of a language
    return "STYLED" if first in {"MATHEMATICAL", "FULLWIDTH", "DOUBLE-STRUCK", "SCRIPT"} else first


def _could_pass_for_latin(word: str) -> bool:
    return bool(_letters(word)) and _letters(word) <= LATIN_DOUBLES


def _is_plainly_foreign(word: str) -> bool:
    """Real Russian or Greek has letters no Latin word has; in such a text its short words are no trap."""
    scripts = {_script(char) for char in _letters(word)}
    return bool(scripts) and scripts <= CONFUSABLE_SCRIPTS and not _could_pass_for_latin(word)


def _letters(word: str) -> frozenset[str]:
    return frozenset(char for char in word if char.isalpha())


def _draw(token: str, suspects: dict[str, frozenset[str]]) -> str:
    if token.endswith("\n"):
        return _draw_line_breaks(token.count("\n"))
    odd = suspects.get(token, frozenset())
    return "".join(_draw_char(char, odd) for char in token)


def _draw_char(char: str, odd: frozenset[str]) -> str:
    if is_hidden(char):
        return _chip(char)
    if char in odd:
        return format_html("<mark>{}</mark>{}", char, _chip(char))
    return escape(char)


def _draw_line_breaks(count: int) -> str:
    if count > MOST_LINE_BREAKS:
        return format_html('<span class="uchar">{} line breaks</span><br>', count)
    return '<span class="newline" aria-hidden="true">↵</span><br>' * count


def _chip(char: str) -> SafeString:
    name = unicodedata.name(char, "unnamed character").capitalize()
    return format_html('<span class="uchar" title="{}">{}</span>', name, _code(char))


def _code(char: str) -> str:
    return f"U+{ord(char):04X}"


def _is_variation_selector(char: str) -> bool:
    return "\ufe00" <= char <= "\ufe0f" or "\U000e0100" <= char <= "\U000e01ef"


def _count(token: str, suspects: dict[str, frozenset[str]]) -> int:
    if token.endswith("\n"):
        return 1 if token.count("\n") > MOST_LINE_BREAKS else 0
    odd = suspects.get(token, frozenset())
    return sum(is_hidden(char) or char in odd for char in token)


def leaves(value: object) -> Iterator[str]:
    """Yield every text inside a value as it comes out of a proposal: strings, keys, and those nested."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield str(key)
            yield from leaves(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from leaves(inner)
