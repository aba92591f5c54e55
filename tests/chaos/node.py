"""A process that can be killed: accepts what it is told to, works on it, and writes down everything that it does.

    python -m tests.chaos.node URL TRACE work [TTL]                a worker until it is killed or stopped by SIGTERM
    python -m tests.chaos.node URL TRACE all COUNT CONVERSATIONS   accepts COUNT messages, works until all are settled
    … classify, … classify-all COUNT CONVERSATIONS                 the same where no rule decides, but a model
    … wait, … wait-all COUNT CONVERSATIONS                         the same where every third message waits for an event

The trace has one line per event, appended with one write each, so that a kill tears no line:
`ack EVENT REQUEST_ID`, `start LANE SEQ TIME`, `step LANE SEQ N`, `end LANE SEQ TIME`, `send OUTBOX_ID`,
`classify REQUEST_ID ATTEMPT`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from contextvars import ContextVar
from pathlib import Path
from uuid import UUID

import msgspec

from switchboard.domain.ledger import Item, OutboxRow
from switchboard.domain.routing import Classified, Route
from switchboard.journey.ask import ClassifierFailure, Question
from switchboard.journey.classify import RouteLeg, RouteLimits
from switchboard.journey.reply import Callback, ReplyWays, SendLeg
from switchboard.journey.turn import TurnLeg, TurnLimits
from switchboard.lanes.kinds import NOTICE, ROUTE, SEND, TURN, Claim
from switchboard.lanes.waiting import resume
from switchboard.lanes.worker import Worker, WorkerSettings
from switchboard.ports.channel import Receipt
from switchboard.ports.engine import Answer, Journal, NoReply, Turn, TurnResult
from switchboard.ports.history import Entry
from tests.lab import Lab, butler, lab, rule, submission, team_of

STEPS = 2
DIRECT_URL = "CHAOS_DIRECT_URL"
"""The environment variable for the database itself, where URL is a pooler before it."""
CLAIMED: ContextVar[Item] = ContextVar("CLAIMED")
"""What the engine is not told and the trace is about: the item of the turn that runs in this task."""


class Trace:
    """An append-only log that survives the death of its writer."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write(self, *words: object) -> None:
        os.write(self._file, (" ".join(map(str, words)) + "\n").encode())


class TracedEngine:
    """Answers with the text of the message after two steps, each a little work that is written down."""

    def __init__(self, trace: Trace, delay: float) -> None:
        self._trace = trace
        self._delay = delay

    async def run(self, turn: Turn, journal: Journal) -> TurnResult:
        if turn.dead_letter is not None:
            return NoReply()
        item = CLAIMED.get()
        lane = str(item.lane)
        self._trace.write("start", lane, item.seq, time.time())
        for n in range(STEPS):
            await journal.step(f"step {n}", self._act(lane, item.seq, n))
        text = await self.answer(turn, journal)
        self._trace.write("end", lane, item.seq, time.time())
        return Answer(text, entries=(Entry("user", turn.text), Entry("assistant", text)))

    async def answer(self, turn: Turn, _: Journal) -> str:
        """The reply, when the steps are done."""
        return turn.text

    def _act(self, lane: str, seq: int, n: int) -> Callable[[UUID], Awaitable[str]]:
        async def act(key: UUID) -> str:
            await asyncio.sleep(self._delay)
            self._trace.write("step", lane, seq, n)
            return str(key)

        return act


class WaitingEngine(TracedEngine):
    """Of every third message it waits for an event: even ones until it expires, odd ones until somebody decides."""

    async def answer(self, turn: Turn, journal: Journal) -> str:
        number = int(turn.text)
        if number % 3:
            return str(number)
        found = await journal.wait("event", within=0.1 if expires(number) else None)
        return f"{number} {'expired' if found.expired else found.value}"


def expires(number: int) -> bool:
    """Whether this message waits for an event that nobody decides."""
    return number % 6 == 0


async def answered(parts: Lab, request: UUID) -> None:
    """Return when the message has its answer."""
    while not await parts.count("select count(*) from delivery where state = 'answered' and request_id = $1", request):
        await asyncio.sleep(0.02)


async def decide_all(parts: Lab) -> None:
    """Decide every event that has no deadline, again and again. Runs until cancelled."""
    while True:
        for row in await parts.database.rows(
            "select key from awaited where decided_at is null and deadline_at is null"
        ):
            await resume(parts.database, parts.notifier, row["key"], "decided")
        await asyncio.sleep(0.01)


class TracedCallback:
    """A platform that takes an idempotency key: what it was sent is in the trace."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace

    async def send(self, reply: OutboxRow) -> Receipt:
        self._trace.write("send", reply.outbox_id)
        return Receipt("sent", str(reply.outbox_id))


class TracedClassifier:
    """A model that chooses the first candidate, or the last for odd texts; it is slow and fails at times.

    Every seventh message fails at its first attempt; every eleventh is not understood at all.
    """

    def __init__(self, trace: Trace) -> None:
        self._trace = trace

    async def ask(self, question: Question, journal: Journal) -> Classified:
        async def act(_: UUID) -> Classified:
            self._trace.write("classify", question.request_id, question.attempt)
            await asyncio.sleep(random.random() * 0.02)
            number = question.request_id.int
            if number % 7 == 0 and question.attempt == 1:
                raise ClassifierFailure("the model has a bad day")
            if number % 11 == 0:
                return Classified(failed="the model understood nothing")
            return Classified((Route(question.targets[-(int(question.text) % 2)]),))

        return msgspec.convert(await journal.step(f"classify {question.team_id}", act), Classified)


CLASSIFIED_TEAM = team_of(butler("echo"), butler("other"), classify=True)
CLASSIFIED_RULES = (
    rule("System1/echo", chat_type="private"),
    rule("System1/other"),
)


def node_lab(url: str, *, classified: bool) -> AbstractAsyncContextManager[Lab]:
    """The parts of this process: with a model where rules decide little, or with none."""
    direct_url = os.environ.get(DIRECT_URL)
    if classified:
        return lab(url, [CLASSIFIED_TEAM], CLASSIFIED_RULES, classifying=True, direct_url=direct_url)
    return lab(url, direct_url=direct_url)


def traced_worker(parts: Lab, trace: Trace, *, delay: float, ttl: float, waiting: bool) -> Worker:
    """A worker with all legs on traced ends."""
    callbacks: dict[str, Callback] = {"bot:house": TracedCallback(trace)}
    limits = TurnLimits(attempts=50, timeout=30, backoff_base=0.05, backoff_cap=0.2)
    engines = {"echo": WaitingEngine(trace, delay) if waiting else TracedEngine(trace, delay)}
    leg = TurnLeg(
        parts.database, parts.notifier, parts.rule_book, engines, ReplyWays(parts.database, callbacks), limits
    )

    async def turn(item: Item, claim: Claim) -> Item | None:
        CLAIMED.set(item)
        return await leg(item, claim)

    send = SendLeg(parts.database, callbacks)
    route_limits = RouteLimits(attempts=50, timeout=30, backoff_base=0.02, backoff_cap=0.05)
    route = RouteLeg(parts.database, parts.notifier, parts.rule_book, TracedClassifier(trace), route_limits)
    settings = WorkerSettings(pools={"work": 50}, ttl=ttl, drain=5)
    return Worker(parts.database, parts.notifier, {TURN: turn, NOTICE: turn, SEND: send, ROUTE: route}, settings)


async def work(url: str, trace: Trace, ttl: float = 4.0, *, mode: str) -> None:
    """A worker until SIGTERM."""
    async with node_lab(url, classified=mode.startswith("classify")) as parts:
        worker = traced_worker(parts, trace, delay=0.02, ttl=ttl, waiting=mode.startswith("wait"))
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.stop)
        await worker.run()


async def accept_and_work(url: str, trace: Trace, count: int, conversations: int, *, mode: str) -> None:
    """Accept message 0 … count-1 one after the other, then work until nothing is open.

    Of those whose wait expires the next comes when the last is answered: one is woken at a time, however slow we are.
    """
    async with node_lab(url, classified=mode.startswith("classify")) as parts:
        worker = traced_worker(parts, trace, delay=0.001, ttl=2.0, waiting=mode.startswith("wait"))
        running = asyncio.create_task(worker.run())
        deciding = asyncio.create_task(decide_all(parts))
        last: UUID | None = None
        for n in range(count):
            if last is not None and expires(n):
                await answered(parts, last)
            accepted = await parts.accept.accept(
                submission(str(n), channel="api", event=f"e{n}", sender=f"s{n % conversations}")
            )
            trace.write("ack", f"e{n}", accepted.request_id)
            if mode.startswith("wait") and expires(n):
                last = accepted.request_id
        while await parts.count("select count(*) from lane where state <> 'idle' or parked > 0"):
            await asyncio.sleep(0.02)
        worker.stop()
        await running
        deciding.cancel()
        await asyncio.gather(deciding, return_exceptions=True)


def main(arguments: Sequence[str]) -> None:
    """Dispatch on the command line."""
    url, path, mode, *rest = arguments
    trace = Trace(Path(path))
    with contextlib.suppress(KeyboardInterrupt):
        if mode.endswith("all"):
            count, conversations = map(int, rest)
            asyncio.run(accept_and_work(url, trace, count, conversations, mode=mode))
        else:
            asyncio.run(work(url, trace, *map(float, rest), mode=mode))


if __name__ == "__main__":
    main(sys.argv[1:])
