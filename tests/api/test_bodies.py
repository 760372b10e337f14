"""What arrives in a body: I-JSON in UTF-8 and nothing looser. Refused is refused before anything is stored."""

import json
import time
from io import BytesIO
from typing import Any

import pytest
from django.test import RequestFactory

from approvals import parsers
from approvals.api.errors import MalformedBody
from approvals.models import Case, Proposal
from tests.api.conftest import REFUND, Answer, Caller, refund

TEXT = json.dumps(REFUND)


def with_parameters(text: str) -> bytes:
    """The usual proposal with these parameters, as they are written."""
    return TEXT.replace(json.dumps(REFUND["parameters"]), text).encode()


NOT_I_JSON = [
    b'{"amount":"1.00","amount":"9.00"}',
    with_parameters('{"payment":"ch_1842","amount_minor":100,"amount_minor":900,"currency":"EUR"}'),
    with_parameters('{"a":[{"b":{"qty":1,"qty":-1}}]}'),
    with_parameters('{"caf\u00e9":1,"cafe\u0301":2}'),
    with_parameters('{"\\u00c9":1,"E\\u0301":2}'),
    with_parameters('{"n":1,"\\u006e":2}'),
    with_parameters('{"n":NaN}'),
    with_parameters('{"n":Infinity}'),
    with_parameters('{"n":-Infinity}'),
    with_parameters('{"n":1e400}'),
    with_parameters('{"n":-1e999999999999999999999}'),
    with_parameters('{"n":' + "1" * 4301 + "}"),
    with_parameters('{"n":-' + "1" * 4301 + "}"),
    with_parameters('{"n":"\\ud83d"}'),
    with_parameters('{"n":"\\udc00\\ud83d"}'),
    with_parameters('{"\\ud83d":1}'),
    with_parameters('{"n":"a\\u0000b"}'),
    with_parameters('{"a\\u0000b":1}'),
    with_parameters('{"n":[[{"deep":"a\\u0000b"}]]}'),
    TEXT.replace("Parcel lost", "Parcel\\u0000lost").encode(),
    TEXT.replace("Parcel lost", "Parcel \\ud83d").encode(),
    TEXT.replace('"1842"', '"18\\u000042"').encode(),
    with_parameters('{"n":"a\x00b"}'),
    with_parameters('{"n":' + "[" * 32 + "]" * 32 + "}"),
    with_parameters('{"n":01}'),
    with_parameters('{"n":+1}'),
    with_parameters('{"n":.5}'),
    with_parameters('{"n":"a\nb"}'),
    with_parameters("{'n':1}"),
    with_parameters('{"n":1,}'),
    TEXT.encode() + b"x",
    TEXT.encode("utf-16"),
    TEXT.replace("transit", "transit\u00e9").encode("latin-1"),
    b"\xef\xbb\xbf" + TEXT.encode(),
    b'{"reference":"\xed\xa0\xbd"}',
    b'{"reference":"\xc0\x80"}',
    b"null x",
    b"{",
    b'"',
    b'"\\',
    b" ",
]


def test_what_is_not_i_json_is_refused_and_nothing_is_stored(agent: Caller) -> None:
    for body in NOT_I_JSON:
        refused = agent.send("/cases", body)
        assert (body, refused.status, refused.problem) == (body, 400, "malformed-body")
    assert (Case.objects.count(), Proposal.objects.count()) == (0, 0)


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 100_000,
        b"[" * 2_000 + b"]" * 2_000,
        b'{"a":' * 20_000,
        b'[{"a":' * 20_000 + b"1" + b"}]" * 20_000,
        b'"\\' * 100_000,
        b'"' * 200_000,
        b"[" + b"1" * 200_000,
    ],
)
def test_a_hostile_body_is_refused_at_once(agent: Caller, body: bytes) -> None:
    began = time.process_time()
    with pytest.raises(MalformedBody):
        parsers.parse(body)
    assert time.process_time() - began < 0.05

    assert agent.send("/cases", body).status == 400
    assert agent.propose().status == 201


def test_thirty_two_levels_are_read_and_brackets_in_strings_are_no_levels() -> None:
    deep = b'{"n":' + b"[" * 31 + b"]" * 31 + b"}"
    assert parsers.parse(deep)["n"][0]
    assert parsers.parse(b'["' + b"[" * 100 + b'\\"' + b"{" * 100 + b'"]') == ["[" * 100 + '"' + "{" * 100]
    with pytest.raises(MalformedBody):
        parsers.parse(b'{"n":' + b"[" * 32 + b"]" * 32 + b"}")


@pytest.mark.parametrize(
    "literal",
    [
        "9007199254740992",
        "9007199254740993",
        "-9007199254740992",
        "18014398509481984",
        "18446744073709551615",
        "1e16",
        "1e300",
        "1" * 4300,
        "19.999999999999999999",
        "0.1000000000000000000001",
        "9007199254740991.5",
        "1e-400",
        "0.0001e-99999999999999999999",
        "4.9e-325",
    ],
)
def test_a_number_that_json_does_not_carry_exactly_is_named(agent: Caller, literal: str) -> None:
    refused = agent.send("/cases", with_parameters('{"a/b":[0,{"n":' + literal + "}]}"))

    assert (refused.status, refused.problem) == (422, "invalid-request")
    assert refused.pointers == ["/parameters/a~1b/1/n"]


@pytest.mark.parametrize(
    ("literal", "value"),
    [
        ("9007199254740991", 9007199254740991),
        ("-9007199254740991", -9007199254740991),
        ("9007199254740991.0", 9007199254740991),
        ("1.0", 1),
        ("1e0", 1),
        ("10e-1", 1),
        ("-0", 0),
        ("-0.0", 0),
        ("0e999999999999", 0),
        ("0.1", 0.1),
        ("0.10", 0.1),
        ("1.5E+3", 1500),
        ("5e-324", 5e-324),
        ("12.34", 12.34),
        ("1." + "0" * 1000, 1),
    ],
)
def test_one_number_has_one_reading(literal: str, value: float) -> None:
    read = parsers.parse(f"[{literal}]".encode())[0]

    assert (read, type(read)) == (value, type(value))


def test_text_of_any_script_is_kept_as_it_was_sent(agent: Caller) -> None:
    words = "Müller \u05d0\u05d1 \U0001f4e6 cafe\u0301 \u2028 <b>&amp;"
    answer = agent.propose(rationale=words)

    assert (answer.status, answer.json["rationale"]) == (201, words)


# Size and media type.


def test_a_body_up_to_the_limit_is_read_and_one_over_it_is_not(agent: Caller) -> None:
    padding = parsers.MOST_BYTES - len(TEXT)

    assert agent.send("/cases", TEXT.encode() + b" " * (padding + 1)).problem == "body-too-large"
    assert agent.send("/cases", TEXT.encode() + b" " * (padding + 1)).status == 413
    assert agent.send("/cases", TEXT.encode() + b" " * padding).status == 201


def test_a_body_of_five_megabytes_is_too_large(agent: Caller) -> None:
    refused = agent.propose(rationale="x" * 5_000_000)

    assert (refused.status, refused.problem) == (413, "body-too-large")


@pytest.mark.parametrize(
    "media_type",
    [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "application/xml",
        "application/json-patch+json",
        "",
    ],
)
@pytest.mark.parametrize("size", [len(TEXT), 300_000])
def test_another_media_type_is_refused_by_key_and_by_session(
    agent: Caller, reviewer: Caller, case: Answer, media_type: str, size: int
) -> None:
    body = TEXT.encode().ljust(size)

    by_key = agent.send("/cases", body, content_type=media_type)
    assert (by_key.status, by_key.problem) == (415, "unsupported-media-type")
    address = f"/cases/{case.json['id']}/decisions"
    by_session = reviewer.send(address, body, content_type=media_type, **{"If-Match": case.etag})
    assert (by_session.status, by_session.problem) == (415, "unsupported-media-type")


def test_json_with_its_charset_named_is_json(agent: Caller) -> None:
    assert agent.send("/cases", TEXT.encode(), content_type="application/json; charset=utf-8").status == 201


def chunked(body: bytes, *, ended_by_server: bool = True) -> Any:
    """A request whose body has no announced length, as a server hands it over."""
    request = RequestFactory().generic("POST", "/api/v1/cases", HTTP_TRANSFER_ENCODING="chunked")
    request.META.pop("CONTENT_LENGTH", None)
    request.META |= {"wsgi.input": BytesIO(body), "wsgi.input_terminated": ended_by_server}
    parsers.measure_chunked(request)
    return request


@pytest.mark.parametrize("error", [OSError("no more"), ValueError("zz"), RuntimeError("of some server")])
def test_a_chunk_that_is_none_is_a_malformed_body(error: Exception) -> None:
    class Broken(BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            raise error

    request = RequestFactory().generic("POST", "/api/v1/cases", HTTP_TRANSFER_ENCODING="chunked")
    request.META.pop("CONTENT_LENGTH", None)
    request.META |= {"wsgi.input": Broken(), "wsgi.input_terminated": True}
    with pytest.raises(MalformedBody):
        parsers.measure_chunked(request)


def test_a_chunked_body_is_read_to_its_end_or_to_the_limit() -> None:
    assert chunked(b"[1]").read() == b"[1]"
    assert len(chunked(b" " * 5_000_000).read()) == parsers.MOST_BYTES + 1
    assert "CONTENT_LENGTH" not in chunked(b"[1]", ended_by_server=False).META


def test_an_announced_length_is_not_believed(agent: Caller) -> None:
    cut = agent.send("/cases", TEXT.encode(), CONTENT_LENGTH="10")
    assert (cut.status, cut.problem) == (400, "malformed-body")


def test_a_body_that_ends_too_early_is_not_taken_for_a_whole_one() -> None:
    request = RequestFactory().post("/", b"{}      ", content_type="application/json")

    assert parsers.StrictJSONParser().parse(BytesIO(b"{}      "), None, {"request": request}) == {}
    with pytest.raises(MalformedBody):
        parsers.StrictJSONParser().parse(BytesIO(b"{}"), None, {"request": request})


@pytest.mark.parametrize("name", ["ch_1842\r\nBcc: x@y", "ch_1842\n", "ch_", "\u202ech_1842"])
def test_a_parameter_is_what_the_whole_pattern_says(agent: Caller, name: str) -> None:
    refused = agent.propose(parameters=refund(payment=name))

    assert (refused.status, refused.pointers) == (422, ["/parameters/payment"])
