"""`remember` and `memory_search` in real turns: what a person has kept holds in their next conversation.

Messages are accepted, routed, answered by the engine `model` and settled as in production; only the model is scripted:
it quotes what it is told to, corrects itself once if a tool says how, and repeats what its tools said.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from switchboard.agents.model.engine import ModelEngine
from switchboard.agents.trio.engine import TrioEngine
from switchboard.agents.turns.call_engine import CallEngine
from switchboard.domain.message import Conversation
from switchboard.domain.routing import SystemId
from switchboard.journey.turn import TurnLimits
from switchboard.lanes import faults
from switchboard.ports.engine import Engine, EngineContext
from switchboard.ports.facts import Reader
from switchboard.ports.tools import Toolset
from switchboard.store.memory import facts
from switchboard.store.memory.facts import NewFact, StoredFacts
from switchboard.store.memory.history import StoredHistory, StoredReaders
from switchboard.store.people.people import StoredNames
from switchboard.store.work.surroundings import StoredSurroundings
from switchboard.testing.scripted_llm import Call, Reply, Request, ScriptedLlm, Status
from tests.asking import spec
from tests.dead_letters import OPERATOR, service_of, to_butler
from tests.engines import Book
from tests.hands import all_dead_letters, at_work, settled
from tests.lab import TRUSTING, Lab, lab, member, submission, team_of
from tests.trios import Given, plan, tool
from tests.turning import Asked, NoMemos
from tests.waiting import eventually

CLERK, PLANNER = SystemId("System1/clerk"), SystemId("System1/planner")
FACT: Final = "I am allergic to hazelnuts"
ASKED: Final = f"Please remember that {FACT}."
GROUPS: Final = {"others": ["remember", "memory_search"], "groups": ["remember", "memory_search"]}


@dataclass
class Clerk:
    """The model: it makes the calls that it is given, one after the other, and then repeats the last result."""

    calls: list[Call] = field(default_factory=list)
    prompts: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    """All that it was told when it was asked."""
    offered: list[tuple[str, ...]] = field(default_factory=list)
    results: list[str] = field(default_factory=list)
    fails: bool = False

    def __call__(self, request: Request) -> Reply:
        if self.fails:
            return Reply(fault=Status(400, message="messages: this is not allowed"))
        results = [one.text for one in request.results]
        self.results += results[-1:]
        if not results:
            self.prompts.append(request.messages[-1].text)
            self.asked.append("\n".join(one.text for one in request.messages))
            self.offered.append(request.tools)
        told = re.search(r'Write the person\'s words: "(.*)"', results[-1]) if results else None
        if told and len(results) == 1:
            return Reply(calls=(Call("remember", {"quote": told[1]}),))
        if len(results) < len(self.calls):
            return Reply(calls=(self.calls[len(results)],))
        return Reply(results[-1] if results else "Yes.")


def remember(*quotes: str) -> list[Call]:
    return [Call("remember", {"quote": one}) for one in quotes]


def search(query: str) -> list[Call]:
    return [Call("memory_search", {"query": query})]


@dataclass
class House:
    """A worker, its model, and what it has learned."""

    parts: Lab
    clerk: Clerk

    async def say(self, text: str = "Hello.", calls: Sequence[Call] = (), **message: Any) -> str:
        """The answer to a message for which the model makes these calls."""
        self.clerk.calls = list(calls)
        known = {"sender": "ann", "chat_type": "private", "pinned": CLERK, **message}
        accepted = await self.parts.accept.accept(submission(text, **known))
        await eventually(lambda: settled(self.parts), within=60)
        return "\n".join(await self.parts.replies_to(accepted.request_id))

    async def kept(self) -> list[tuple[str, str, str]]:
        found = await facts.list_facts(self.parts.database, None, None, None, 100)
        return [(one.author, one.space.partition(":")[0], one.text) for one in found]

    async def foreign(self) -> list[bool]:
        """Of each turn of the clerk, in order: whether it began with others' words."""
        rows = await self.parts.database.rows(
            "select (result->>'told')::bool as told from step where path = 'start' order by started_at"
        )
        return [row["told"] for row in rows]


@asynccontextmanager
async def a_house(
    url: str,
    workspaces: Path,
    planned: Any = None,
    toolset: Callable[[Lab], Toolset | None] = lambda _: None,
    clerk: Clerk | None = None,
    **options: Any,
) -> AsyncIterator[House]:
    members = (member(CLERK, "model", **options), member(PLANNER, "trio", **options))
    async with lab(url, [team_of(*members)], [], channels=TRUSTING) as parts:
        clerk = clerk or Clerk()
        async with ScriptedLlm(clerk) as llm:
            readers, models = StoredReaders(parts.database, TRUSTING), Asked([spec("openai", llm.url, "m")])
            context = EngineContext(
                *(NoMemos(), Book()),
                models=models,
                workspaces=workspaces,
                readers=readers,
                history=StoredHistory(parts.database, readers),
                facts=StoredFacts(parts.database, readers),
                names=StoredNames(parts.database),
                surroundings=StoredSurroundings(parts.database, TRUSTING, readers),
                toolset=toolset(parts),
            )
            planner = Given(planned or plan(tool("s1", "remember", quote=FACT)))
            engines: dict[str, Engine] = {
                "model": ModelEngine(context),
                "trio": TrioEngine(context, planner=planner),
                "call": CallEngine(context),
            }
            try:
                limits = TurnLimits(attempts=3, timeout=20, backoff_base=0.05, backoff_cap=0.2)
                async with at_work(parts.worker(engines, poll=0.02, limits=limits)):
                    yield House(parts, clerk)
            finally:
                await models.aclose()


async def test_what_a_person_has_remembered_holds_in_their_next_conversation(database_url: str, tmp_path: Path) -> None:
    async with a_house(database_url, tmp_path) as house:
        wrong = "The user is allergic to hazelnuts"
        assert await house.say(ASKED, remember(wrong)) == f'remembered: "{FACT}"'
        assert await house.kept() == [("telegram/bot%3Ahouse/ann", "private", FACT)]
        assert await house.say("May I eat this?", thread="another") == "Yes."
        assert FACT in house.clerk.prompts[-1]
        for query in ("hazelnut allergy", "What am I allergic to?", "HAZELNUTS'; drop table fact"):
            found = await house.say("So?", search(query), thread="another")
            assert re.fullmatch(rf"[a-z2-9]{{5}} \d{{4}}-\d\d-\d\d: {FACT}", found), query
        assert "nothing that this person" in await house.say("So?", search("walnuts"))
        for other in ({"sender": "bob"}, {"endpoint": "bot:other"}, {"channel": "slack", "provider": "slack"}):
            assert "nothing that this person" in await house.say("So?", search("hazelnuts"), **other)
            assert FACT not in house.clerk.prompts[-1]


async def test_nothing_is_kept_where_people_have_switched_it_off(database_url: str, tmp_path: Path) -> None:
    async with a_house(database_url, tmp_path) as house:
        await house.say("/memory off", pinned=None)
        assert "until somebody writes /memory on" in await house.say(ASKED, remember(FACT))
        assert await house.kept() == []
        rows = await house.parts.database.rows("select learn from entry")
        assert [row["learn"] for row in rows] == [False, False]
        await house.say("/memory on", pinned=None)
        assert "has not written this" not in await house.say("And now?", remember(FACT))
        assert await house.kept() == [], "what was said in between stays unlearned"
        assert await house.say(ASKED, remember(f"{FACT}.")) == f'remembered: "{FACT}"'
        assert len(await house.kept()) == 1


def said(query: str = "", **more: str) -> list[Call]:
    return [Call("history_search", {"query": query, **more})]


async def test_what_was_said_is_found_by_whoever_may_see_it(database_url: str, tmp_path: Path) -> None:
    async with a_house(database_url, tmp_path) as house:
        await house.say("The boiler makes a noise again.", thread="home")
        await house.say("Nobody else likes figs.", sender="bob", thread="bob")
        found = json.loads((await house.say("So?", said("boilers"), thread="work")).splitlines()[0])
        assert (found["by"], found["channel"]) == ("telegram/bot%3Ahouse/ann", "telegram")
        assert (found["text"], found["words"]) == ("The boiler makes a noise again.", ["boiler"])
        rows = (await house.say("So?", said("boiler", channel="telegram", person="ann"), thread="work")).splitlines()
        assert [json.loads(row)["by"] for row in rows][:2] == ["telegram/bot%3Ahouse/ann", "you"]
        hidden = await house.say("So?", said("figs"), thread="work")
        assert hidden == await house.say("So?", said("dates"), thread="work")
        assert "nothing that was said" in hidden
        for more in ({"channel": "email"}, {"person": "bob"}, {"until": "2020-01-01"}, {"since": "2100-01-01"}):
            assert await house.say("So?", said("boiler", **more), thread="work") == hidden, more
        assert "YYYY-MM-DD" in await house.say("So?", said(since="2026-02-30"), thread="work")


async def test_a_turn_is_told_what_is_relevant_to_its_message(database_url: str, tmp_path: Path) -> None:
    """However long ago it was said, and however much was said since."""
    async with a_house(database_url, tmp_path) as house:
        await house.say(ASKED, remember(FACT))
        who = Reader(CLERK, Conversation("telegram/bot:house/ann"), "telegram/bot%3Ahouse/ann", private=True)
        said = (
            "The key of the cellar is under the blue pot",
            *(f"The {n}th bus was late again today" for n in range(150)),
        )
        for text in said:
            assert await facts.learn(house.parts.database, who, NewFact(who.person, "self", True, text, ()))
        await house.say("Where is the key of the cellar?", thread="another")
        notes = [one for one in house.clerk.prompts[-1].splitlines() if one.startswith("- ")]
        assert notes[0].endswith(FACT)
        assert notes[1].endswith(said[0])
        assert notes[2].endswith("The 149th bus was late again today")
        assert len(notes) < 100


OTHERS: Final[tuple[dict[str, Any], ...]] = (
    {"payload": {"passages": [{"kind": "own", "text": "Look."}, {"kind": "quoted", "text": ASKED}]}},
    {"payload": {"passages": [{"kind": "own", "text": "Look."}, {"kind": "forwarded", "text": ASKED}]}},
    {"text": f"Look:\n> {ASKED}", "channel": "api"},
    {
        "payload": {
            "normalized_text": "Look.",
            "attachments": [{"filename": f"{FACT}.txt", "media_type": "text/plain", "size_bytes": 9}],
        }
    },
    {"text": "Nothing.", "sender": "bob"},
)
"""Messages in which Ann's, or somebody else's, words are not those of their sender."""


async def test_words_that_the_person_did_not_write_here_are_never_kept(database_url: str, tmp_path: Path) -> None:
    async with a_house(database_url, tmp_path) as house:
        for n, message in enumerate(OTHERS):
            told = await house.say(**{"text": "Look.", **message, "thread": f"{n}"}, calls=remember(FACT))
            assert told.startswith("not kept: the person has not written this"), message
        await house.say(ASKED, thread="chess")
        assert await house.say("Keep it.", remember(FACT), thread="another") != f'remembered: "{FACT}"'
        assert await house.kept() == []
        assert await house.say("Keep it.", remember(FACT), thread="chess") == f'remembered: "{FACT}"'
        [[said]] = await house.parts.database.rows(
            "select e.text from fact_source s join entry e on e.lane = s.lane and e.position = s.position"
        )
        assert said == ASKED, "the message that says it, and not the one that asked for it"


async def test_memory_is_offered_where_facts_exist(database_url: str, tmp_path: Path) -> None:
    """Not in a group, unless it is granted there, and never to a sender who may be somebody else.

    What is told of health in a group is kept, but the group is not shown it.
    """
    mail: dict[str, Any] = {
        "channel": "email",
        "endpoint": "imap:bot@house.example",
        "sender": "ann@example.org",
        "chat_type": None,
    }
    head = {"to": "bot@house.example", "authentication-results": "mx.example; dkim={} header.d=example.org"}
    heads = {one: {"headers": {name: text.format(one) for name, text in head.items()}} for one in ("pass", "fail")}
    group: dict[str, Any] = {"thread": "club", "chat_type": "group"}
    async with a_house(database_url, tmp_path) as house:
        offered: list[dict[str, Any]] = [{}, group, {**mail, "raw": heads["pass"]}, {**mail, "raw": heads["fail"]}]
        for message in offered:
            await house.say(**message)
        all_of_them = ("remember", "memory_search", "history_search", "module_tools")
        assert house.clerk.offered == [all_of_them, (), all_of_them, ()]
    async with a_house(database_url, tmp_path, grants=GROUPS) as house:
        harmless = "I keep 7 hives"
        for told in (harmless, FACT):
            asked = f"Please remember that {told}."
            assert await house.say(asked, remember(told), **group) == f'remembered: "{told}"'
        assert [space for _, space, _ in await house.kept()] == ["group", "group"]
        await house.say(sender="bob", **group)
        assert harmless in house.clerk.prompts[-1]
        assert f"about self: {FACT}" not in house.clerk.prompts[-1]
        assert "nothing that this person" in await house.say("So?", search("hives"), sender="bob", **group)
        assert "nothing that this person" in await house.say("So?", search("hives"))
        assert harmless not in house.clerk.prompts[-1]


@pytest.mark.parametrize("where", ["before_complete", "after_complete"])
async def test_a_turn_that_dies_keeps_all_or_nothing_and_nothing_twice(
    where: str, database_url: str, tmp_path: Path
) -> None:
    died = list[str]()

    def die() -> None:
        died.append(where)
        raise RuntimeError("killed")

    async with a_house(database_url, tmp_path) as house:
        faults.arm(where, die)
        try:
            await house.say(f"{ASKED} {FACT}!", remember(FACT, f"{FACT}!", FACT))
        finally:
            faults.arm("")
        assert (died, len(await house.kept())) == ([where], 1)
        assert await house.parts.count("select count(*) from entry") == 2
        assert await house.parts.count("select count(*) from fact_source") == 1
        await house.say("Keep it.", remember(FACT))
        assert len(await house.kept()) == 1


async def forget_all(house: House) -> None:
    for fact in await facts.list_facts(house.parts.database, None, None, None, 100):
        assert await facts.forget(house.parts.database, fact.fact_id)


AGAIN: Final = (
    (ASKED, ASKED),
    (f"{FACT}. I live in Bern.", f"{FACT}. I live in Bern."),
    (f"{FACT} and I like tea", "allergic to hazelnuts"),
    (f"{FACT} and I like tea", "allergic to hazelnuts and I like tea"),
    (f"So: {FACT},\nand I like tea", f"{FACT}, and I like tea"),
    (f"{FACT}.", "allergic to hazelnuts"),
)
"""What a person writes, and what of it is quoted."""


async def test_what_was_forgotten_is_not_kept_again_and_the_person_is_told(database_url: str, tmp_path: Path) -> None:
    async with a_house(database_url, tmp_path) as house:
        await house.say(ASKED, remember(FACT))
        await forget_all(house)
        assert not await house.parts.count("select count(*) from entry where learn")
        for said, quote in AGAIN:
            assert "was forgotten on request" in await house.say(said, remember(quote), thread="another"), quote
        assert "was forgotten on request" in await house.say("Keep it.", remember(FACT))
        await house.say("The cat is called Mia.")
        await house.parts.database.run("update entry set learn = false where text like 'The cat%'")
        assert "was forgotten on request" in await house.say("Keep it.", remember("The cat is called Mia"))
        assert await house.kept() == []
        assert "remembered" in await house.say(f"{FACT} and I like tea", remember("I like tea"), thread="another")


@pytest.mark.parametrize("first", ["forget", "reroute"])
async def test_a_message_that_failed_and_comes_again_stays_forgotten(
    first: str, database_url: str, tmp_path: Path
) -> None:
    async with a_house(database_url, tmp_path) as house:
        house.clerk.fails = True
        await house.say(ASKED)
        [dead] = await all_dead_letters(house.parts)
        house.clerk.fails = False
        assert "remembered" in await house.say("Keep it.", remember(FACT))

        async def reroute() -> None:
            house.clerk.calls = remember("am allergic to hazelnuts") if first == "forget" else []
            await service_of(house.parts).reroute(OPERATOR, dead["dead_letter_id"], to_butler("clerk"))
            await eventually(lambda: settled(house.parts), within=60)

        if first == "reroute":
            await reroute()
        await forget_all(house)
        if first == "forget":
            await reroute()
            assert "was forgotten on request" in house.clerk.results[-1]
        learn = (
            "select count(*) from entry where learn and request_id in (select request_id from entry where text = $1)"
        )
        assert not await house.parts.database.value(learn, ASKED)
        assert "was forgotten on request" in await house.say("Keep it.", remember("am allergic to hazelnuts"))
        assert await house.kept() == []


async def test_what_somebody_else_has_said_is_foreign_wherever_it_is_told(database_url: str, tmp_path: Path) -> None:
    async with a_house(database_url, tmp_path) as house:
        house.clerk.prompts.clear()
        assert await house.say(ASKED, remember(FACT), sender="bob") == f'remembered: "{FACT}"'
        await house.say(sender="bob", thread="own")
        await house.say(sender="ann", thread="before")
        [known] = await facts.list_facts(house.parts.database, None, None, None, 2)
        await facts.share_as_operator(house.parts.database, known.fact_id)
        await house.say(sender="ann", thread="after")
        await house.say(sender="bob", thread="still his own")
        shown = [f"about self: {FACT}" in prompt for prompt in house.clerk.prompts]
        assert (shown, await house.foreign()) == ([False, True, False, True, True], [False, False, False, True, False])


async def test_a_plan_may_have_something_remembered(database_url: str, tmp_path: Path) -> None:
    async with a_house(database_url, tmp_path) as house:
        assert FACT in await house.say(ASKED, pinned=PLANNER)
        assert await house.kept() == [("telegram/bot%3Ahouse/ann", "private", FACT)]
