"""Messages of a person with all that belongs to them: what turns noted, replies, and which files there are.

One of the keepers of `personal.py`. In: the scope; out: an item for each message, note, step and file, of which no more
than one message's is in memory at a time. Next: `sql/queries/personal.sql`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from datetime import datetime
from typing import Final
from uuid import UUID

import msgspec
from msgspec import Struct

from switchboard.core.channels.registry import Channels
from switchboard.core.envelope.stored import stored_envelope
from switchboard.core.people.readers import reader_among
from switchboard.domain.json_values import JsonMapping
from switchboard.domain.message import Conversation, RequestId
from switchboard.domain.routing import SystemId
from switchboard.ports.people import PersonalScope
from switchboard.store.database import Database, Row, decode_json, from_json, part_as, query, rows_as

_AT_ONCE: Final = 200
_STEPS_AT_ONCE: Final = 10
_ZERO: Final = UUID(int=0)
_OTHERS_WORDS: Final = ("start",)
"""Steps that have what others said before, if the conversation is not private."""


class OpenMessages(Struct, frozen=True):
    """Messages whose words are there: those that can be erased now, and those with which something is to be done."""

    ended: int
    open: int


class MessageWithFiles(Struct, frozen=True):
    """What says where files of a message may lie."""

    request_id: RequestId
    channel: str
    conversation: Conversation
    envelope: str
    facts: JsonMapping


class ServedWorkspace(Struct, frozen=True):
    """A butler that has worked for a person: whether for nobody else, and whether it does now."""

    butler: str
    alone: bool
    busy: bool


class StoredMessages(Struct, frozen=True):
    """Messages with their bytes and files, what turns noted for them, and replies. Those that are open stay."""

    database: Database
    channels: Channels
    after_batch: Callable[[str], None]
    name: str = "messages"

    async def count(self, scope: PersonalScope) -> int:
        """As in the port."""
        return (await count_open(self.database, scope)).ended

    async def export(self, scope: PersonalScope) -> AsyncIterator[JsonMapping]:
        """As in the port. The bytes of files and originals are fetched by what is said of them here."""
        after = _ZERO
        while rows := await self.database.rows(query("personal.message_ids"), *sender_columns(scope), after, _AT_ONCE):
            for row in rows:
                async for item in self._export_message(row["request_id"]):
                    yield item
            after = rows[-1]["request_id"]

    async def _export_message(self, request_id: UUID) -> AsyncIterator[JsonMapping]:
        rows = await self.database.rows(query("personal.message"), request_id)
        if not rows:
            return  # it was erased since its id was read
        [row] = rows
        about = {"request_id": str(request_id)}
        yield {"kind": "message", **as_json(row), "envelope": from_json(row["envelope"]), "facts": _facts_of(row)}
        for note in await self.database.rows(query("personal.notes"), request_id):
            yield {"kind": note["kind"], **about, "noted": from_json(note["noted"])}
        async for step in self._export_steps(request_id, private=self._is_private(row)):
            yield {"kind": "step", **about, **step}
        for file in await self.database.rows(query("personal.files"), request_id):
            yield {"kind": "file", **about, **as_json(file)}

    async def _export_steps(self, request_id: UUID, *, private: bool) -> AsyncIterator[JsonMapping]:
        after: tuple[UUID, int, str] = (_ZERO, 0, "")
        while rows := await self.database.rows(query("personal.steps"), request_id, *after, _STEPS_AT_ONCE):
            for row in rows:
                if private or row["path"] not in _OTHERS_WORDS:
                    yield as_json(row) | {"result": from_json(row["result"])}
            after = rows[-1]["lane"], rows[-1]["seq"], rows[-1]["path"]

    def _is_private(self, row: Row) -> bool:
        """Whether nobody else took part. Of an envelope that this release cannot read, that is not known: no."""
        channel = self.channels[row["channel"]]
        try:
            envelope = stored_envelope(row["envelope"])
        except msgspec.ValidationError:
            return False
        return reader_among(
            SystemId(""), Conversation(row["conversation"] or ""), envelope, _facts_of(row), channel
        ).private

    async def erase(self, scope: PersonalScope) -> int:
        """As in the port."""
        erased, after = 0, _ZERO
        while rows := await self.database.rows(
            query("personal.messages_to_erase"), *sender_columns(scope), after, _AT_ONCE
        ):
            ids = [row["request_id"] for row in rows]
            erased += int(await self.database.value(query("personal.erase_messages"), ids))
            self.after_batch(self.name)
            after = ids[-1]
        return erased


async def count_open(database: Database, scope: PersonalScope) -> OpenMessages:
    """How many messages can be erased, and how many must end first."""
    [row] = await database.rows(query("personal.count_messages"), *sender_columns(scope))
    return part_as(OpenMessages, row)


async def count_turns_of_others(database: Database, scope: PersonalScope) -> OpenMessages:
    """The same of others' messages in the same conversations, by whether their turns have ended."""
    [row] = await database.rows(query("personal.count_turns_of_others"), *sender_columns(scope))
    return part_as(OpenMessages, row)


async def read_messages_with_files(database: Database, scope: PersonalScope) -> AsyncIterator[MessageWithFiles]:
    """Messages that came with files, also those of which the bytes are not stored."""
    after = _ZERO
    sql = query("personal.messages_with_files")
    while rows := await database.rows(sql, *sender_columns(scope), after, _STEPS_AT_ONCE):
        for row in rows:
            yield part_as(MessageWithFiles, {**row, "facts": _facts_of(row)})
        after = rows[-1]["request_id"]


async def files_of_others(
    database: Database, scope: PersonalScope, blobs: list[bytes], conversation: Conversation
) -> set[bytes]:
    """Those of these files that somebody else has sent to the same conversation, too."""
    rows = await database.rows(query("personal.files_of_others"), *sender_columns(scope), blobs, conversation)
    return {row["blob"] for row in rows}


async def list_workspaces(database: Database, scope: PersonalScope) -> list[ServedWorkspace]:
    """The butlers that have worked for the person."""
    rows = await database.rows(query("personal.workspaces"), *sender_columns(scope), scope.keys)
    return rows_as(ServedWorkspace, rows)


def sender_columns(scope: PersonalScope) -> tuple[list[str], list[str], list[str]]:
    """Channels, endpoints and identities of equal length, as queries take them."""
    senders = scope.senders
    return [one.channel for one in senders], [one.endpoint for one in senders], [one.identity for one in senders]


def as_json(row: Row) -> dict[str, object]:
    """A row with times and ids as text."""
    return {name: _as_text(value) for name, value in row.items()}


def _as_text(value: object) -> object:
    if isinstance(value, datetime):
        return value.isoformat()
    return str(value) if isinstance(value, UUID) else value


def _facts_of(row: Row) -> JsonMapping:
    facts: JsonMapping | None = decode_json(row["facts"])
    return facts or {}
