"""Publishing a version of a write tool: what is wrong with it is said before anybody can propose with it."""

import string
from collections.abc import Iterator, Mapping
from datetime import timedelta
from functools import lru_cache
from typing import Any

from django.db import transaction

from ledger import guarantees, schemas
from ledger.identity import canonical
from ledger.models import Operation, Tool, ToolVersion
from ledger.states import UNRESOLVED, EnforcementClass

_FACTS = ("reference", "action", "target", "step")
_FIXED = ("enforcement", "connector", "sink")


class BadToolVersion(ValueError):
    """The tool version cannot be published. Each fault says what to change."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__(" ".join(faults))
        self.faults = faults


def publish(*, tool: Tool, fields: Mapping[str, Any]) -> ToolVersion:
    """Registers the tool's next version; ``fields`` are those of a ToolVersion. Raises BadToolVersion.

    ``sink`` is which system owns the effect, as its connector names it. Sink, connector and class stay as they are
    while an operation of the tool is unresolved: it is to be looked for where it was sent.
    """
    with transaction.atomic():
        Tool.objects.select_for_update().get(pk=tool.pk)
        before = ToolVersion.objects.filter(tool=tool).order_by("-number").first()
        version = ToolVersion(tool=tool, number=before.number + 1 if before else 1, **fields)
        if faults := [*_faults(version), *_moved(version, before)]:
            raise BadToolVersion(faults)
        version.save(force_insert=True)
    return version


def _faults(version: ToolVersion) -> Iterator[str]:
    broken = _broken_schema(canonical(version.schema))
    if broken is not None:
        yield f"schema: {broken}"
    else:
        yield from _unknown_names(version)
    yield from _times(version)
    yield from _limits(version)


@lru_cache(maxsize=200)
def _broken_schema(schema: str) -> str | None:
    return schemas.fault_of_schema(schema)


def _unknown_names(version: ToolVersion) -> Iterator[str]:
    """Names that no parameter can have; a schema that is open lets an agent send any."""
    if version.schema.get("additionalProperties", True) is not False:
        return
    known = {*version.schema.get("properties", {}), *_FACTS}
    for field in ("amount_field", "currency_field"):
        name = getattr(version, field)
        if name and name not in known:
            yield f"{field}: the schema has no {name}."
    words = {*known, *({"amount"} if version.amount_field else ())}
    for field, names in (("sentence", words), ("resource", known), ("order", known)):
        for name in _names_in(getattr(version, field)):
            if name not in names:
                yield f"{field}: {{{name}}} is neither a parameter of the schema nor a fact."


def _names_in(template: Any) -> Iterator[str]:
    if isinstance(template, dict):
        for value in template.values():
            yield from _names_in(value)
    elif isinstance(template, list):
        for value in template:
            yield from _names_in(value)
    elif isinstance(template, str):
        yield from (
            name for _text, name, _spec, _how in string.Formatter().parse(template) if name is not None
        )


def _times(version: ToolVersion) -> Iterator[str]:
    window = version.key_window
    if version.enforcement == EnforcementClass.PROVIDER_KEY and not (window and window > timedelta(0)):
        yield "key_window: say how long the sink keeps a key."
    if window and version.retry_horizon < window:
        yield "retry_horizon: an identity must outlive the key window."
    if version.retention < version.retry_horizon:
        yield "retention: content must outlive the retry horizon."


def _limits(version: ToolVersion) -> Iterator[str]:
    if not version.amount_field or version.value_limits:
        return
    if version.enforcement == EnforcementClass.NONE:
        yield "value_limits: a sink that promises nothing needs a limit per action."
    elif not guarantees.is_proven(version):
        yield "value_limits: a tool needs a limit per action until a probe has seen its promise hold."


def _moved(version: ToolVersion, before: ToolVersion | None) -> Iterator[str]:
    """What may not change while an operation is unresolved. Names of secrets may."""
    if before is None:
        return
    moved = [name for name in _FIXED if getattr(version, name) != getattr(before, name)]
    if moved and Operation.objects.filter(tool_id=version.tool_id, state__in=UNRESOLVED).exists():
        yield f"{', '.join(moved)}: settle the tool's unresolved operations first; they are looked for where they went."
