"""What the logs tell: keys, tokens and traces of a whole operation, and nothing of what anybody wrote in it."""

import io
import logging
import logging.config
from collections.abc import Iterator

import pytest
from django.conf import settings
from django.db import DatabaseError, IntegrityError, OperationalError, transaction
from django.test import Client

from approvals.models import Case, Proposal
from config.logs import Line
from ledger.states import AttemptOutcome
from tests import worlds
from tests.console.doors import at_the_console
from tests.workers.test_performance import carry_out
from tests.workers.told import Told, told, tool_of_the_told_sink
from tests.worlds import World, world
from workers import outcomes, trail
from workers.connectors.answers import Receipt

__all__ = ["told", "world"]

pytestmark = pytest.mark.django_db

SECRETS = ["ch_SECRET1", "LAUNDRY-RATIONALE", "EVIDENCE-WORDS", "SINKWORDS", "RECEIPTWORDS", "87654"]
FORMAT = "{asctime} {levelname} {name} {message}"
TRACE = "0af7651916cd43dd8448eb211c80319c"


@pytest.fixture
def written() -> Iterator[io.StringIO]:
    """Everything that any logger writes, at the lowest level, as the product writes it."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(Line(FORMAT, style="{"))
    root, level = logging.getLogger(), logging.getLogger().level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield stream
    root.removeHandler(handler)
    root.setLevel(level)


def test_a_whole_operation_leaves_keys_and_traces_and_nothing_of_its_content(
    world: World, told: Told, written: io.StringIO
) -> None:
    tool_of_the_told_sink(world)
    case = _proposed(world)
    reviewer = at_the_console(world)
    reviewer.read(f"/search/?q={SECRETS[0]}")
    reviewer.decide(case, "approve", reason=SECRETS[1])
    told.answer = ValueError(f"{SECRETS[3]} 402 for {SECRETS[0]}")
    (grant,) = worlds.claim()
    trail.granted([grant], worker="worker-a")
    carry_out(grant)
    told.found = RuntimeError(f"{SECRETS[3]}\nforged line key={'0' * 40}")
    worlds.make_due()
    (again,) = worlds.take_over(worker=worlds.WORKER)
    carry_out(again)
    worlds.make_due()
    (last,) = worlds.take_over(worker=worlds.WORKER)
    # What the database refuses is quoted by it; and a receipt that is no JSON is quoted by whoever reads it.
    outcomes.record([worlds.report(last, receipt=f"{SECRETS[4]}\0", reference="re_1")])
    told.answer = Receipt("re_2", "succeeded", {"words": SECRETS[4]})
    trail.ended([worlds.report(last, AttemptOutcome.UNCERTAIN)])

    text = written.getvalue()
    assert [secret for secret in SECRETS if secret in text] == []
    assert "forged line" not in text
    assert f"granted key={grant.key} tool=told attempt=1 token={grant.token} worker=worker-a" in text
    assert f"ended key={grant.key}" in text
    assert f"outcome=uncertain state=outcome_unknown sent=yes trace={TRACE}" in text
    assert "builtins.ValueError" in text
    assert "/workers/performance.py" in text


def _proposed(world: World) -> Case:
    parameters = {"payment": SECRETS[0], "amount_minor": int(SECRETS[5]), "currency": "EUR"}
    body = {
        "reference": "1842",
        "action": "told",
        "target": "order:88213",
        "step": 1,
        "parameters": parameters,
        "expects": {},
        "rationale": SECRETS[1],
        "evidence": [{"statement": SECRETS[2], "source": "x"}],
        "trace_id": TRACE,
    }
    headers = {"authorization": f"Bearer {world.organisation.agent_key}"}
    client = Client(headers=headers)
    answer = client.post("/api/v1/cases", body, content_type="application/json")
    assert answer.status_code == 201, answer.content
    wrong = client.post("/api/v1/cases", {**body, "step": SECRETS[2]}, content_type="application/json")
    assert wrong.status_code == 422
    return Case.objects.get()


def test_what_the_database_quotes_of_a_row_is_not_written_but_its_rule_is(
    world: World, written: io.StringIO
) -> None:
    proposal = worlds.proposed(world, rationale=SECRETS[1]).proposal
    copy = {f"{name}_id": getattr(proposal, f"{name}_id") for name in ("tenant", "tool_version", "policy")}
    copy |= {"material": SECRETS[0], "rationale": SECRETS[1], "expires_at": None}
    with pytest.raises(IntegrityError, match=SECRETS[1]) as refused, transaction.atomic():
        Proposal.objects.create(**copy)
    logging.getLogger("test").error("refused", exc_info=refused.value)
    assert SECRETS[1] not in written.getvalue()
    assert "psycopg.errors.NotNullViolation [23502]" in written.getvalue()


def test_words_about_a_connection_are_kept_on_one_line(written: io.StringIO) -> None:
    try:
        try:
            raise OperationalError("connection refused\nDETAIL: SINKWORDS")
        except OperationalError as away:
            raise DatabaseError(SECRETS[0]) from away
    except DatabaseError:
        logging.getLogger("test").exception("away: %s", "a\nb")
    text = written.getvalue()
    assert "django.db.utils.OperationalError: connection refused" in text
    assert "away: a\\x0ab" in text
    assert [secret for secret in SECRETS if secret in text] == []


def test_the_product_writes_its_own_lines_this_way() -> None:
    formatters = settings.LOGGING["formatters"]
    assert formatters == {"line": {"()": "config.logs.Line", "format": FORMAT, "style": "{"}}
