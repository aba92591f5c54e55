"""Who is told what persons said under several handles, and that each clause of that wall is needed.

Statements are run as turns run them; what they should find is computed anew by an oracle of a few lines.
"""

from __future__ import annotations

import inspect
import random
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import product
from typing import Final, NoReturn
from uuid import UUID

import pytest
from msgspec import Struct
from msgspec.structs import replace

from switchboard.core.channels.registry import CHANNELS
from switchboard.core.people import handle as handles
from switchboard.core.people.handle import Handle, handle_at
from switchboard.core.people.readers import person_named
from switchboard.domain.message import Conversation
from switchboard.domain.routing import SystemId
from switchboard.ports.facts import Fact, Reader
from switchboard.store.database import SQL, Database, query, rows_as
from switchboard.store.memory import facts, readers
from switchboard.store.memory.facts import NewFact
from switchboard.store.memory.readers import handle_columns
from switchboard.store.memory.search import FactSearch
from switchboard.store.people import people

NOTES, OTHER = SystemId("System1/notes"), SystemId("System1/other")


class Account(Struct, frozen=True):
    """A sender at an endpoint."""

    channel: str
    endpoint: str
    sender: str

    @property
    def author(self) -> str:
        return person_named(self.channel, self.endpoint, self.sender)

    @property
    def handle(self) -> Handle:
        return handle_at(CHANNELS[self.channel], self.endpoint, self.sender.lower())

    @property
    def vouched(self) -> bool:
        """As docs/people.md lists them."""
        return self.channel in {"telegram", "discord", "signal", "slack", "email"} and "embedded:" not in self.endpoint


def reader(who: Account, *, private: bool = True, authentic: bool = True, butler: SystemId = NOTES) -> Reader:
    place = f"{who.author}/own" if private else "telegram/bot/group"
    return Reader(butler, Conversation(place), who.author, private, authentic)


async def learn(database: Database, by: Reader, text: str) -> UUID | None:
    """Keep what a reader says; None: it was forgotten."""
    await facts.learn(database, by, NewFact(by.person, "self", by.private, text, ()))
    found = await facts.list_facts(database, None, by.person, None, 1000)
    return next((one.fact_id for one in found if one.text == text), None)


def who_of(by: Reader) -> tuple[object, ...]:
    return by.system_id, by.conversation, by.person, by.private, by.authentic


async def told(database: Database, by: Reader) -> list[Fact]:
    rows = await database.rows(query("facts.visible"), *who_of(by), 1000, *handle_columns(by))
    return rows_as(Fact, rows)


async def find(database: Database, by: Reader, words: str) -> set[str]:
    return {one.fact.text for one in await FactSearch(database).search_facts(by, words, 1000, datetime.now(UTC))}


async def share(database: Database, fact_id: UUID, by: Reader) -> bool:
    given = by.system_id, by.person, by.authentic, False
    return bool(await database.value(query("facts.share"), fact_id, *given, *handle_columns(by)))


async def is_forgotten(database: Database, by: Reader, text: str) -> bool:
    keys = await database.keys()
    mark, words = (UUID(keys.fact(by.system_id, author, text)) for author in (by.person, ""))
    given = [mark], by.system_id, by.conversation, 0, UUID(int=0), [words], *handle_columns(by)
    return bool(await database.value(query("facts.is_forgotten"), *given))


# One clause less ----------------------------------------------------------------------------------------------------

ANN, ANN_BY_MAIL = Account("telegram", "bot", "ann"), Account("email", "imap:bot", "Ann@example.org")
ANN_ELSEWHERE, CLAIMED = Account("telegram", "another", "ann"), Account("api", "web", "ann")
EMBEDDED, LONG = Account("telegram", "embedded:System1/x", "ann"), Account("telegram", "bot", "x" * 400)
AS_SHORTENED: Final = Account("telegram", "bot", LONG.author.rpartition("/")[2])
"""What is left of the long one in its key."""
BOB, FORMER = Account("telegram", "bot", "bob"), Account("signal", "bot", "ann")
EVERYBODY: Final = (ANN, ANN_BY_MAIL, ANN_ELSEWHERE, CLAIMED, EMBEDDED, LONG, BOB, FORMER)
LINKED: Final = {"ann": (ANN, ANN_BY_MAIL, CLAIMED, AS_SHORTENED), "bob": (BOB, Account("slack", "bot", "bob"))}
Seen = Mapping[str, object]


class Undone(Exception):
    """All was seen."""


def undo() -> NoReturn:
    raise Undone


@asynccontextmanager
async def undoing(database: Database) -> AsyncIterator[Database]:
    """A transaction of which nothing stays."""
    with suppress(Undone):
        async with database.transaction() as one:
            yield one
            undo()


async def observe(database: Database) -> Seen:
    """Everything that the wall decides, in a database that is empty again afterwards."""
    async with undoing(database) as one:
        for person, accounts in LINKED.items():
            await people.create(one, person, person)
            for account in accounts:
                assert await people.link(one, person, account.handle, "operator")
        ids = {
            text: await learn(one, reader(who, private=private), text)
            for who in EVERYBODY
            for private, text in ((True, of(who)), (False, f"{of(who)} in the group"))
        }
        return {**await observe_readers(one, ids), **await observe_forgetting(one, ids)}
    raise AssertionError


def of(who: Account) -> str:
    """What they have told in private."""
    return f"fig of {who.author[:99]}"


async def observe_readers(one: Database, ids: Mapping[str, UUID | None]) -> Seen:
    """What each is told, finds, and may share."""
    seen: dict[str, object] = {}
    kinds = ((True, True, NOTES), (False, True, NOTES), (True, False, NOTES), (True, True, OTHER))
    for who, (private, authentic, butler) in product(EVERYBODY, kinds):
        by, place = reader(who, private=private, authentic=authentic, butler=butler), f"{who} {private}"
        place += f" {authentic} {butler}"
        seen[f"told {place}"] = sorted((fact.text, fact.own) for fact in await told(one, by))
        seen[f"found {place}"] = await find(one, by, "fig")
        for author in (ANN, ANN_BY_MAIL, BOB, FORMER):
            fact_id = ids[of(author)]
            assert fact_id is not None
            async with undoing(one) as trial:
                seen[f"shared {author} {place}"] = await share(trial, fact_id, by)
    return seen


async def observe_forgetting(one: Database, ids: Mapping[str, UUID | None]) -> Seen:
    """What goes with a fact, and who cannot have it kept again."""
    fig = "I am allergic to figs"
    hers, former = await learn(one, reader(ANN), fig), ids[of(FORMER)]
    await learn(one, reader(ANN_BY_MAIL), f"Mind: {fig}.")
    await learn(one, reader(BOB), fig)
    await learn(one, reader(FORMER, private=False), f"Again: {of(FORMER)}")
    assert hers is not None
    assert former is not None
    seen: dict[str, object] = {"gone": (await facts.forget(one, hers), await facts.forget(one, former))}
    for state in ("linked", "unlinked"):
        for who in EVERYBODY:
            seen[f"{state}: forgotten of {who}"] = await is_forgotten(one, reader(who), fig)
            seen[f"{state}: told {who}"] = sorted(fact.text for fact in await told(one, reader(who)))
        seen[f"{state}: kept"] = await learn(one, reader(ANN_BY_MAIL), fig) is not None
        await people.unlink(one, "ann", ANN_BY_MAIL.handle)
    return seen


def function(name: str) -> str:
    text = SQL.joinpath("functions/facts.sql").read_text(encoding="utf-8")
    found = re.search(rf"create or replace function {name}\(.*?\$\$;", text, re.DOTALL)
    assert found is not None
    return found[0]


CLAUSES: Final = (
    ("visible", "and f.handle = any (_handles)", "and false"),
    ("visible", "and f.handle = any (_handles)", ""),
    ("visible", "or (f.space = 'private' and _private and f.handle", "or (_private and f.handle"),
    ("visible", "_private and f.handle", "f.handle"),
    ("visible", "and _authentic", ""),
    ("visible", "f.system_id = _system_id", "true"),
    ("handles_of", "join person_handle o on o.person_id = h.person_id", "join person_handle o on o.key = h.key"),
    ("handles_of", "on o.person_id = h.person_id", "on true"),
    ("handles_of", "where h.key = _handle", ""),
    ("share_fact", "_authentic and ", ""),
    ("share_fact", "f.system_id = _system_id and ", ""),
    ("share_fact", "f.author = _person or ", ""),
    ("share_fact", " or f.handle = any (_handles)", ""),
    ("share_fact", "f.handle = any (_handles)", "true"),
    ("facts_like", "c.author = f.author or ", ""),
    ("facts_like", " or c.handle = any (o.handles)", ""),
    ("facts_like", "c.handle = any (o.handles)", "true"),
    ("forget_facts", "handle_mark(f.handle, f.words)", "null::uuid"),
    ("was_forgotten", "switchboard.handles_of(_handle)", "array[]::uuid[]"),
    ("was_forgotten", "switchboard.handles_of(_handle)", "array(select key from switchboard.person_handle)"),
    ("save_facts", "not was_forgotten(f.mark, k.handle, f.words)", "true"),
    ("handle_behind", " if channel.vouched else None", ""),
    ("sender_behind", ' and "=" not in key', ""),
    ("identity_of", "if sender.endpoint.startswith(EMBEDDED):", "if False:"),
    ("identity_of", 'if channel.identity != "address":', "if True:"),
)
"""A function or statement, what stands there, and what stands there instead."""
OF_HANDLES: Final = ("sender_behind", "handle_behind", "identity_of")
"""Those that are Python's."""


def changed(text: str, old: str, new: str) -> str:
    assert old in text, old
    return text.replace(old, new)


def changed_handle_behind(name: str, old: str, new: str) -> Callable[[str], Handle | None]:
    """A copy of the function, in which it, or one that it calls, has another text."""
    space = dict(vars(handles))
    for function in (handles.sender_behind, handles.identity_of, handles.handle_behind):
        text = inspect.getsource(function)
        exec(changed(text, old, new) if function.__name__ == name else text, space)  # noqa: S102
    found: Callable[[str], Handle | None] = space["handle_behind"]
    return found


async def test_without_a_clause_or_the_join_linked_persons_are_told_else(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = await Database.connect(database_url, size=1)
    try:
        whole = await observe(database)
        assert (whole["gone"], whole["linked: kept"], whole["unlinked: kept"]) == ((2, 3), False, True)
        for name, old, new in CLAUSES:
            with monkeypatch.context() as patch:
                if name in OF_HANDLES:
                    behind = changed_handle_behind(name, old, new)
                    patch.setattr(facts, "handle_behind", behind)
                    patch.setattr(readers, "handle_behind", behind)
                else:
                    await database.run(changed(function(name), old, new))
                assert await observe(database) != whole, (name, old, new)
            if name not in OF_HANDLES:
                await database.run(function(name))
        assert await observe(database) == whole
    finally:
        await database.close()


# Random programs ----------------------------------------------------------------------------------------------------

PERSONS: Final = ("ann", "bob", "cem")
ACCOUNTS: Final = tuple(
    Account(channel, endpoint, sender)
    for person in PERSONS
    for channel, endpoint, sender in (
        ("telegram", "bot", person),
        ("telegram", "another", person),
        ("email", "imap:bot", f"{person.title()}@example.org"),
        ("slack", "bot", person),
        ("slack", "another", person),
        ("api", "web", person),
        ("telegram", "embedded:System1/x", person),
    )
)


class Said(Struct, frozen=True):
    """A fact as the oracle knows it."""

    by: Account
    reader: Reader
    text: str
    shared: bool = False


@dataclass
class World:
    """The database, and what should be in it."""

    database: Database
    dice: random.Random
    linked: dict[Handle, str] = field(default_factory=dict)
    said: dict[UUID, Said] = field(default_factory=dict)
    done: Counter[str] = field(default_factory=Counter)

    def whose(self, who: Account) -> object:
        """The person behind an account, else the account itself."""
        return self.linked.get(who.handle, who) if who.vouched else who

    def hears(self, who: Account, by: Reader, one: Said) -> bool:
        if one.reader.system_id != by.system_id or not by.authentic:
            return False
        if one.shared:
            return True
        if not one.reader.private:
            return not by.private and one.reader.conversation == by.conversation
        return by.private and self.whose(who) == self.whose(one.by)

    def any_reader(self) -> tuple[Account, Reader]:
        who, often = self.dice.choice(ACCOUNTS), (True, True, True, False)
        private, authentic = self.dice.choice(often), self.dice.choice(often)
        return who, reader(who, private=private, authentic=authentic, butler=self.dice.choice((NOTES, NOTES, OTHER)))

    async def say(self) -> None:
        who, by = self.any_reader()
        text = f"plum {len(self.said)} {self.dice.random()}"
        fact_id = await learn(self.database, by, text)
        assert fact_id is not None
        self.said[fact_id] = Said(who, by, text)

    async def link(self) -> None:
        account, person = self.dice.choice(ACCOUNTS), self.dice.choice(PERSONS)
        if await people.link(self.database, person, account.handle, "operator"):
            assert self.linked.setdefault(account.handle, person) == person

    async def unlink(self) -> None:
        if self.linked:
            handle = self.dice.choice(sorted(self.linked, key=str))
            assert await people.unlink(self.database, self.linked.pop(handle), handle)

    async def delete(self) -> None:
        person = self.dice.choice(PERSONS)
        assert await people.delete(self.database, person)
        await people.create(self.database, person, person)
        self.linked = {handle: other for handle, other in self.linked.items() if other != person}

    async def share(self) -> None:
        if self.said:
            (who, by), fact_id = self.any_reader(), self.dice.choice(sorted(self.said))
            one = self.said[fact_id]
            may = by.authentic and by.system_id == one.reader.system_id and self.whose(who) == self.whose(one.by)
            assert await share(self.database, fact_id, by) == may
            self.said[fact_id] = replace(one, shared=one.shared or may)

    async def forget(self) -> None:
        if self.said:
            fact_id = self.dice.choice(sorted(self.said))
            assert await facts.forget(self.database, fact_id) == 1
            one = self.said.pop(fact_id)
            for who in self.dice.sample(ACCOUNTS, 4):
                by = reader(who, butler=one.reader.system_id)
                assert await is_forgotten(self.database, by, one.text) == (self.whose(who) == self.whose(one.by))

    async def ask(self) -> None:
        who, by = self.any_reader()
        heard = {
            one.text: self.whose(who) == self.whose(one.by) for one in self.said.values() if self.hears(who, by, one)
        }
        assert {fact.text: fact.own for fact in await told(self.database, by)} == heard
        assert await find(self.database, by, "plum") == {*heard}

    def steps(self, count: int) -> Iterator[str]:
        often = {"say": 4, "link": 4, "unlink": 2, "delete": 1, "share": 2, "forget": 1, "ask": 12}
        yield from self.dice.choices(list(often), list(often.values()), k=count)


@pytest.mark.parametrize("seed", range(3))
async def test_random_programs_never_tell_one_person_of_another(database_url: str, seed: int) -> None:
    database = await Database.connect(database_url, size=1)
    try:
        world = World(database, random.Random(seed))
        for person in PERSONS:
            await people.create(database, person, person)
        for step in world.steps(400):
            world.done[step] += 1
            await getattr(world, step)()
        assert world.done["ask"] >= 100
    finally:
        await database.close()
