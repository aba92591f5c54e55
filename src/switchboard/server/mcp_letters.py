"""The MCP tools of whoever handles dead letters: dead_letters_list, _get, _reroute, _handle.

`mcp_tools.py` offers them to operators and to System4s; of which team a caller is, his token says. In: the bodies of
the HTTP API and the letter's id; out: the same answers. Next: `app/letters.py`.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

from switchboard.app.letters import LetterDesk
from switchboard.server.http.doors import Doors
from switchboard.server.http.letter_schemas import HandleBody, LetterFilterBody, RerouteBody
from switchboard.server.http.letters import filter_of, reroute_of
from switchboard.server.http.schemas import Body, Cursor, Limit
from switchboard.server.mcp_offer import Call, Offer, make_tool, read, schema_of

_LIST: Final = "List dead letters, the newest first: messages that nobody could take, and why."
_GET: Final = "Show one dead letter, whole: its message, who was told of it, where it was sent on to."
_REROUTE: Final = "Send a dead letter on: to a butler, to a team, or (without `to`) by the rules of now."
_HANDLE: Final = "Close a dead letter with which nothing more is to be done, and say why."


class ListLetters(LetterFilterBody):
    """A page of a filter."""

    limit: Limit = 50
    cursor: Cursor | None = None


class WhichLetter(Body):
    """One dead letter."""

    dead_letter_id: UUID


class RerouteLetter(RerouteBody):
    """Which one goes where."""

    dead_letter_id: UUID


class HandleLetter(HandleBody):
    """Which one is closed."""

    dead_letter_id: UUID


def letter_offers(doors: Doors) -> tuple[Offer, ...]:
    """The tools over the desk."""
    desk = doors.letters
    tools = _LetterTools(desk)
    offered = (
        (make_tool("dead_letters_list", _LIST, schema_of(ListLetters)), tools.page),
        (make_tool("dead_letters_get", _GET, schema_of(WhichLetter)), tools.get),
        (make_tool("dead_letters_reroute", _REROUTE, schema_of(RerouteLetter)), tools.reroute),
        (make_tool("dead_letters_handle", _HANDLE, schema_of(HandleLetter)), tools.handle),
    )
    return tuple(Offer(tool, "dead_letters", run, desk.may_handle) for tool, run in offered)


class _LetterTools:
    """What the tools do."""

    def __init__(self, desk: LetterDesk) -> None:
        self._desk = desk

    async def page(self, call: Call) -> object:
        body = read(ListLetters, call.arguments)
        page, following = await self._desk.list(call.caller, filter_of(body), limit=body.limit, cursor=body.cursor)
        return {"dead_letters": page, "next_cursor": following}

    async def get(self, call: Call) -> object:
        return await self._desk.get(call.caller, read(WhichLetter, call.arguments).dead_letter_id)

    async def reroute(self, call: Call) -> object:
        body = read(RerouteLetter, call.arguments)
        return await self._desk.reroute(call.caller, body.dead_letter_id, reroute_of(body))

    async def handle(self, call: Call) -> object:
        body = read(HandleLetter, call.arguments)
        return await self._desk.handle(call.caller, body.dead_letter_id, body.resolution)
