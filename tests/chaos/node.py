"""A process that can be killed: accepts what it is told to, works on it, and writes down everything that it does.

    python -m tests.chaos.node URL TRACE work [TTL]                a worker until it is killed or stopped by SIGTERM
    python -m tests.chaos.node URL TRACE all COUNT CONVERSATIONS   accepts COUNT messages, works until all are settled
    … classify, … classify-all COUNT CONVERSATIONS                 the same where no rule decides, but a model

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
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from uuid import UUID

import msgspec

from switchboard.domain.ledger import OutboxRow
from switchboard.domain.routing import Classified, Route, Team
from switchboard.journey.classify import ClassifierFailure, Question, RouteLeg, RouteLimits
from switchboard.journey.reply import Callback, SendLeg, reply_pool
from switchboard.journey.turn import Answer, NoReply, Turn, TurnLeg, TurnLimits, TurnResult
from switchboard.lanes.journal import Journal
from switchboard.lanes.worker import Worker, WorkerSettings
from switchboard.store.outbox import Receipt
from tests.lab import ROOT, Lab, butler, lab, rule, submission, to

STEPS = 2


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
        work = turn.work
        if work.dead_letter is not None:
            return NoReply()
        self._trace.write("start", work.lane, work.seq, time.time())
        for n in range(STEPS):
            await journal.step(f"step {n}", self._act(work.lane, work.seq, n))
        self._trace.write("end", work.lane, work.seq, time.time())
        return Answer(work.envelope.payload.normalized_text)

    def _act(self, lane: str, seq: int, n: int) -> Callable[[UUID], Awaitable[str]]:
        async def act(key: UUID) -> str:
            await asyncio.sleep(self._delay)
            self._trace.write("step", lane, seq, n)
            return str(key)

        return act


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

    async def classify(self, question: Question, journal: Journal) -> Classified:
        async def ask(_: UUID) -> Classified:
            self._trace.write("classify", question.request_id, question.attempt)
            await asyncio.sleep(random.random() * 0.02)
            number = question.request_id.int
            if number % 7 == 0 and question.attempt == 1:
                raise ClassifierFailure("the model has a bad day")
            if number % 11 == 0:
                return Classified(failed="the model understood nothing")
            return Classified((Route(question.targets[-(int(question.text) % 2)]),))

        return msgspec.convert(await journal.step(f"classify {question.team.team_id}", ask), Classified)


CLASSIFIED_TEAM = Team(ROOT, None, members=(butler("echo"), butler("other")), classify=True)
CLASSIFIED_RULES = (
    rule(ROOT, [to("System1/echo")], chat_type="private"),
    rule(ROOT, [to("System1/other")]),
)


def node_lab(url: str, *, classified: bool) -> AbstractAsyncContextManager[Lab]:
    """The parts of this process: with a model where rules decide little, or with none."""
    return lab(url, [CLASSIFIED_TEAM], CLASSIFIED_RULES, classifying=True) if classified else lab(url)


def traced_worker(parts: Lab, trace: Trace, *, delay: float, ttl: float) -> Worker:
    """A worker with all legs on traced ends."""
    callbacks: dict[str, Callback] = {"bot:house": TracedCallback(trace)}
    limits = TurnLimits(attempts=50, timeout=30, backoff_base=0.05, backoff_cap=0.2)
    engines = {"echo": TracedEngine(trace, delay)}
    turn = TurnLeg(parts.database, parts.bell, parts.rule_book, engines, reply_pool(callbacks), limits)
    send = SendLeg(parts.database, callbacks)
    route_limits = RouteLimits(attempts=50, timeout=30, backoff_base=0.02, backoff_cap=0.05)
    route = RouteLeg(parts.database, parts.bell, parts.rule_book, TracedClassifier(trace), route_limits)
    settings = WorkerSettings(concurrency=50, ttl=ttl, drain=5)
    return Worker(parts.database, parts.bell, {"turn": turn, "notice": turn, "send": send, "route": route}, settings)


async def work(url: str, trace: Trace, ttl: float = 4.0, *, classified: bool) -> None:
    """A worker until SIGTERM."""
    async with node_lab(url, classified=classified) as parts:
        worker = traced_worker(parts, trace, delay=0.02, ttl=ttl)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.stop)
        await worker.run()


async def accept_and_work(url: str, trace: Trace, count: int, conversations: int, *, classified: bool) -> None:
    """Accept message 0 … count-1 one after the other, then work until nothing is open."""
    async with node_lab(url, classified=classified) as parts:
        worker = traced_worker(parts, trace, delay=0.001, ttl=2.0)
        running = asyncio.create_task(worker.run())
        for n in range(count):
            accepted = await parts.accept.accept(
                submission(str(n), channel="api", event=f"e{n}", sender=f"s{n % conversations}")
            )
            trace.write("ack", f"e{n}", accepted.request_id)
        while await parts.count("select count(*) from lane where state <> 'idle'"):
            await asyncio.sleep(0.02)
        worker.stop()
        await running


def main() -> None:
    """Dispatch on the command line."""
    url, path, mode, *rest = sys.argv[1:]
    trace = Trace(Path(path))
    with contextlib.suppress(KeyboardInterrupt):
        classified = mode.startswith("classify")
        if mode.endswith("all"):
            count, conversations = map(int, rest)
            asyncio.run(accept_and_work(url, trace, count, conversations, classified=classified))
        else:
            asyncio.run(work(url, trace, *map(float, rest), classified=classified))


if __name__ == "__main__":
    main()
