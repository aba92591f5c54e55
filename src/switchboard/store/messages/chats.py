"""Conversations as the gateway and the page show them: what was written, what came back, and how the turns ended.

Called by `app/messages/chat.py` and `app/page_chats.py`; reads only. Next: `store/work/stopping.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from uuid import UUID

from msgspec import Struct

from switchboard.domain.json_values import JsonMapping
from switchboard.domain.ledger import ReplyFile
from switchboard.domain.message import Conversation
from switchboard.domain.shown import ReplyView
from switchboard.ports.engine import ModelUsage
from switchboard.store.database import Database, each_as, part_as, query, rows_as

_LAST: Final = UUID(int=2**128 - 1)


@dataclass(frozen=True, slots=True)
class WrittenMessage:
    """A message. `key`: the key with which it was sent, by which its sender recognises it."""

    request_id: UUID
    key: str | None
    text: str
    received_at: datetime
    state: str


class EndedTurn(Struct, frozen=True):
    """How the latest turn of a butler for a message ended: its state, and the report of its last attempt."""

    system_id: str
    state: str
    engine: str | None
    stop_reason: str | None
    usage: Sequence[ModelUsage]


async def page(
    database: Database, conversation: Conversation, limit: int, before: UUID | None = None
) -> list[WrittenMessage]:
    """Messages of a conversation, newest first; `before` is the last one of the previous page."""
    return rows_as(WrittenMessage, await database.rows(query("chats.page"), conversation, before or _LAST, limit))


async def replies(database: Database, request_ids: Sequence[UUID]) -> dict[UUID, list[ReplyView]]:
    """The replies to each of these messages, oldest first."""
    found: dict[UUID, list[ReplyView]] = {}
    for row in await database.rows(query("chats.replies"), list(request_ids)):
        reply = part_as(ReplyView, {**row, "files": each_as(ReplyFile, row["files"])})
        found.setdefault(row["request_id"], []).append(reply)
    return found


async def ends(database: Database, request_id: UUID) -> list[EndedTurn]:
    """The ends of the turns of a message."""
    rows = await database.rows(query("chats.ends"), request_id)
    return rows_as(EndedTurn, [{**row, "usage": each_as(ModelUsage, row["usage"])} for row in rows])


class ChatThread(Struct, frozen=True):
    """A conversation of a person, with the beginning of the last message that was written in it."""

    request_id: UUID
    thread: str
    received_at: datetime
    text: str


class UsedTool(Struct, frozen=True):
    """A tool that a butler has called, and the state of the call."""

    system_id: str
    name: str
    state: str


async def threads(
    database: Database, channel: str, endpoint: str, *, before: UUID | None, walk: int, limit: int
) -> list[ChatThread]:
    """Those whose last message is among `walk` messages of the endpoint before an id, newest first."""
    found = await database.rows(query("chats.threads"), channel, endpoint, before, walk, limit)
    return rows_as(ChatThread, found)


async def threads_until(
    database: Database, channel: str, endpoint: str, *, before: UUID | None, walk: int
) -> UUID | None:
    """The last of these messages; None: there are fewer, so everything was looked at."""
    found: UUID | None = await database.value(query("chats.threads_until"), channel, endpoint, before, walk)
    return found


async def attachments(database: Database, request_ids: Sequence[UUID]) -> dict[UUID, Sequence[JsonMapping]]:
    """The files that came with these messages, as their envelopes list them."""
    rows = await database.rows(query("chats.attachments"), list(request_ids))
    return {row["request_id"]: row["files"] for row in rows}


async def tools(database: Database, request_ids: Sequence[UUID]) -> dict[UUID, list[UsedTool]]:
    """The tools that were called for each of these messages, in the order of the calls."""
    found: dict[UUID, list[UsedTool]] = {}
    for row in await database.rows(query("chats.tools"), list(request_ids)):
        found.setdefault(row["request_id"], []).append(part_as(UsedTool, row))
    return found


async def ahead(database: Database, request_id: UUID) -> int:
    """How many messages of its conversation come before the message."""
    found: int = await database.value(query("chats.ahead"), request_id)
    return found
