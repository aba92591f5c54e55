"""The messages of the set as facts of a real database, found by the search that butlers use.

Called by `report.py`. Each message of a person is kept as their statement in its space when it is said, and each
question is asked at its time, so that the wall decides what is found. No model extracts: a fact has the words of its
message, and no predicate. In: a `MemorySet`; out: the messages found for each question. Next:
`switchboard.store.memory.search`.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from switchboard.app.memory.indexing import FactIndexer
from switchboard.core.channels.registry import CHANNELS
from switchboard.core.memory.settling import SELF
from switchboard.core.people.handle import handle_at
from switchboard.core.people.readers import person_named
from switchboard.domain.message import Conversation
from switchboard.domain.routing import SystemId
from switchboard.embedded.supervisor import embedded_postgres
from switchboard.llm.local_embedder import open_local_embedder
from switchboard.ports.facts import Fact, Reader
from switchboard.store.database import Database
from switchboard.store.memory import facts
from switchboard.store.memory.facts import NewFact
from switchboard.store.memory.search import FactSearch
from switchboard.store.migrate import migrate
from switchboard.store.people import people
from tests.memory_set.reading import DialogueHandle, DialogueMessage, MemoryQuestion, MemorySet
from tests.memory_set.searching import LANGUAGES
from tests.postgres import FAST

_NOTES: Final = SystemId("System1/notes")
_ENDPOINT: Final = "bot"
_MOST: Final = 100
"""Facts that are asked for: as many as a rank can be."""
_PATIENCE_S: Final = 60.0
"""For the vector of a question: a busy machine changes nothing."""

_Said = Mapping[tuple[str, str, str], str]
"""The ids of messages by the space, the author and the text of their facts."""


async def find_in_store(known: MemorySet) -> Mapping[str, list[str]]:
    """For each question, by id, the ids of the messages found, the best first."""
    groups = frozenset(one.id for one in known.spaces if one.kind == "group")
    said, found = dict[tuple[str, str, str], str](), dict[str, list[str]]()
    embedder = await open_local_embedder()
    async with _opened_database() as database:
        indexer, search = FactIndexer(database, LANGUAGES, embedder), FactSearch(database, embedder, _PATIENCE_S)
        await _link_handles(database, known)
        for one in _in_order_of_time(known):
            if isinstance(one, DialogueMessage):
                said[await _keep_message(database, one, groups)] = one.id
            else:
                await indexer.prepare()
                while await indexer.index_some():
                    pass
                found[one.id] = await _ask_question(search, one, groups, said)
    _check_wall(known, found)
    return found


@asynccontextmanager
async def _opened_database() -> AsyncIterator[Database]:
    place = Path(tempfile.gettempdir(), f"switchboard-memory-set-{os.getpid()}")
    try:
        async with embedded_postgres(place, settings=FAST) as server:
            database = await Database.connect(server.url, size=2)
            try:
                await migrate(database)
                yield database
            finally:
                await database.close()
    finally:
        shutil.rmtree(place, ignore_errors=True)


async def _link_handles(database: Database, known: MemorySet) -> None:
    for person in known.people:
        await people.create(database, person.name, person.name)
        for one in person.handles:
            handle = handle_at(CHANNELS[one.channel], _ENDPOINT, one.handle.lower())
            assert await people.link(database, person.name, handle, "operator"), one


def _in_order_of_time(known: MemorySet) -> Iterator[DialogueMessage | MemoryQuestion]:
    """What persons say, and the questions, each before what is said at the same time."""
    asked = [(one.asker.at, 0, place) for place, one in enumerate(known.questions)]
    spoken = [(one.at, 1, place) for place, one in enumerate(known.messages) if one.author is not None]
    for _, is_message, place in sorted(asked + spoken):
        yield known.messages[place] if is_message else known.questions[place]


async def _keep_message(database: Database, message: DialogueMessage, groups: frozenset[str]) -> tuple[str, str, str]:
    assert message.author is not None, message.id
    by = _reader_in(message.space, message.author, groups)
    fact = NewFact(by.person, SELF, by.private, message.text, (), said_at=message.at)
    assert await facts.learn(database, by, fact) == 1, message.id
    space = f"private:{by.person}" if by.private else f"group:{by.conversation}"
    return space, by.person, message.text


async def _ask_question(search: FactSearch, question: MemoryQuestion, groups: frozenset[str], said: _Said) -> list[str]:
    asker = question.asker
    by = _reader_in(asker.space, DialogueHandle(asker.channel, asker.handle), groups)
    found = await search.search_facts(by, question.text, _MOST, asker.at)
    return [said[_key_of(one.fact)] for one in found]


def _key_of(fact: Fact) -> tuple[str, str, str]:
    return fact.space, fact.author, fact.text


def _reader_in(space: str, handle: DialogueHandle, groups: frozenset[str]) -> Reader:
    """Whoever writes with this handle in a space; each handle has a private conversation of its own."""
    person = person_named(handle.channel, _ENDPOINT, handle.handle)
    if space in groups:
        return Reader(_NOTES, Conversation(f"telegram/{_ENDPOINT}/{space}"), person)
    return Reader(_NOTES, Conversation(f"{person}/own"), person, private=True)


def _check_wall(known: MemorySet, found: Mapping[str, list[str]]) -> None:
    for question in known.questions:
        visible = {one.id for one in known.visible_to(question.asker)}
        assert visible.issuperset(found[question.id]), question.id
