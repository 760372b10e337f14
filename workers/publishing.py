"""Publishing a version of a write tool: its connector reads its settings before anybody can propose with it."""

from collections.abc import Mapping
from typing import Any

from ledger import tool_versions
from ledger.models import Tool, ToolVersion
from ledger.tool_versions import BadToolVersion
from workers import connectors
from workers.connectors import UnknownConnector
from workers.connectors.wire import BadSetting


def publish(*, tool: Tool, fields: Mapping[str, Any]) -> ToolVersion:
    """Registers the tool's next version, if its connector can use its ``sink_settings``. Raises BadToolVersion.

    Nothing is asked of the sink: whether it is there, and keeps what it promises, a probe shows.
    """
    try:
        connectors.identity(str(fields["connector"]), fields.get("sink_settings", {}))
    except UnknownConnector as unknown:
        raise BadToolVersion([f"connector: {unknown}"]) from unknown
    except BadSetting as bad:
        raise BadToolVersion([f"sink_settings: {bad}"]) from bad
    return tool_versions.publish(tool=tool, fields=fields)
