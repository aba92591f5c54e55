"""Conversation history, kept in the lane of a butler's turns and given to later turns.

`journey/turn.py` settles the entries of a turn together with its reply; `app/wiring.py` gives `StoredHistory` to
engines. Who may read what is decided by `visible_entries` in `sql/functions/entries.sql`. Next: `core/turns/window.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final
from uuid import UUID

import msgspec
from msgspec import Struct, field
from msgspec.structs import astuple

from switchboard.core.channels.registry import Channels
from switchboard.core.people.handle import handle_behind
from switchboard.core.people.readers import reader_of
from switchboard.core.text.storable import storable_text, to_storable_json
from switchboard.core.turns.entries import EntryOnRecord, with_own_words
from switchboard.core.turns.images import digest_in_inbox, images_among
from switchboard.core.turns.window import shortened, window_start
from switchboard.domain.envelope import Attachment
from switchboard.domain.ledger import LaneKey
from switchboard.domain.message import Conversation
from switchboard.domain.routing import SystemId
from switchboard.ports.engine import Turn
from switchboard.ports.facts import OwnWords, Reader
from switchboard.ports.history import Entry, EntryCall, SaidEntry, WantedHistory
from switchboard.store.database import Database, Row, decode_json, each_as, query, row_as, rows_as
from switchboard.store.ids import new_uuid7
from switchboard.store.memory.readers import handle_columns, reader_columns

_SUMMARY: Final = "What was said before, in short"
_MOST_FACTS: Final = 100


class HistoryAddition(Struct, frozen=True):
    """What a turn adds to the history; `at`: when its message arrived. `remembered` become facts of the reader."""

    reader: Reader
    at: datetime
    entries: tuple[Entry, ...]
    remembered: tuple[OwnWords, ...] = ()


class SavedEntry(EntryOnRecord, frozen=True):
    """An entry of the history of a butler's conversation that belongs to no turn."""

    system_id: SystemId
    conversation: Conversation


async def facts_of(database: Database, request_id: UUID) -> Mapping[str, str]:
    """What rules saw of a message when it was first decided; nothing if it is gone. Raises `Unavailable`."""
    facts: Mapping[str, str] | None = decode_json(await database.value(query("history.facts"), request_id))
    return facts or {}


class StoredReaders(Struct, frozen=True):
    """Finds out for whom a turn reads, from its message's facts."""

    database: Database
    channels: Channels
    _latest: dict[UUID, Mapping[str, str]] = field(default_factory=dict)
    """A turn asks several times. What rules saw of a message does not change."""

    async def of(self, turn: Turn) -> Reader:
        """Raises `Unavailable`."""
        return reader_of(turn, await self._route_facts(turn.request_id), self.channels[turn.envelope.source.channel])

    async def _route_facts(self, request_id: UUID) -> Mapping[str, str]:
        if request_id in self._latest:
            return self._latest[request_id]
        facts = await facts_of(self.database, request_id)
        if not facts:
            return {}
        if len(self._latest) >= _MOST_FACTS:
            self._latest.clear()
        self._latest[request_id] = facts
        return self._latest[request_id]


class StoredHistory(Struct, frozen=True):
    """`History` in PostgreSQL."""

    database: Database
    readers: StoredReaders

    async def load(self, turn: Turn) -> Sequence[Entry]:
        """As in the port."""
        return await self.read(await self.readers.of(turn))

    async def read(self, reader: Reader) -> Sequence[Entry]:
        """What this reader may see of its conversation, as in `load`. Raises `Unavailable`."""
        place = await self.database.row(query("history.last"), reader.system_id, reader.conversation)
        if place is None or not place["position"]:
            return ()
        start = window_start(place["position"], place["compacted"])
        who = reader.person, reader.private, reader.authentic
        summaries = await self.database.rows(query("history.summary"), place["lane"], *who) if start else ()
        rows = await self.database.rows(query("history.load"), place["lane"], start, *who)
        return [*map(_read_summary, summaries), *map(_read_entry, rows)]

    async def search(self, turn: Turn, wanted: WantedHistory) -> Sequence[SaidEntry]:
        """As in the port."""
        return await self.search_for(await self.readers.of(turn), wanted)

    async def search_for(self, reader: Reader, wanted: WantedHistory) -> Sequence[SaidEntry]:
        """The same for this reader. Raises `Unavailable`."""
        asked = storable_text(wanted.words), wanted.since, wanted.until, storable_text(wanted.person), wanted.channel
        given = *reader_columns(reader), *handle_columns(reader), *asked, wanted.limit
        return rows_as(SaidEntry, await self.database.rows(query("history.search"), *given))


async def erase(database: Database, below: UUID, limit: int) -> int:
    """Erase the entries of messages before an id, in at most `limit` histories; returns how many were shortened."""
    return int(await database.value(query("history.erase"), below, limit))


async def begin_anew(database: Database, messages: Sequence[UUID]) -> None:
    """The conversations of these messages begin with them: nobody is told any more what was said before."""
    await database.run(query("history.begin_anew"), list(messages))


async def save(database: Database, reader: Reader, entry: Entry) -> UUID:
    """Append something said outside turns, by or to this reader, to its history; returns its id."""
    where, whose, saved_id = (reader.system_id, reader.conversation), (reader.person, reader.private), new_uuid7()
    await database.run(query("history.save"), *where, saved_id, entry.role, *whose, entry.text)
    return saved_id


async def saved(database: Database, saved_id: UUID) -> SavedEntry | None:
    """What was said outside turns, by its id; there is no message of it."""
    return row_as(SavedEntry, await database.row(query("history.saved"), saved_id))


async def held(database: Database, turns: Sequence[UUID]) -> set[UUID]:
    """Those of these messages with unfinished turns, or with history that is not yet compacted or forgotten."""
    return {row["request_id"] for row in await database.rows(query("history.held"), list(turns))}


async def awaited_files(database: Database, since: UUID) -> set[str]:
    """The images in `inbox/` of messages since this id whose turns have not ended, or may run again."""
    rows = await database.rows(query("history.awaited_files"), since)
    return {one.name for one in images_among(msgspec.json.decode(row["attachment"], type=Attachment) for row in rows)}


async def awaited_digests(database: Database, since: UUID) -> set[str]:
    """The same for all files there, by the digits with which their names begin."""
    rows = await database.rows(query("history.awaited_files"), since)
    files = (msgspec.json.decode(row["attachment"], type=Attachment) for row in rows)
    return {digest for one in files if (digest := digest_in_inbox(one)) is not None}


def _read_entry(row: Row) -> Entry:
    calls = each_as(EntryCall, row["calls"])
    author = row["person"] if row["role"] == "user" else ""
    noted = row["own"], row["name"], row["told"]
    return with_own_words(Entry(row["role"], row["text"], author, calls, row["position"], row["created_at"], *noted))


def _read_summary(row: Row) -> Entry:
    """The summary as something said to the butler, without a speaker. Unless noted, it may be of others' words."""
    text, told = f"[{_SUMMARY}]\n{row['text']}", row["told"] is not False
    return Entry("user", text, "", (), row["position"], row["created_at"], own="", told=told)


def entry_rows(given: Iterable[tuple[LaneKey, HistoryAddition]]) -> str | None:
    """What `settle_turns_with_entries` takes; None if nothing is kept, as for messages of uncertain senders."""
    rows = [row for lane, said in given if said.reader.authentic for row in _rows_of_turn(lane, said)]
    return to_storable_json(rows) if rows else None


def _rows_of_turn(lane: LaneKey, said: HistoryAddition) -> Iterator[dict[str, object]]:
    reader, handle = said.reader, handle_behind(said.reader.person)
    known = None if handle is None else astuple(handle)
    who = {"lane": lane, "person": reader.person, "private": reader.private, "handle": known}
    for n, entry in enumerate(map(shortened, said.entries)):
        at = entry.created_at or said.at
        kept = {"role": entry.role, "text": entry.text, "calls": entry.calls or None, "created_at": at}
        yield {**who, "n": n, **kept, "own": entry.own, "name": entry.name, "told": entry.told, "learn": entry.learn}
