"""What people do about what is remembered of them, by the command `/memory` and without a model.

The built-in engine calls `MemoryCommands` (`stopping.py`). In: the turn and what is wanted; out: what the sender is
told. What may be told is decided by `visible`, as for butlers; who said something, or whom it is about, may have it
corrected or forgotten. Next: `core/turns/memory_command.py`.
"""

from __future__ import annotations

from typing import Final

from switchboard.core.text.fact_numbers import find_numbered
from switchboard.core.turns.memory_command import (
    FORGOTTEN,
    NO_MATCH,
    NOT_THEIRS,
    NOTHING,
    OFF,
    ON,
    OVERHEARD,
    UNCERTAIN,
    UNKNOWN,
    WRONG,
    MemoryWish,
    export_text,
    list_text,
    with_words,
)
from switchboard.journey.approving import Conversations
from switchboard.ports.engine import Turn
from switchboard.ports.facts import Reader
from switchboard.store.database import Database
from switchboard.store.memory import facts, told
from switchboard.store.people import audit
from switchboard.store.people.people import StoredNames

_ALL: Final = 10_000


class MemoryCommands:
    """Shows, corrects and forgets facts, and switches learning off and on."""

    def __init__(self, database: Database, conversations: Conversations) -> None:
        self._database = database
        self._conversations = conversations

    async def answer(self, turn: Turn, wish: MemoryWish) -> str:
        """What the sender of `/memory` is told. Raises Unavailable."""
        reader = await self._conversations.reader(turn)
        if not (reader.authentic and reader.person):
            return UNCERTAIN
        match wish.verb:
            case "show":
                return await self._show_facts(reader, wish.words)
            case "export":
                return await self._export_facts(reader)
            case "wrong" | "forget":
                return await self._change_fact(reader, wish)
            case "off" | "on":
                await told.switch_learning(self._database, [(turn.request_id, wish.verb == "on")])
                return ON if wish.verb == "on" else OFF

    async def _show_facts(self, reader: Reader, words: str) -> str:
        found = await told.list_told(self._database, reader, _ALL)
        if not found:
            return NOTHING
        chosen = with_words(found, words) if words else found
        names = await StoredNames(self._database).of({one.author for one in chosen})
        return list_text(chosen, names) if chosen else NO_MATCH

    async def _export_facts(self, reader: Reader) -> str:
        if not reader.private:
            return OVERHEARD
        own = [one for one in await told.list_all_told(self._database, reader, _ALL) if one.own]
        return export_text(own, {}) if own else NOTHING

    async def _change_fact(self, reader: Reader, wish: MemoryWish) -> str:
        fact = find_numbered(await told.list_told(self._database, reader, _ALL), wish.words)
        if fact is None:
            return UNKNOWN.format(number=wish.words)
        if not (fact.own or fact.about_reader):
            return NOT_THEIRS
        if wish.verb == "wrong":
            await facts.undo(self._database, fact.fact_id)
        else:
            await facts.forget(self._database, fact.fact_id)
        done = "undone" if wish.verb == "wrong" else "forgotten"
        await audit.append(self._database, reader.person, f"memory:{done}", {"fact_id": str(fact.fact_id)})
        return WRONG.format(text=fact.text) if wish.verb == "wrong" else FORGOTTEN
