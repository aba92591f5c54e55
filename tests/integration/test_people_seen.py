"""Modules are told who certainly makes a call, as people are linked at that moment."""

from __future__ import annotations

from pathlib import Path
from typing import Final
from uuid import uuid4

import pytest
from msgspec.structs import replace

from switchboard.app.people_seen import WorkerPeople
from switchboard.core.channels.registry import CHANNELS
from switchboard.core.people.handle import handle_at
from switchboard.core.people.readers import person_named
from switchboard.domain.message import Conversation
from switchboard.domain.routing import SystemId
from switchboard.journey.people_book import PeopleBook
from switchboard.lanes.notifier import Notifier
from switchboard.ports.facts import Reader
from switchboard.ports.people_seen import SeenPerson
from switchboard.ports.tools import Cause, ToolScope
from switchboard.store.database import Database
from switchboard.store.people import people as store

ANN: Final = SeenPerson("ann", frozenset({"family"}), private=True)
UNKNOWN: Final = SeenPerson(private=True)
NO_READER: Final = ToolScope(Path(), frozenset(), frozenset(), uuid4(), uuid4())
HOUSEHOLD: Final = SeenPerson(private=True, household=True)


def scope_for(key: str, *, private: bool = True, authentic: bool = True, cause: Cause = "message") -> ToolScope:
    reader = Reader(SystemId("System1/clerk"), Conversation("c"), key, private, authentic)
    return ToolScope(Path(), frozenset(), frozenset(), uuid4(), uuid4(), reader=reader, cause=cause)


def key(channel: str, sender: str, endpoint: str = "bot:house") -> str:
    return person_named(channel, endpoint, sender)


async def link(database: Database, *handles: tuple[str, str]) -> None:
    async with database.transaction() as one:
        await store.begin_change(one)
        await store.create(one, "ann", "Ann")
        await store.join_group(one, "ann", "family")
        for channel, identity in handles:
            assert await store.link(one, "ann", handle_at(CHANNELS[channel], "bot:house", identity), "operator")


async def unlink(database: Database, channel: str, identity: str) -> None:
    async with database.transaction() as one:
        await store.begin_change(one)
        assert await store.unlink(one, "ann", handle_at(CHANNELS[channel], "bot:house", identity))


LINKED: Final = (("telegram", "4711"), ("email", "ann@example.org"), ("call", "ann"), ("irc", "ann"), ("api", "ann"))


async def test_only_certain_handles_that_are_linked_are_somebody(database_url: str) -> None:
    database = await Database.connect(database_url)
    people = WorkerPeople(PeopleBook(database, Notifier(database)))
    assert await people.seen_in(scope_for(key("telegram", "4711"))) == UNKNOWN
    await link(database, *LINKED)
    for asked, expected in (
        (scope_for(key("telegram", "4711")), ANN),
        (scope_for(key("telegram", "4711"), cause="reminder"), ANN),
        (scope_for(key("telegram", "4711"), private=False), SeenPerson("ann", frozenset({"family"}))),
        (scope_for(key("telegram", "4711"), authentic=False), UNKNOWN),
        (scope_for(key("telegram", "4712")), UNKNOWN),
        (scope_for(key("telegram", "4711", "embedded:System1/clerk")), UNKNOWN),
        (scope_for(key("email", "Ann A. <Ann@example.org>", "imap:bot@house.example")), ANN),
        (scope_for(key("email", "Ann@example.org", "imap:bot@house.example"), authentic=False), UNKNOWN),
        (scope_for(key("call", "ann", "laptop"), cause="call"), ANN),
        (scope_for(key("call", "bob", "laptop"), cause="call"), UNKNOWN),
        (scope_for(key("call", "-", "laptop"), cause="call", authentic=False), HOUSEHOLD),
        (scope_for(key("telegram", "-"), cause="call", authentic=False), UNKNOWN),
        (scope_for(key("call", "-", "laptop"), authentic=False), UNKNOWN),
        (scope_for(key("irc", "ann")), UNKNOWN),
        (scope_for(key("api", "ann")), UNKNOWN),
        (scope_for(""), UNKNOWN),
        (NO_READER, SeenPerson()),
        (replace(NO_READER, cause="reminder"), SeenPerson()),
        (replace(NO_READER, cause="call"), HOUSEHOLD),
    ):
        assert await people.seen_in(asked) == expected, asked.reader
    await database.close()


async def test_whoever_is_unlinked_is_nobody_at_the_next_call(database_url: str) -> None:
    database = await Database.connect(database_url)
    people = WorkerPeople(PeopleBook(database, Notifier(database)))
    asked = scope_for(key("telegram", "4711"))
    for _ in range(3):
        await link(database, ("telegram", "4711"))
        assert await people.seen_in(asked) == ANN
        await unlink(database, "telegram", "4711")
        assert await people.seen_in(asked) == UNKNOWN
    await database.close()


@pytest.mark.parametrize("group", ["family", "choir"])
async def test_groups_are_those_of_this_moment(database_url: str, group: str) -> None:
    database = await Database.connect(database_url)
    people = WorkerPeople(PeopleBook(database, Notifier(database)))
    await link(database, ("telegram", "4711"))
    await people.seen_in(scope_for(key("telegram", "4711")))
    async with database.transaction() as one:
        await store.begin_change(one)
        await store.leave_group(one, "ann", "family")
        await store.join_group(one, "ann", group)
    assert (await people.seen_in(scope_for(key("telegram", "4711")))).groups == {group}
    await database.close()
