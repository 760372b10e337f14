"""Write tools: finding one, checking parameters against it, rendering what it would do."""

import json
import re
import string
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from uuid import UUID

from django.db import connection

from ledger import schemas
from ledger.identity import canonical
from ledger.models import ToolVersion
from ledger.money import UnknownCurrency, digits, format_money
from ledger.schemas import Fault, pointer


class UnknownTool(Exception):
    """There is no write tool of this name. GET /api/v1/tools lists those there are."""

    def __init__(self) -> None:
        super().__init__(self.__doc__)


@dataclass(frozen=True, slots=True)
class Rendered:
    """What a tool version makes of one action: the words, the resource, the request, the money."""

    sentence: str
    resource: str
    body: str
    amount_minor: int | None
    currency: str | None


def current_version(*, tenant_id: UUID, name: str) -> ToolVersion:
    """The newest version of the tenant's tool. Raises UnknownTool."""
    version = (
        ToolVersion.objects.select_related("tool")
        .filter(tool__tenant_id=tenant_id, tool__name=name)
        .order_by("-number")
        .first()
    )
    if version is None:
        raise UnknownTool
    return version


def newest_versions(tool_ids: Iterable[int]) -> dict[int, ToolVersion]:
    """{tool id: its newest version}."""
    with connection.cursor() as cursor:
        cursor.execute(_NEWEST, [list(tool_ids)])
        return {tool_id: version(version_id) for tool_id, version_id in cursor.fetchall()}


_NEWEST = """
SELECT DISTINCT ON (tool_id) tool_id, id FROM ledger_toolversion
WHERE tool_id = ANY(%s) ORDER BY tool_id, number DESC
"""


@lru_cache(maxsize=1000)  # tool versions never change, so they need no eviction rule
def version(version_id: int) -> ToolVersion:
    """The version of this number in the table, with its tool; kept in memory."""
    return ToolVersion.objects.select_related("tool").get(pk=version_id)


def faults(version: ToolVersion, parameters: Mapping[str, Any]) -> list[Fault]:
    """What keeps these parameters from being rendered: schema, currency, value limit. Empty: nothing."""
    found = schemas.faults(_validator(version.pk), parameters, "parameters")
    return found or _money_faults(version, parameters)


def _money_faults(version: ToolVersion, parameters: Mapping[str, Any]) -> list[Fault]:
    amount, currency = money(version, parameters)
    if amount is None or currency is None:
        return []
    try:
        digits(currency)
    except UnknownCurrency as unknown:
        return [Fault(pointer("parameters", version.currency_field), str(unknown))]
    # JSON Schema takes 1250.0 for an integer; the sink would be sent what nobody typed.
    if isinstance(amount, float):
        return [Fault(pointer("parameters", version.amount_field), "Write minor units as a whole number.")]
    if over := over_limit(version, amount, currency):
        return [Fault(pointer("parameters", version.amount_field), over)]
    return []


def over_limit(version: ToolVersion, amount_minor: int | None, currency: str | None) -> str | None:
    """Why the amount is above what the tool may move in one action, or None."""
    limits: Mapping[str, int] = version.value_limits
    if not limits or amount_minor is None or currency is None:
        return None
    if currency not in limits:
        return f"This tool has no value limit for {currency}; it moves {', '.join(sorted(limits))}."
    if amount_minor > limits[currency]:
        return f"This tool moves at most {format_money(limits[currency], currency)} in one action."
    return None


def render(
    version: ToolVersion, *, facts: Mapping[str, str | int], parameters: Mapping[str, Any]
) -> Rendered:
    """Fills the version's templates. ``parameters`` must have no faults."""
    amount, currency = money(version, parameters)
    values: dict[str, Any] = {**parameters, **facts}
    words = dict(values)
    if amount is not None and currency is not None:
        words["amount"] = format_money(amount, currency)
    return Rendered(
        sentence=_fill(version.sentence, words),
        resource=_fill(version.resource, values),
        body=canonical(_fill_tree(version.order, values)),
        amount_minor=amount,
        currency=currency,
    )


def fill(template: Any, values: Mapping[str, Any]) -> Any:
    """The JSON template with every member in braces filled, as an order's is; one that stands alone keeps its type."""
    return _fill_tree(template, values)


def money(version: ToolVersion, parameters: Mapping[str, Any]) -> tuple[int | None, str | None]:
    """The minor units and currency the parameters name, or (None, None) for a tool that moves no money."""
    if not version.amount_field:
        return None, None
    return parameters.get(version.amount_field), parameters.get(version.currency_field)


@lru_cache(maxsize=1000)
def _validator(version_id: int) -> Any:
    return schemas.validator(version(version_id).schema)


_WHOLE = re.compile(r"\{(\w+)\}", re.ASCII)


class _Words(string.Formatter):
    """``str.format`` without attribute and index access, conversions or format specs."""

    def get_field(self, field_name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, str]:
        if not field_name.isidentifier():
            raise ValueError(f"A template names a member in braces, not {field_name!r}.")
        return kwargs.get(field_name, "–"), field_name

    def format_field(self, value: Any, format_spec: str) -> str:
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _fill(template: str, values: Mapping[str, Any]) -> str:
    return _Words().vformat(template, (), values)


def _fill_tree(template: Any, values: Mapping[str, Any]) -> Any:
    """Fills every string of a JSON template; ``"{amount_minor}"`` alone keeps the value's own type."""
    if isinstance(template, dict):
        filled = {name: _fill_tree(value, values) for name, value in template.items()}
        return {name: value for name, value in filled.items() if value is not None}
    if isinstance(template, list):
        return [_fill_tree(value, values) for value in template]
    if isinstance(template, str):
        if whole := _WHOLE.fullmatch(template):
            return values.get(whole[1])
        return _fill(template, values)
    return template
