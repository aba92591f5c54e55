"""`/memory`: people see what is remembered of them, correct it, have it forgotten, and switch it off."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pytest
from msgspec.structs import replace

from switchboard.core.channels.registry import CHANNELS
from switchboard.core.people.handle import handle_at
from switchboard.core.text.fact_numbers import number_of
from switchboard.core.turns.memory_command import (
    FORGOTTEN,
    HOW,
    NO_MATCH,
    NOT_THEIRS,
    NOTHING,
    OFF,
    ON,
    OVERHEARD,
    UNKNOWN,
    WRONG,
)
from switchboard.domain.routing import SystemId
from switchboard.ports.facts import Reader
from switchboard.store.database import query
from switchboard.store.memory import facts
from switchboard.store.memory.facts import NewFact
from switchboard.store.people import people
from tests.hands import at_work, settled
from tests.lab import TRUSTING, Lab, butler, lab, message, rule, submission, team_of
from tests.waiting import eventually

ECHO, OTHER = SystemId("System1/echo"), SystemId("System1/other")
ANN: Final = {"sender": "ann", "thread": "ann", "chat_type": "private"}
BOB: Final = {"sender": "bob", "thread": "bob", "chat_type": "private"}
CLUB: Final = {"thread": "club", "chat_type": "group"}
PASSED: Final = {
    "headers": {"To": "me@example.net", "Authentication-Results": "mx.example; dmarc=pass header.from=example.org"}
}
MAIL: Final = {"channel": "email", "sender": "ann@example.org", "endpoint": "me@example.net", "raw": PASSED}


@dataclass
class House:
    """A worker, and two butlers of whom one answers."""

    parts: Lab

    async def say(self, text: str, **more: Any) -> str:
        said = await self.parts.accept.accept(submission(text, **(more or ANN)))
        await eventually(lambda: settled(self.parts))
        return "\n".join(await self.parts.replies_to(said.request_id))

    async def learn(self, text: str, where: Mapping[str, str] = ANN, system_id: SystemId = ECHO, **more: str) -> str:
        """Keep a fact that somebody has said where this message is from; its number."""
        given = message(**where)
        sender, private = given.envelope.sender, where["chat_type"] == "private"
        person = f"{given.envelope.source.channel}/bot%3Ahouse/{sender.identity}"
        reader = Reader(system_id, given.conversation, person, private)
        assert (
            await facts.learn(
                self.parts.database, reader, NewFact(person, more.get("subject", "self"), private, text, ())
            )
            == 1
        )
        found = await facts.list_facts(self.parts.database, None, None, None, 100)
        return next(number_of(one.fact_id) for one in found if one.text == text)

    async def texts(self) -> set[str]:
        return {one.text for one in await facts.list_facts(self.parts.database, None, None, None, 100)}


@pytest.fixture
async def house(database_url: str) -> AsyncIterator[House]:
    """Ann is known on Telegram and by mail; bob only on Telegram."""
    team = team_of(butler("echo"), butler("other"))
    async with lab(database_url, [team], [rule("System1/echo")], channels=TRUSTING) as parts:
        await people.create(parts.database, "ann", "Ann")
        for channel, identity in (("telegram", "ann"), ("email", "ann@example.org")):
            await people.link(parts.database, "ann", handle_at(CHANNELS[channel], "bot:house", identity), "operator")
        async with at_work(parts.worker()):
            yield House(parts)


async def test_everybody_is_shown_what_may_be_told_to_them_with_who_said_it(house: House) -> None:
    assert await house.say("/memory") == NOTHING
    figs = await house.learn("I like figs")
    await house.learn("I owe Ann ten francs", BOB)
    noor = await house.learn("Noor keeps three bees", {"sender": "ann", **CLUB}, subject="Noor")
    elsewhere = await house.learn("I moved to Bern", system_id=OTHER)
    lines = (await house.say("/memory")).splitlines()
    today = lines[1].partition(" - ")[2][:10]
    for more in (ANN, MAIL):
        assert (await house.say("/memory", **more)).splitlines()[1:-1] == [
            f"{elsewhere} - {today}, you to other alone (telegram): I moved to Bern",
            f"{figs} - {today}, you to echo alone (telegram): I like figs",
        ]
    await house.say("hello", sender="bob", **CLUB)
    in_group = await house.say("/memory show", sender="bob", **CLUB)
    by = '"Ann (person ann)", telegram/bot%3Ahouse/ann'
    assert in_group.splitlines()[1:-1] == [f"{noor} - {today}, {by} to echo here, about Noor: Noor keeps three bees"]
    assert "figs" in await house.say("/memory show FIGS or dates")
    assert await house.say("/memory show walnuts") == NO_MATCH


async def test_only_its_author_or_whom_it_is_about_changes_a_fact(house: House) -> None:
    hers = await house.learn("I like figs", {"sender": "ann", **CLUB})
    about = await house.learn("Ann likes dates", {"sender": "bob", **CLUB}, subject="Ann")
    await house.learn("I like nuts")
    secret = number_of((await facts.list_facts(house.parts.database, None, None, None, 1))[0].fact_id)
    group = {"sender": "bob", **CLUB}
    await house.say("hello", **group)
    for verb in ("wrong", "forget"):
        assert await house.say(f"/memory {verb} {hers}", **group) == NOT_THEIRS
        assert await house.say(f"/memory {verb} {secret}", **group) == UNKNOWN.format(number=secret)
        assert await house.say(f"/memory {verb} aaaaa", **group) == UNKNOWN.format(number="aaaaa")
    await people.create(house.parts.database, "other", "Ann")
    assert await house.say(f"/memory wrong {about}", sender="ann", **CLUB) == NOT_THEIRS, "who of the two is meant?"
    await people.delete(house.parts.database, "other")
    assert await house.say(f"/memory wrong {about}", sender="ann", **CLUB) == WRONG.format(text="Ann likes dates")
    assert await house.say(f"/memory wrong {about}", sender="ann", **CLUB) == UNKNOWN.format(number=about)
    assert await house.say(f"/memory forget {secret.upper()}") == FORGOTTEN
    assert await house.texts() == {"I like figs", "Ann likes dates"}
    listed = await house.say("/memory", **group)
    assert "figs" in listed
    assert "dates" not in listed


@pytest.mark.parametrize("verb", ["forget", "wrong"])
async def test_what_says_the_same_in_other_words_goes_with_it(house: House, verb: str) -> None:
    given, person = message(**ANN), "telegram/bot%3Ahouse/ann"
    reader = Reader(ECHO, given.conversation, person, private=True)
    said = {
        "I live in Bern": "Bern",
        "Bern is where I live": "bern",
        "My home is Bern.": "Bern.",
        "I like Bern": "Bern",
    }
    for text, value in said.items():
        new = NewFact(person, "self", True, text, (), "likes" if "like" in text else "lives_at", value)
        assert await facts.learn(house.parts.database, reader, new) == 1
    club = replace(reader, conversation=message(sender="ann", **CLUB).conversation, private=False)
    await facts.learn(house.parts.database, club, NewFact(person, "self", False, "Bern!", (), "lives_at", "Bern"))
    listed = (await house.say("/memory")).splitlines()[1:-1]
    assert [one.rpartition(": ")[2] for one in listed] == ["I like Bern", "I live in Bern"], (
        "what confirms is not shown"
    )
    assert await house.say(f"/memory {verb} {listed[1][:5]}") in {FORGOTTEN, WRONG.format(text="I live in Bern")}
    assert (await house.say("/memory")).splitlines()[1:-1] == listed[:1]
    left = await house.parts.database.rows("select text from fact where undone_at is null order by text")
    assert [row["text"] for row in left] == ["Bern!", "I like Bern"], "what others were told is another fact"


async def test_a_number_never_stands_for_another_fact(house: House) -> None:
    first, second = await house.learn("I like figs"), await house.learn("I like dates")
    assert await house.say(f"/memory forget {first}") == FORGOTTEN
    await house.learn("I like nuts")
    assert await house.say(f"/memory forget {first}") == UNKNOWN.format(number=first)
    assert await house.say(f"/memory wrong {second}.") == WRONG.format(text="I like dates")


async def test_all_of_ones_own_is_exported_where_nobody_else_reads(house: House) -> None:
    await house.learn("I like figs")
    await house.learn("I moved to Bern", {"sender": "ann", **CLUB}, OTHER)
    await house.learn("I like nuts", BOB)
    reader = Reader(ECHO, message(**ANN).conversation, "telegram/bot%3Ahouse/ann", private=True)
    for value in ("Ulm", "Bern"):
        new = NewFact(reader.person, "self", True, f"I live in {value}", (), "lives_at", value)
        await facts.learn(house.parts.database, reader, new)
    assert "Ulm" not in await house.say("/memory")
    await house.say("hello", sender="ann", **CLUB)
    assert await house.say("/memory export", sender="ann", **CLUB) == OVERHEARD
    exported = await house.say("/memory export")
    assert [one in exported for one in ("I like figs", "I live in Ulm", "I live in Bern")] == [True, True, True]
    assert "nuts" not in exported


async def test_between_off_and_on_nothing_is_learned(house: House) -> None:
    async def learns() -> bool:
        said = await house.parts.accept.accept(submission("hello", **ANN))
        await eventually(lambda: settled(house.parts))
        return bool(await house.parts.database.value(query("told.is_learning"), said.request_id))

    assert await learns()
    for command, answer, expected in (("off", OFF, False), ("off", OFF, False), ("on", ON, True)):
        assert await house.say(f"/memory {command}") == answer
        assert await learns() is expected


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("/memory wrong 3", HOW),
        ("/memory please", HOW),
        ("/MEMORY Show", NOTHING),
        ("/memory@house", NOTHING),
        ("/memroy", "Did you mean /memory? If not, write it without the slash."),
        ("/memory palaces are an old technique, what do you think?", None),
    ],
)  # fmt: skip
async def test_what_is_nearly_the_command_is_told_how_to_write_it(house: House, text: str, answer: str | None) -> None:
    assert await house.say(text) == (answer or text)
