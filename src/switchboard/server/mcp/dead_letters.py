"""The MCP tools for handling dead letters: dead_letters_list, _get, _reroute, _handle.

`tools.py` offers them to operators, System4s and System3s; the token of a caller tells its team. In: the bodies of
the HTTP API and the dead letter's id; out: the same answers. Next: `app/dead_letters/service.py`.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from switchboard.app.dead_letters.reach import DEAD_LETTERS
from switchboard.server.contracts.base import Body, Cursor, Id, Limit
from switchboard.server.contracts.dead_letters import DeadLetterFilterBody, HandleBody, RerouteBody
from switchboard.server.http.dead_letters import DEAD_LETTER_SERVICE, filter_of, reroute_of
from switchboard.server.http.services import page
from switchboard.server.mcp.tool_spec import McpCall, McpToolSpec, tool_of
from switchboard.server.services import Services

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
    service = services.of(DEAD_LETTER_SERVICE)
    make = partial(tool_of, action=DEAD_LETTERS, shown=service.may_handle)

    async def found(call: McpCall, body: ListDeadLetters) -> object:
        letters = await service.list(call.caller, filter_of(body), limit=body.limit, cursor=body.cursor)
        return page("dead_letters", letters)

    async def get(call: McpCall, body: WhichDeadLetter) -> object:
        return await service.get(call.caller, body.dead_letter_id)

    async def reroute(call: McpCall, body: RerouteDeadLetter) -> object:
        return await service.reroute(call.caller, body.dead_letter_id, reroute_of(body))

    async def handle(call: McpCall, body: HandleDeadLetter) -> object:
        return await service.handle(call.caller, body.dead_letter_id, body.resolution)

    return (
        make("dead_letters_list", _LIST, ListDeadLetters, work=found),
        make("dead_letters_get", _GET, WhichDeadLetter, work=get),
        make("dead_letters_reroute", _REROUTE, RerouteDeadLetter, work=reroute),
        make("dead_letters_handle", _HANDLE, HandleDeadLetter, work=handle),
    )
