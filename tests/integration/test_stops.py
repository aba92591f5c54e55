"""Stopping a turn from elsewhere: another process, with connections of its own, asks for it.

That nothing is begun any more is asserted by what was counted; that a turn ends at once, by what is still held when it
has ended. How long it took by the clock of the database is printed.
"""

from __future__ import annotations

import asyncio
import threading
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, Literal
from uuid import UUID

import pytest
from msgspec import structs

from switchboard.agents.model.engine import ModelEngine
from switchboard.core.channels.registry import CHANNELS
from switchboard.core.policy.retry import OutagePolicy
from switchboard.core.turns.stop import STOPPED
from switchboard.domain.json_values import JsonMapping
from switchboard.domain.routing import Classified
from switchboard.journey.accept import Submission
from switchboard.journey.ask import Question
from switchboard.journey.stopping import announce
from switchboard.journey.turn import TurnLimits
from switchboard.ports.engine import (
    Act,
    Answer,
    Ask,
    Decided,
    Effect,
    Engine,
    Journal,
    OnRecord,
    Turn,
    TurnResult,
)
from switchboard.ports.tools import ToolOutcome, ToolScope
from switchboard.store.memory.history import StoredHistory, StoredReaders
from switchboard.store.messages.inbox import Acceptance
from switchboard.store.work.stopping import stop_message
from switchboard.testing.scripted_llm import Call, Hang, Reply, Request, ScriptedLlm, Status
from switchboard.testing.scripted_llm.faults import Where
from switchboard.tools.threads import StopSignal, in_thread
from tests.hands import a_hand, assert_balanced, at_work, settled
from tests.lab import TRUSTING, Lab, butler, lab, rule, submission, team_of
from tests.turning import OWNER, Noting, a_model_engine
from tests.waiting import eventually

TEAM = team_of(butler("clerk", "model", owners=OWNER))
RULES = [rule("System1/clerk")]
LIMITS = TurnLimits(attempts=3, timeout=30, backoff_base=0.02, backoff_cap=0.05)
LONG = OutagePolicy(least=600.0, most=600.0, told=3600.0, given_up=7200.0)


def away(_: Request) -> Reply:
    return Reply(fault=Status(503))


async def waits(parts: Lab) -> bool:
    """Whether a lane waits for its next attempt."""
    return await parts.count("select count(*) from lane where state = 'ready' and delayed") == 1


@pytest.mark.parametrize("how", ["command", "request"])
async def test_a_turn_that_waits_for_its_model_ends_at_once(database_url: str, how: str) -> None:
    async with (
        lab(database_url, [TEAM], RULES) as parts,
        lab(database_url, [TEAM], RULES) as other,
        ScriptedLlm(away) as llm,
        a_model_engine(llm) as (engine, _),
        at_work(parts.worker({"model": engine}, limits=structs.replace(LIMITS, outage=LONG))),
    ):
        message = await other.accept.accept(submission("long", channel="api", sender="x", event="m"))
        await eventually(lambda: waits(parts))
        asked = len(llm.requests)
        if how == "command":
            await other.accept.accept(submission("/stop", channel="api", sender="x", event="s"))
        else:
            await announce(other.database, other.notifier, await stop_message(other.database, message.request_id))
        await eventually(lambda: settled(parts))
        assert await parts.replies_to(message.request_id) == [STOPPED]
        assert len(llm.requests) == asked
        reasons = "select stop_reason from attempt where request_id = $1 and outcome = 'answered'"
        assert await parts.database.value(reasons, message.request_id) == "aborted"
        await assert_balanced(parts)


# The command ----------------------------------------------------------------------------------------------------------

IDLE = "Nothing is running."


@dataclass
class Gate:
    """What an engine or a tool waits at, until it is cancelled or let through."""

    entered: asyncio.Event = field(default_factory=asyncio.Event)
    open: asyncio.Event = field(default_factory=asyncio.Event)
    through: threading.Event = field(default_factory=threading.Event)

    def release(self) -> None:
        """Whatever still waits, in a thread too, goes on."""
        self.open.set()
        self.through.set()

    async def passed(self) -> None:
        self.entered.set()
        await self.open.wait()

    async def __call__(self, _: JsonMapping, __: ToolScope) -> ToolOutcome:
        await self.passed()
        return ToolOutcome("through")


def brain(request: Request) -> Reply:
    """A long message has a call; the others are answered at once."""
    calling = "long" in request.prompt and request.messages[-1].role != "tool"
    return Reply(calls=(Call("wait", {}),)) if calling else Reply(text="Here.")


@dataclass
class Site:
    """A worker in a turn that waits in a tool, and a process of its own that takes messages in."""

    parts: Lab
    other: Lab
    llm: ScriptedLlm
    gate: Gate

    async def says(self, text: str, **more: Any) -> Acceptance:
        return await self.other.accept.accept(submission(text, **{"channel": "api", "sender": "x", **more}))

    async def is_answered(self, message: Acceptance) -> str:
        """The reply, once it is there."""

        async def there() -> bool:
            return bool(await self.parts.replies_to(message.request_id))

        await eventually(there)
        [text] = await self.parts.replies_to(message.request_id)
        return text


@asynccontextmanager
async def a_site(url: str, members: Sequence[Any] = (), *, classifier: Any = None) -> AsyncIterator[Site]:
    team, gate = structs.replace(TEAM, members=TEAM.members + tuple(members), classify=classifier is not None), Gate()
    async with (
        lab(url, [team], RULES, classifying=classifier is not None) as parts,
        lab(url, [team], RULES, classifying=classifier is not None) as other,
        ScriptedLlm(brain) as llm,
        a_model_engine(llm, [Noting("wait", act=gate)]) as (engine, _),
        at_work(parts.worker({"model": engine, "slow": Slow(gate)}, classifier=classifier, limits=LIMITS)),
    ):
        yield Site(parts, other, llm, gate)


class Slow:
    """An engine that cannot stop in the middle."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    async def run(self, turn: Turn, journal: Journal) -> TurnResult:  # noqa: ARG002
        await self._gate.passed()
        return Answer("Done.")


async def test_the_command_is_stored_answered_and_given_to_nobody(database_url: str) -> None:
    async with a_site(database_url) as site:
        long = await site.says("long")
        await asyncio.wait_for(site.gate.entered.wait(), 20)
        behind, stop = await site.says("short"), await site.says(" /Stop ")
        assert await site.is_answered(stop) == "Stopped."
        assert await site.is_answered(long) == STOPPED
        assert await site.is_answered(behind) == "Here."
        assert await site.is_answered(await site.says("/stop")) == IDLE
        assert [request.prompt.splitlines()[-1] for request in site.llm.requests] == ["> long", "> short"]
        assert stop.decision is not None
        [step] = stop.decision.trail
        assert (step.reason, step.rule_id) == ("command", None)
        where = "select system_id || ' ' || state from delivery where request_id = $1"
        assert await site.parts.database.value(where, stop.request_id) == "switchboard answered"
        await assert_balanced(site.parts)


async def test_the_command_is_answered_though_a_butler_is_pinned(database_url: str) -> None:
    async with a_site(database_url) as site:
        assert await site.is_answered(await site.says("/stop", pinned="System1/clerk")) == IDLE
        assert await site.is_answered(await site.says("short", pinned="switchboard")) == "Here."


@pytest.mark.parametrize("who", [{"sender": "y"}, {"thread": "elsewhere"}, {"endpoint": "bot:other"}])
async def test_only_who_asked_stops_it_and_only_there(database_url: str, who: dict[str, str]) -> None:
    async with a_site(database_url) as site:
        long = await site.says("long", thread="group")
        await asyncio.wait_for(site.gate.entered.wait(), 20)
        assert await site.is_answered(await site.says("/stop", **{"thread": "group", **who})) == IDLE
        site.gate.open.set()
        assert await site.is_answered(long) == "Here."


@pytest.mark.parametrize("headers", [{}, {"precedence": "bulk"}])
async def test_mail_that_may_be_from_anybody_or_is_automatic_is_no_command(
    database_url: str, headers: dict[str, str]
) -> None:
    async with a_site(database_url) as site:
        raw = {"headers": {"from": "x@example.org", "to": "us@example.org", **headers}}
        mail = await site.says("/stop", channel="email", sender="x@example.org", raw=raw)
        assert mail.decision is not None
        assert [one.system_id for one in mail.decision.chosen] == ["System1/clerk"]


async def test_what_cannot_stop_in_the_middle_makes_no_further_attempt(database_url: str) -> None:
    async with a_site(database_url, [butler("slow", "slow")]) as site:
        slow = await site.says("slow", pinned="System1/slow")
        await asyncio.wait_for(site.gate.entered.wait(), 20)
        told = await site.is_answered(await site.says("/stop"))
        assert told == "This cannot be stopped; there will be no further attempt."
        site.gate.open.set()
        assert await site.is_answered(slow) == "Done."


class Asking:
    """Waits for an approval; `parks` is passed before that."""

    def __init__(self, *, stoppable: bool, parks: Gate) -> None:
        self.stoppable, self.parks = stoppable, parks

    async def run(self, turn: Turn, journal: Journal) -> TurnResult:
        if turn.text != "ask":
            return Answer("Here.")
        if turn.stop is not None and turn.stop.is_set():
            return Answer(STOPPED, stop_reason="aborted")
        await journal.expect("approval")
        await self.parks.passed()
        found = await journal.wait("approval")
        return Answer(f"{found.value}")


@pytest.mark.parametrize("stoppable", [True, False])
@pytest.mark.parametrize("parked", [True, False])
async def test_a_turn_that_waits_or_is_about_to_wait_for_an_event_ends_at_once(
    database_url: str, stoppable: bool, parked: bool
) -> None:
    team = team_of(butler("clerk", "asking"))
    gate = Gate()
    if parked:
        gate.open.set()
    engine = Asking(stoppable=stoppable, parks=gate)
    async with (
        lab(database_url, [team], RULES) as parts,
        ScriptedLlm(brain) as llm,
        at_work(parts.worker({"asking": engine}, limits=LIMITS)),
    ):
        site = Site(parts, parts, llm, gate)
        asking = await site.says("ask")
        await asyncio.wait_for(gate.entered.wait(), 20)
        if parked:
            await eventually(lambda: parts.count("select count(*) from parked"))
            assert await site.is_answered(await site.says("short")) == "Here."
        stop = await site.says("/stop")
        gate.open.set()
        assert await site.is_answered(asking) == STOPPED
        assert await site.is_answered(stop) != IDLE
        assert await parts.count("select count(*) from parked") == 0
        assert await site.is_answered(await site.says("/stop")) == IDLE
        await assert_balanced(parts)


class Holding:
    """A classifier that answers when it may."""

    def __init__(self) -> None:
        self.gate, self.asked = Gate(), list[str]()

    async def ask(self, question: Question, journal: Journal) -> Classified:  # noqa: ARG002
        self.asked.append(question.text)
        await self.gate.passed()
        return Classified(failed="no idea")


async def test_behind_a_message_being_classified_it_acts_and_asks_no_model(database_url: str) -> None:
    """Everybody is asked about but the catch-all takes it: the second message is behind the first, the command too."""
    model = Holding()
    async with a_site(database_url, classifier=model) as site:
        model.gate.open.set()
        long = await site.says("long")
        await asyncio.wait_for(site.gate.entered.wait(), 20)
        model.gate.open.clear()
        behind = await site.says("short")

        async def asked() -> bool:
            return len(model.asked) == 2

        await eventually(asked)
        stop = await site.says("/stop")
        assert stop.waits
        assert await site.is_answered(long) == STOPPED
        model.gate.open.set()
        assert await site.is_answered(stop) == "Stopped."
        assert await site.is_answered(behind) == "Here."
        assert model.asked == ["long", "short"]
        await assert_balanced(site.parts)


async def test_a_command_that_comes_twice_is_one(database_url: str) -> None:
    async with a_site(database_url) as site:
        once, again = await site.says("/stop", event="s"), await site.says("/stop", event="s")
        assert (again.request_id, again.duplicate) == (once.request_id, True)
        assert await site.is_answered(once) == IDLE


# At every point of a turn ---------------------------------------------------------------------------------------------

Place = Literal["before", "after"]
BEGUN = "Once upon a time there was a king who had three daughters. " * 4


@dataclass
class HeldJournal:
    """A journal that waits before or after a step."""

    journal: Journal
    gate: Gate
    place: Place
    path: str

    async def step(
        self, path: str, act: Act, *, effect: Effect = "idempotent", ask: Act | None = None, reserve: int = 0
    ) -> Any:
        if self.place == "before" and path.startswith(self.path):
            await self.gate.passed()
        result = await self.journal.step(path, act, effect=effect, ask=ask, reserve=reserve)
        if self.place == "after" and path.startswith(self.path):
            await self.gate.passed()
        return result

    async def end(self, path: str, state: Literal["failed", "skipped", "cancelled"], why: Any = None) -> None:
        await self.journal.end(path, state, why)

    def key_of(self, path: str) -> UUID:
        return self.journal.key_of(path)

    def on_record(self) -> Mapping[str, OnRecord]:
        return self.journal.on_record()

    def check(self) -> None:
        self.journal.check()

    async def flush(self) -> None:
        await self.journal.flush()

    async def expect(self, path: str, *, within: float | None = None, ask: Ask | None = None) -> UUID:
        return await self.journal.expect(path, within=within, ask=ask)

    async def wait(self, path: str, *, within: float | None = None) -> Decided:
        return await self.journal.wait(path, within=within)


@dataclass
class HeldEngine:
    """The engine `model`, held in long turns before or after a step; without a path, when it has ended."""

    engine: ModelEngine
    gate: Gate
    place: Place = "after"
    path: str = ""
    stoppable: bool = True

    async def run(self, turn: Turn, journal: Journal) -> TurnResult:
        if turn.text != "long":
            return await self.engine.run(turn, journal)
        if self.path:
            return await self.engine.run(turn, HeldJournal(journal, self.gate, self.place, self.path))
        result = await self.engine.run(turn, journal)
        await self.gate.passed()
        return result


class Heard:
    """The engine `model`; `event` is set as soon as an answer has begun."""

    stoppable = True

    def __init__(self, engine: ModelEngine) -> None:
        self._engine = engine
        self.event = asyncio.Event()

    async def run(self, turn: Turn, journal: Journal) -> TurnResult:
        return await self._engine.run(replace(turn, on_delta=lambda _: self.event.set()), journal)


Wrap = Callable[[ModelEngine], Engine]


@asynccontextmanager
async def a_held_site(
    url: str, say: Callable[[Request], Reply], wrap: Wrap, gate: Gate, *tools: Noting
) -> AsyncIterator[Site]:
    """A worker whose turns with the model are held somewhere, and keep a history."""
    async with (
        lab(url, [TEAM], RULES) as parts,
        lab(url, [TEAM], RULES) as other,
        ScriptedLlm(say) as llm,
    ):
        history = StoredHistory(parts.database, StoredReaders(parts.database, CHANNELS))
        async with (
            a_model_engine(llm, tools, history=history) as (engine, _),
            at_work(parts.worker({"model": wrap(engine)}, limits=LIMITS)),
        ):
            yield Site(parts, other, llm, gate)


async def told_seconds(parts: Lab, message: Acceptance, where: str) -> None:
    """Print how long it took from the mark to the end of the turn."""
    sql = "select extract(epoch from a.finished_at - s.at) from attempt a join stopped s using (lane, seq)"
    took = await parts.database.value(f"{sql} where a.request_id = $1", message.request_id)
    print(f"{where}: {float(took):.3f} s")  # noqa: T201 - for pytest -rP


async def kept_of(parts: Lab, message: Acceptance) -> list[str]:
    """What is kept of the turn in the history of its conversation."""
    sql = "select text from entry where request_id = $1 order by role desc"
    return [row["text"] for row in await parts.database.rows(sql, message.request_id)]


async def end_of(parts: Lab, message: Acceptance) -> tuple[str | None, str | None]:
    """Why the turn ended, None if by itself, and what there is to say about it."""
    row = await parts.database.row("select stop_reason, error from attempt where request_id = $1", message.request_id)
    assert row is not None
    return row["stop_reason"], row["error"]


def about_long(llm: ScriptedLlm) -> int:
    return sum(request.prompt.endswith("long") for request in llm.requests)


def tells(request: Request) -> Reply:
    """To a long message a word and a call, then the end."""
    if not request.prompt.endswith("long"):
        return Reply(text="Here.")
    return Reply(text="Done.") if request.results else Reply(text="Let me see.", calls=(Call("wait", {}),))


@pytest.mark.parametrize(
    ("place", "path", "requests", "calls", "reply"),
    [
        ("before", "request:1", 0, 0, STOPPED),
        ("after", "request:1", 1, 0, "Let me see."),
        ("before", "tool:", 1, 0, "Let me see."),
        ("after", "tool:", 1, 1, "Let me see."),
        ("before", "request:2", 1, 1, "Let me see."),
        ("after", "request:2", 2, 1, "Done."),
    ],
)
async def test_between_two_steps(
    database_url: str, place: Place, path: str, requests: int, calls: int, reply: str
) -> None:
    gate, tool = Gate(), Noting("wait", "effectful")
    async with a_held_site(database_url, tells, lambda one: HeldEngine(one, gate, place, path), gate, tool) as site:
        long, behind = await site.says("long"), await site.says("short")
        await asyncio.wait_for(gate.entered.wait(), 20)
        stop = await site.says("/stop")
        assert await site.is_answered(long) == reply
        assert await site.is_answered(stop) == "Stopped."
        assert await site.is_answered(behind) == "Here."
        assert not gate.open.is_set()
        assert (about_long(site.llm), len(tool.calls)) == (requests, calls)
        assert await kept_of(site.parts, long) == ["long", reply]
        assert (await end_of(site.parts, long))[0] == "aborted"
        await told_seconds(site.parts, long, f"{place} {path}")
        await assert_balanced(site.parts)


async def test_before_it_is_saved_a_turn_has_ended_by_itself(database_url: str) -> None:
    gate = Gate()
    async with a_held_site(database_url, tells, lambda one: HeldEngine(one, gate), gate, Noting("wait")) as site:
        long = await site.says("long")
        await asyncio.wait_for(gate.entered.wait(), 20)
        await site.says("/stop")
        gate.open.set()
        assert await site.is_answered(long) == "Done."
        assert await end_of(site.parts, long) == (None, None)
        assert await site.is_answered(await site.says("/stop")) == IDLE


@pytest.mark.parametrize("at", ["start", "middle"])
async def test_in_an_answer(database_url: str, at: Where) -> None:
    """The model says nothing more. What it has said is the reply."""

    def hangs(request: Request) -> Reply:
        return Reply(text=BEGUN, fault=Hang(at=at)) if request.prompt.endswith("long") else Reply(text="Here.")

    heard: list[Heard] = []

    def listening(engine: ModelEngine) -> Engine:
        heard.append(Heard(engine))
        return heard[0]

    async with a_held_site(database_url, hangs, listening, Gate()) as site:

        async def begun() -> bool:
            return heard[0].event.is_set() if at == "middle" else bool(site.llm.requests)

        long, behind = await site.says("long"), await site.says("short")
        await eventually(begun)
        stop = await site.says("/stop")
        reply = await site.is_answered(long)
        assert BEGUN.startswith(reply) if at == "middle" else reply == STOPPED
        assert await kept_of(site.parts, long) == ["long", reply]
        assert await site.is_answered(stop) == "Stopped."
        assert await site.is_answered(behind) == "Here."
        assert about_long(site.llm) == 1
        await told_seconds(site.parts, long, f"in an answer, {at}")


async def a_stubborn_task(gate: Gate) -> None:
    """Goes on though it is cancelled."""
    while not gate.open.is_set():
        with suppress(asyncio.CancelledError):
            await gate.passed()


async def a_deaf_thread(gate: Gate) -> None:
    """A thread that does not look whether it is to stop."""
    loop = asyncio.get_running_loop()

    def work(_: StopSignal) -> None:
        loop.call_soon_threadsafe(gate.entered.set)
        gate.through.wait(60)

    await in_thread(work)


async def a_program(gate: Gate) -> None:
    """A program that ignores SIGTERM. Its tool kills it, as ours do."""
    process = await asyncio.create_subprocess_exec("sh", "-c", "trap '' TERM; echo; exec sleep 600", stdout=PIPE)
    assert process.stdout is not None
    try:
        await process.stdout.readline()
        await gate.passed()
    finally:
        process.kill()
        await process.wait()


@pytest.mark.parametrize("does", [a_stubborn_task, a_deaf_thread, a_program])
async def test_in_a_tool_that_does_not_want_to_end(database_url: str, does: Callable[[Gate], Awaitable[None]]) -> None:
    """Its result goes nowhere, and neither the turn nor the next one waits for it."""
    gate = Gate()

    async def act(_: JsonMapping, __: ToolScope) -> ToolOutcome:
        await does(gate)
        return ToolOutcome("too late")

    tool = Noting("wait", "effectful", act)
    async with a_held_site(database_url, tells, lambda one: one, gate, tool) as site:
        try:
            long, behind = await site.says("long"), await site.says("short")
            await asyncio.wait_for(gate.entered.wait(), 20)
            await site.says("/stop")
            assert await site.is_answered(long) == "Let me see."
            assert await site.is_answered(behind) == "Here."
        finally:
            gate.release()
        assert await end_of(site.parts, long) == ("aborted", "wait was stopped, outcome unknown")
        calls = "select calls::text from entry where request_id = $1 and calls is not null"
        assert "outcome unknown" in await site.parts.database.value(calls, long.request_id)
        assert (about_long(site.llm), len(tool.calls)) == (1, 1)
        await told_seconds(site.parts, long, f"in {does.__name__}")


async def test_a_command_whose_id_is_taken_by_another_mail_stops_too(database_url: str) -> None:
    async with lab(database_url, [TEAM], RULES, channels=TRUSTING) as parts, a_hand(parts.database) as hand:
        auth = "mx.example; dkim=pass header.d=example.org"
        await parts.accept.accept(mail("long", auth, event="<one@x>"))
        [item] = await hand.claim()
        stop = await parts.accept.accept(mail("/stop", auth, event="<one@x>"))
        assert not stop.duplicate
        assert await parts.count("select count(*) from stopped where lane = $1", item.lane) == 1


async def test_what_others_write_meanwhile_keeps_nobody_from_stopping(database_url: str) -> None:
    async with lab(database_url, [TEAM], RULES) as parts, a_hand(parts.database) as hand:

        async def says(text: str, sender: str) -> Acceptance:
            return await parts.accept.accept(submission(text, channel="telegram", thread="group", sender=sender))

        await says("long", "ann")
        [item] = await hand.claim()
        await asyncio.gather(*(says("flood", f"bot{n}") for n in range(250)))
        for sender, stopped in (("mallory", 0), ("ann", 1)):
            await says("/stop", sender)
            assert await parts.count("select count(*) from stopped where lane = $1", item.lane) == stopped


async def test_nobody_stops_the_turn_of_another_in_their_name(database_url: str) -> None:
    async with lab(database_url, [TEAM], RULES, channels=TRUSTING) as parts, a_hand(parts.database) as hand:
        await parts.accept.accept(mail("long", "mx.example; dkim=pass header.d=example.org"))
        [item] = await hand.claim()
        for auth, stopped in [
            ("mx.example; dkim=fail header.d=example.org", 0),
            ("mx.example; dkim=pass header.d=evil.example", 0),
            ("mx.evil.example; dkim=pass header.d=example.org", 0),
            ("mx.example; dkim=pass header.d=example.org", 1),
        ]:
            await parts.accept.accept(mail("/stop", auth))
            assert await parts.count("select count(*) from stopped where lane = $1", item.lane) == stopped, auth


def mail(text: str, auth: str, **more: Any) -> Submission:
    """A mail that says it is Ann's."""
    headers = {"to": "bot@house.example", "references": "<first@x>", "authentication-results": auth}
    endpoint, sender = "imap:bot@house.example", "ann@example.org"
    return submission(text, channel="email", endpoint=endpoint, sender=sender, raw={"headers": headers}, **more)
