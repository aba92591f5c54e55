"""The MCP tools for handling dead letters: dead_letters_list, _get, _reroute, _handle.

`tools.py` offers them to operators, System4s and System3s; the token of a caller tells its team. In: the bodies of
the HTTP API and the dead letter's id; out: the same answers. Next: `app/dead_letters/service.py`.
"""

from __future__ import annotations

from typing import Final

from switchboard.app.dead_letters.service import DeadLetterService
from switchboard.server.contracts.dead_letters import DeadLetterFilterBody, HandleBody, RerouteBody
from switchboard.server.contracts.messages import Body, Cursor, Id, Limit
from switchboard.server.http.dead_letters import filter_of, reroute_of
from switchboard.server.http.services import Services
from switchboard.server.mcp.tool_spec import Call, ToolSpec, make_tool, read, schema_of

_LIST: Final = "List dead letters, newest first: messages that could not be delivered, and why."
_GET: Final = "Show one dead letter in full: its message, who was notified, where it was rerouted."
_REROUTE: Final = "Reroute a dead letter: to a butler, to a team, or (without `to`) by the current rules."
_HANDLE: Final = "Close a dead letter that needs no further action, and say why."


class ListDeadLetters(DeadLetterFilterBody):
    """A page of a filter."""

    limit: Limit = 50
    cursor: Cursor | None = None


class WhichDeadLetter(Body):
    """One dead letter."""

    dead_letter_id: Id


class RerouteDeadLetter(RerouteBody):
    """Which one goes where."""

    dead_letter_id: Id


class HandleDeadLetter(HandleBody):
    """Which one is closed."""

    dead_letter_id: Id


def dead_letter_tools(services: Services) -> tuple[ToolSpec, ...]:
    """The tools over the service."""
    service = services.dead_letters
    tools = _DeadLetterTools(service)
    offered = (
        (make_tool("dead_letters_list", _LIST, schema_of(ListDeadLetters)), tools.page),
        (make_tool("dead_letters_get", _GET, schema_of(WhichDeadLetter)), tools.get),
        (make_tool("dead_letters_reroute", _REROUTE, schema_of(RerouteDeadLetter)), tools.reroute),
        (make_tool("dead_letters_handle", _HANDLE, schema_of(HandleDeadLetter)), tools.handle),
    )
    return tuple(ToolSpec(tool, "dead_letters", run, service.may_handle) for tool, run in offered)


class _DeadLetterTools:
    """What the tools do."""

    def __init__(self, service: DeadLetterService) -> None:
        self._service = service

    async def page(self, call: Call) -> object:
        body = read(ListDeadLetters, call.arguments)
        page, following = await self._service.list(call.caller, filter_of(body), limit=body.limit, cursor=body.cursor)
        return {"dead_letters": page, "next_cursor": following}

    async def get(self, call: Call) -> object:
        return await self._service.get(call.caller, read(WhichDeadLetter, call.arguments).dead_letter_id)

    async def reroute(self, call: Call) -> object:
        body = read(RerouteDeadLetter, call.arguments)
        return await self._service.reroute(call.caller, body.dead_letter_id, reroute_of(body))

    async def handle(self, call: Call) -> object:
        body = read(HandleDeadLetter, call.arguments)
        return await self._service.handle(call.caller, body.dead_letter_id, body.resolution)
