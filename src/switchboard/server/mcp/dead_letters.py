"""The MCP tools for handling dead letters: dead_letters_list, _get, _reroute, _handle.

`tools.py` offers them to operators, System4s and System3s; the token of a caller tells its team. In: the bodies of
the HTTP API and the dead letter's id; out: the same answers. Next: `app/dead_letters/service.py`.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from switchboard.app.dead_letters.service import DeadLetterService
from switchboard.server.contracts.dead_letters import DeadLetterFilterBody, HandleBody, RerouteBody
from switchboard.server.contracts.messages import Body, Cursor, Id, Limit
from switchboard.server.http.dead_letters import filter_of, reroute_of
from switchboard.server.http.services import Services, page
from switchboard.server.mcp.tool_spec import McpCall, McpToolSpec, tool_of

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


def dead_letter_tools(services: Services) -> tuple[McpToolSpec, ...]:
    """The tools over the service."""
    service = services.dead_letters
    tools, make = _DeadLetterTools(service), partial(tool_of, action="dead_letters", shown=service.may_handle)
    return (
        make("dead_letters_list", _LIST, ListDeadLetters, work=tools.page),
        make("dead_letters_get", _GET, WhichDeadLetter, work=tools.get),
        make("dead_letters_reroute", _REROUTE, RerouteDeadLetter, work=tools.reroute),
        make("dead_letters_handle", _HANDLE, HandleDeadLetter, work=tools.handle),
    )


class _DeadLetterTools:
    """What the tools do."""

    def __init__(self, service: DeadLetterService) -> None:
        self._service = service

    async def page(self, call: McpCall, body: ListDeadLetters) -> object:
        found = await self._service.list(call.caller, filter_of(body), limit=body.limit, cursor=body.cursor)
        return page("dead_letters", found)

    async def get(self, call: McpCall, body: WhichDeadLetter) -> object:
        return await self._service.get(call.caller, body.dead_letter_id)

    async def reroute(self, call: McpCall, body: RerouteDeadLetter) -> object:
        return await self._service.reroute(call.caller, body.dead_letter_id, reroute_of(body))

    async def handle(self, call: McpCall, body: HandleDeadLetter) -> object:
        return await self._service.handle(call.caller, body.dead_letter_id, body.resolution)
