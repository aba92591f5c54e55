"""Our own interfaces: API, gateway, command line, MCP and dashboard. The sender reads the reply where it wrote."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from switchboard.domain.envelope import Envelope
from switchboard.ports.channel import Channel, Found


def _session(envelope: Envelope) -> Found:
    return {"session_id": envelope.event.external_thread_id or envelope.sender.identity}


_DASHBOARD: Final = Channel(name="dashboard", providers=frozenset({"internal"}), replies="interface", personal=True)
_CLI: Final = replace(_DASHBOARD, name="cli", facts=_session, keys={"session_id": "text"})
CHANNELS: Final = (
    _DASHBOARD,
    _CLI,
    replace(_CLI, name="api", providers=frozenset({"internal", "http"}), callbacks=True),
    replace(_CLI, name="gateway", alone=True),
    replace(_DASHBOARD, name="mcp", providers=frozenset({"internal", "mcp"})),
)
