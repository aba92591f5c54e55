"""The MCP tools for looking at a message: messages_get, messages_raw.

`tools.py` offers the first to connectors and operators, the second to butlers too, for what was delivered to them. In:
the id of a message; out: the answers of the HTTP API, bytes as base64. Next: `app/messages/views.py`.
"""

from __future__ import annotations

from base64 import b64encode
from typing import Final

from switchboard.app.messages.blobs import RAW
from switchboard.app.messages.views import MESSAGES
from switchboard.server.contracts.base import Body, Id
from switchboard.server.mcp.tool_spec import McpCall, McpToolSpec, tool_of
from switchboard.server.services import Services

_GET: Final = "Show one message: its envelope and facts, deliveries, replies and dead letters."
_RAW: Final = "The original bytes of a message, in base64, with their media type; a butler's are those delivered to it."


class OneMessage(Body):
    """Which message."""

    request_id: Id


def message_tools(services: Services) -> tuple[McpToolSpec, ...]:
    """The tools over the views."""

    async def get(call: McpCall, body: OneMessage) -> object:
        return await services.views.message(call.caller, body.request_id)

    async def raw(call: McpCall, body: OneMessage) -> object:
        raw, media_type = await services.views.raw(call.caller, body.request_id)
        return {"media_type": media_type, "raw_base64": b64encode(raw).decode()}

    return (
        tool_of("messages_get", _GET, OneMessage, MESSAGES, get),
        tool_of("messages_raw", _RAW, OneMessage, RAW, raw),
    )
