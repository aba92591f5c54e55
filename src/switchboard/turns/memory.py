"""The memory of a butler's sessions, in the store: `Memory` of `context.py`. `hosting.py` makes it.

`visible_entries` and `visible` decide what may be read, as they do for workers. Next: `store/memory/history.py`,
`store/memory/facts.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal
from uuid import UUID

from switchboard.core.channels.registry import CHANNELS
from switchboard.core.memory.stating import read_statement, read_subject
from switchboard.core.text.storable import storable_text
from switchboard.core.turns.window import WINDOW
from switchboard.domain.envelope import MAX_TEXT
from switchboard.domain.errors import InvalidInput
from switchboard.domain.routing import SystemId
from switchboard.journey.compaction import Compactor
from switchboard.ports.facts import Reader
from switchboard.ports.history import Entry
from switchboard.store.database import Database
from switchboard.store.memory import facts, history, told
from switchboard.store.memory.facts import NewFact
from switchboard.store.memory.history import StoredHistory
from switchboard.turns.context import CompactedSession
from switchboard.turns.session import EARLIEST, conversations_of, reader_of_session


class SessionMemory:
    """Implements `switchboard.turns.Memory`."""

    def __init__(self, butler: SystemId, database: Database, stored: StoredHistory, compactor: Compactor) -> None:
        self._butler = butler
        self._database = database
        self._history = stored
        self._compactor = compactor

    async def get_history(
        self, session_key: str, limit: int = WINDOW, *, channel_name: str | None = None
    ) -> Sequence[Entry]:
        """As in the protocol."""
        names = CHANNELS if channel_name is None else (channel_name,)
        readers = [reader_of_session(self._butler, name, session_key) for name in names]
        found = [entry for reader in readers for entry in await self._history.read(reader)]
        return _latest_entries(found, limit)

    async def save_message(
        self, session_key: str, channel_name: str, role: Literal["user", "assistant"], content: str
    ) -> UUID:
        """As in the protocol."""
        text = storable_text(content)
        if not text.strip() or len(text) > MAX_TEXT:
            raise InvalidInput(f"a message has 1 to {MAX_TEXT} characters", field="content")
        return await history.save(self._database, self._reader_for(session_key, channel_name), Entry(role, text))

    async def learn(self, session_key: str, channel_name: str, text: str, *, subject: str = "self") -> bool:
        """As in the protocol."""
        reader, about = self._reader_for(session_key, channel_name), read_subject(storable_text(subject))
        fact = NewFact(reader.person, about, reader.private, read_statement(text, about), ())
        if not await told.is_learning_in(self._database, reader.conversation):
            return False
        return await facts.learn(self._database, reader, fact) > 0

    async def compact(self, session_key: str) -> CompactedSession:
        """As in the protocol."""
        outcomes = await self._compactor.compact_due(self._butler, conversations_of(self._butler, session_key))
        reasons = tuple(dict.fromkeys(reason for reason in outcomes if reason is not None))
        return CompactedSession(outcomes.count(None), reasons if outcomes else ("the session has no history",))

    def _reader_for(self, session_key: str, channel_name: str) -> Reader:
        reader = reader_of_session(self._butler, channel_name, session_key)
        if not reader.authentic:
            raise InvalidInput(
                f"senders on channel {channel_name} are not authenticated, so nothing is kept", field="channel_name"
            )
        return reader


def _latest_entries(entries: Sequence[Entry], limit: int) -> list[Entry]:
    """All summaries, which nobody wrote, and the last `limit` other entries, by time."""
    summaries = [entry for entry in entries if entry.role == "user" and not entry.author]
    said = [entry for entry in entries if entry.role == "assistant" or entry.author]
    said.sort(key=lambda entry: entry.created_at or EARLIEST)
    return [*summaries, *said[max(0, len(said) - limit) :]]
