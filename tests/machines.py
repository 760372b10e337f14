"""Trying every move of a state machine, through every door an UPDATE can come in by."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest
from django.db import IntegrityError, connection, models, transaction

from tests.worlds import broken_rule, triggers_off

Row = models.Model
Columns = Mapping[str, Any]


def by_raw_sql(row: Row, columns: Columns) -> None:
    """What psql would do."""
    assignments = ", ".join(f"{name} = %s" for name in columns)
    with connection.cursor() as cursor:
        cursor.execute(
            f"UPDATE {row._meta.db_table} SET {assignments} WHERE {row._meta.pk.column} = %s",
            [*columns.values(), row.pk],
        )
        assert cursor.rowcount == 1


def by_queryset_update(row: Row, columns: Columns) -> None:
    """Past every method of the model."""
    assert type(row)._base_manager.filter(pk=row.pk).update(**columns) == 1


def by_bulk_update(row: Row, columns: Columns) -> None:
    """Past `save` as well."""
    assert type(row)._base_manager.bulk_update([_changed(row, columns)], list(columns)) == 1


def by_save(row: Row, columns: Columns) -> None:
    """By setting the attribute, as if the state were any column."""
    _changed(row, columns).save(update_fields=list(columns))


DOORS = [by_raw_sql, by_queryset_update, by_bulk_update, by_save]
Door = Callable[[Row, Columns], None]


def _changed(row: Row, columns: Columns) -> Row:
    changed = type(row)._base_manager.get(pk=row.pk)
    for name, value in columns.items():
        setattr(changed, name, value)
    return changed


def put(row: Row, columns: Columns) -> None:
    """Brings the row where the test begins, past the triggers; its CHECK constraints still hold."""
    with triggers_off():
        by_queryset_update(row, columns)


def refused(rule: str, act: Callable[[], object]) -> None:
    """The act is refused by the database, and the refusal names this rule."""
    with pytest.raises(IntegrityError) as refusal, transaction.atomic():
        act()
    assert broken_rule(refusal.value) == rule


def accepted(act: Callable[[], object]) -> None:
    """The act is accepted; it is undone again, so that the row can be used for the next."""
    with transaction.atomic():
        act()
        transaction.set_rollback(True)


def moves_the_trigger_allows(table: str, trigger: str) -> set[tuple[str, str]]:
    """The (old, new) pairs in the installed trigger, read from the database's own catalogue."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_get_triggerdef(oid) FROM pg_trigger WHERE tgrelid = %s::regclass AND tgname ~ %s",
            [table, f"^pgtrigger_{trigger}_"],
        )
        rows = cursor.fetchall()
    assert len(rows) == 1, f"{trigger} is installed {len(rows)} times"
    return set(
        re.findall(r"old\.state\)::text = '(\w+)'::text\) AND \(\(new\.state\)::text = '(\w+)'", rows[0][0])
    )


def states_of(pairs: Iterable[tuple[str, str]]) -> set[str]:
    """Every state the pairs name."""
    return {state for pair in pairs for state in pair}
