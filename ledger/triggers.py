"""Triggers that hold the state machines and the append-only tables for every writer, psql included.

Each refuses by calling the one shared function ``refuse(name)`` (made in the first migration), which raises
``check_violation`` with the rule's name as its CONSTRAINT: Django turns that into an IntegrityError that says
which rule was broken. ``SET pgtrigger.ignore`` cannot switch them off; the table's owner still can.
"""

import json
from typing import Any

import pgtrigger
from django.apps import apps
from django.db import models

from ledger.machines import declared_moves

REFUSE = """
CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE check_violation USING CONSTRAINT = TG_ARGV[0], TABLE = TG_TABLE_NAME,
        MESSAGE = format('%s on %I is refused: %s', TG_OP, TG_TABLE_NAME, TG_ARGV[0]);
END $$;
"""


class Refuse(pgtrigger.Trigger):
    """Refuses the operation where the condition holds; ``name`` is the sentence the refusal states."""

    when = pgtrigger.Before

    def get_func(self, model: Any) -> str:
        """The body of the function pgtrigger installs beside the trigger; never called."""
        return "RETURN NULL;"

    def render_execute(self, model: Any) -> str:
        """Calls the shared function with the rule's name."""
        return f"refuse('{self.name}')"


def insert_only(table: str) -> list[pgtrigger.Trigger]:
    """Rows of the table are written once: no update, no delete, no truncate."""
    return [
        Refuse(name=f"{table}_rows_are_insert_only", operation=pgtrigger.Update | pgtrigger.Delete),
        never_truncated(table),
    ]


class UnlessPruned(Refuse):
    """As Refuse, but for the one update that empties content of what has been pruned (``unless_pruned``, a migration).

    ``emptied`` says what each column of content becomes; ``pruned`` is (table, its column, our column) of the row
    that has to exist, and that its own trigger refuses before its time.
    """

    def __init__(self, *, emptied: dict[str, Any], pruned: tuple[str, str, str], **options: Any) -> None:
        super().__init__(**options)
        self.emptied, self.pruned = json.dumps(emptied), pruned

    def render_execute(self, model: Any) -> str:
        """Calls the shared function with the rule's name and what it needs to know of the table."""
        arguments = [f"'{each}'" for each in (self.name, self.emptied, *self.pruned)]
        return f"unless_pruned({', '.join(arguments)})"


class RefuseEarly(Refuse):
    """Calls a function of a migration that refuses an insert whose time has not come, by the rule's name."""

    operation = pgtrigger.Insert

    def __init__(self, *, function: str, **options: Any) -> None:
        super().__init__(**options)
        self.function = function

    def render_execute(self, model: Any) -> str:
        """Calls it with the rule's name."""
        return f"{self.function}('{self.name}')"


def insert_only_until_pruned(
    table: str, *, emptied: dict[str, Any], pruned: tuple[str, str, str]
) -> list[pgtrigger.Trigger]:
    """Rows of the table are written once; their content goes when it is pruned, the row itself never."""
    rule, operation = f"{table}_rows_are_insert_only", pgtrigger.Update | pgtrigger.Delete
    return [
        UnlessPruned(name=rule, operation=operation, emptied=emptied, pruned=pruned),
        never_truncated(table),
    ]


def never_deleted(table: str) -> list[pgtrigger.Trigger]:
    """Rows of the table change, but none goes away."""
    return [Refuse(name=f"{table}_rows_are_kept", operation=pgtrigger.Delete), never_truncated(table)]


def never_truncated(table: str) -> pgtrigger.Trigger:
    """The table is never emptied at once; TRUNCATE passes by row triggers."""
    return Refuse(name=f"{table}_is_never_truncated", operation=pgtrigger.Truncate, level=pgtrigger.Statement)


class DeclaredMovesOnly(Refuse):
    """Refuses every UPDATE whose (old state, new state) no ``@transition`` of the model declares."""

    operation = pgtrigger.Update

    def get_condition(self, model: models.Model) -> pgtrigger.Condition:
        """The negated list of declared moves, read from the model's FSM field."""
        # Migrations hand over a bare stand-in without methods; the declarations are on the real class.
        declaring = apps.get_model(model._meta.label)
        moves = ", ".join(f"('{source}', '{target}')" for source, target in declared_moves(declaring))
        return pgtrigger.Condition(f"NOT ((OLD.state, NEW.state) IN ({moves}))")


def changed(*columns: str) -> pgtrigger.Condition:
    """True where an update changes one of the columns."""
    old, new = (", ".join(f"{row}.{column}" for column in columns) for row in ("OLD", "NEW"))
    return pgtrigger.Condition(f"ROW({old}) IS DISTINCT FROM ROW({new})")
