"""Entity tags: exactly one strong tag as we gave it, or the one weakening proxies are known to do; never a guess."""

import pytest

from approvals.tags import MalformedPrecondition, PreconditionRequired, Tag, parse, tag_of
from tests.worlds import World, current, proposed, revised, tag


def test_a_tag_names_revision_and_digest(world: World) -> None:
    case = proposed(world)
    assert str(tag_of(current(case))) == f'"1-{case.proposal.digest[:8]}"'
    assert parse(str(tag(case))) == tag(case)
    assert tag(case).matches(current(case))


def test_a_tag_of_an_earlier_revision_matches_no_more(world: World) -> None:
    case = proposed(world)
    seen = tag(case)
    revised(world, case, amount_minor=1)
    assert not seen.matches(current(case))


@pytest.mark.parametrize(
    "header",
    ['"6-9f2c41ab"', 'W/"6-9f2c41ab"', '"6-9f2c41ab-gzip"', 'W/"6-9f2c41ab-br"', ' "6-9f2c41ab"\t'],
)
def test_what_a_proxy_may_do_to_a_tag_is_undone(header: str) -> None:
    assert parse(header) == Tag(6, "9f2c41ab")


def test_no_header_is_no_precondition_and_that_is_refused() -> None:
    with pytest.raises(PreconditionRequired):
        parse(None)


@pytest.mark.parametrize(
    "header",
    [
        "",
        "*",
        "6-9f2c41ab",
        "'6-9f2c41ab'",
        '"6-9f2c41ab", "7-9f2c41ab"',
        '"6-9f2c41ab""',
        '"６-9f2c41ab"',
        'W/"6"',
        '"6-9f2c41ab"\n',
        'w/"6-9f2c41ab"',
        'W/ "6-9f2c41ab"',
    ],
)
def test_anything_else_is_malformed_never_no_precondition(header: str) -> None:
    with pytest.raises(MalformedPrecondition):
        parse(header)


@pytest.mark.parametrize(
    "header",
    [
        '"*"',
        '"0-9f2c41ab"',
        '"06-9f2c41ab"',
        '"-6-9f2c41ab"',
        '"6-9F2C41AB"',
        '"6-9f2c41a"',
        '"6-9f2c41abc"',
        '"6"',
        '"v6-9f2c41ab"',
        '"2147483648-9f2c41ab"',
        '"99999999999999-9f2c41ab"',
        '"6-9f2c41ab-zstd"',
    ],
)
def test_a_strong_tag_that_was_never_given_is_well_formed_and_matches_nothing(header: str) -> None:
    assert parse(header) == Tag(0, "")
