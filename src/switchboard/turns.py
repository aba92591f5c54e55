"""Turns for embedders: `from switchboard.turns import process_message`. Its names are public.

A program with an asyncpg pool asks a butler of an installation and gets the answer in the same call. The message is
stored like any other, its lane is claimed by the caller's process, and the turn runs there through the journal: killed
in the middle, it goes on at the next call. The engine is the one that workers run. docs/butlers.md shows it at work.

    calls of one session            wait for each other, in the order in which they came
    the same `request_id` again     the same turn: its answer, or the rest of it
    no model can be reached         `ProviderError`; the message is kept, and tried again with the next call
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Protocol
from uuid import uuid4

import msgspec

from switchboard import __version__
from switchboard.agents.model.engine import ModelEngine
from switchboard.core.channels.registry import CHANNELS
from switchboard.core.identity import conversation
from switchboard.domain.envelope import Control, Envelope, Event, Payload, Sender, Source
from switchboard.domain.errors import InvalidInput, NotFound, SwitchboardError, Unavailable
from switchboard.domain.llm import Report, Request
from switchboard.domain.message import Conversation, RequestId
from switchboard.domain.routing import Member, SystemId
from switchboard.journey.accept import AcceptLeg, Submission
from switchboard.journey.admission import AcceptLimits
from switchboard.journey.compaction import Compactor
from switchboard.journey.decide import DecideLeg
from switchboard.journey.rulebook import RuleBook
from switchboard.journey.turn import TurnLeg, TurnLimits
from switchboard.lanes.journal import StepLog
from switchboard.lanes.kinds import Claim
from switchboard.lanes.notifier import Notifier, settled_topic
from switchboard.llm.build import Sessions, flaw
from switchboard.llm.dispatch import Dispatcher, Terms
from switchboard.llm.spec import ModelSpec
from switchboard.llm.spending import DayBook
from switchboard.ports.engine import Delta, EngineContext, Fenced, Journal, Turn, TurnResult
from switchboard.ports.facts import Reader
from switchboard.ports.models import Asking, Models
from switchboard.store import embedded_turns as store
from switchboard.store import lanes
from switchboard.store.classification import Pool
from switchboard.store.clock import DatabaseClock
from switchboard.store.database import ForeignDatabase
from switchboard.store.facts import StoredFacts
from switchboard.store.history import Readers, StoredHistory
from switchboard.store.lanes import Work
from switchboard.store.memos import StoredMemos
from switchboard.store.processes import NewProcess
from switchboard.store.remote_agents import StoredRemoteAgents
from switchboard.tools.registry import build_tools, tool_definitions

__all__ = [
    "MessageContext",
    "ModelSpec",
    "ProcessedMessage",
    "ProviderError",
    "TurnContext",
    "build_tools",
    "compact_session_if_needed",
    "open_models",
    "open_turns",
    "process_message",
    "process_message_non_streaming",
    "tool_definitions",
]

_TTL_S: Final = 10.0
_COMPACTING: Final = 2
"""Sessions that are compacted at once."""
_LOOK_EVERY_S: Final = 0.1
_CLOSE_S: Final = 10.0
"""Seconds that a context waits at its end for what is being compacted."""


class ProviderError(SwitchboardError):
    """The turn could not be done. The message is kept; the same `request_id` tries again."""

    code = "provider_error"


@dataclass(frozen=True, slots=True)
class ProcessedMessage:
    """The answer, the model that gave it, what it cost in tokens, and why it ended."""

    content: str
    model: str
    tokens_in: int
    tokens_out: int
    stop_reason: str


@dataclass(frozen=True, slots=True)
class Wishes:
    """What a caller wants of one turn."""

    user_context: str = ""
    model: str | None = None
    on_delta: Callable[[Delta], None] | None = None


class MessageContext(Protocol):
    """What `process_message` needs of its host; `open_turns` makes one from a pool."""

    async def process(self, message: Envelope, wishes: Wishes) -> ProcessedMessage:
        """Store a message for the butler of this host, run what its lane has up to it, and return its answer."""
        ...

    async def compact(self, session_key: str) -> None:
        """See `compact_session_if_needed`."""
        ...

    @property
    def butler(self) -> SystemId: ...


async def process_message(  # noqa: PLR0913 - the arguments of one call, most of them by name
    ctx: MessageContext,
    session_key: str,
    channel_name: str,
    content: str,
    *,
    user_context: str | None = None,
    model_override: str | None = None,
    request_id: str | None = None,
    on_delta: Callable[[Delta], None] | None = None,
) -> ProcessedMessage:
    """One message of a session, answered by the butler; `on_delta` is told the answer while it is written.

    `model_override` is a name of the butler's models. Raises `ProviderError` once the message is stored, and before
    that what storing a message raises.
    """
    event = Event(
        external_event_id=request_id or str(uuid4()), observed_at=datetime.now(UTC), external_thread_id=session_key
    )
    envelope = _envelope(ctx.butler, channel_name, event, content)
    return await ctx.process(envelope, Wishes(user_context or "", model_override, on_delta))


process_message_non_streaming = process_message


async def compact_session_if_needed(ctx: MessageContext, session_key: str) -> None:
    """Let a summary and a few facts take the place of the oldest 20 entries of a session that has 40.

    `process_message` starts it by itself after each turn, and does not wait for it. What goes wrong is logged, changes
    nothing, and is tried again after later turns. Raises `Unavailable`.
    """
    await ctx.compact(session_key)


def _envelope(butler: SystemId, channel_name: str, event: Event, content: str = "") -> Envelope:
    providers = CHANNELS[channel_name].providers
    return Envelope(
        schema_version="ingest.v1",
        source=Source(
            channel=channel_name,
            provider=min(providers, default="internal"),
            endpoint_identity=f"embedded:{butler}",
        ),
        event=event,
        sender=Sender(identity=event.external_thread_id or "", chat_type="private"),
        payload=Payload(normalized_text=content),
        control=Control(pinned_target=butler),
    )


def _conversations(butler: SystemId, session_key: str) -> list[Conversation]:
    """Those of a session, one for each channel."""
    event = Event(external_event_id="-", observed_at=datetime.now(UTC), external_thread_id=session_key)
    return [conversation(_envelope(butler, name, event), channel) for name, channel in CHANNELS.items()]


class DirectModels:
    """Models that this program asks itself, as `switchboard.ports.models.Models`. Made by `open_models`."""

    def __init__(self, specs: Sequence[ModelSpec], sessions: Sessions) -> None:
        self._specs = {one.name: one for one in specs}
        self._contexts = sessions.contexts
        self._dispatcher = Dispatcher(sessions.models, DayBook(lambda: datetime.now(UTC).date()))

    @property
    def names(self) -> Sequence[str]:
        """In the order in which they were given."""
        return tuple(self._specs)

    async def context(self, name: str) -> int:
        """Tokens of question and answer together: as the spec says, else as a local server says."""
        return await self._contexts.of(self._specs[name])

    def flaw(self, name: str) -> str | None:
        """What is missing on this machine to ask it."""
        return flaw(self._specs[name])

    async def ask(self, request: Request, asking: Asking) -> Report:
        """Ask one after the other until one has answered."""
        names = [name for name in asking.models if name in self._specs] or self.names
        terms = Terms(asking.asker, models=names, shorter=asking.shorter)
        return await self._dispatcher.run(request, terms, asking.on_delta)


@asynccontextmanager
async def open_models(specs: Sequence[ModelSpec]) -> AsyncIterator[DirectModels]:
    """The models of a program. Raises ConfigurationError that names the model and the fix."""
    sessions = Sessions(specs)
    try:
        yield DirectModels(specs, sessions)
    finally:
        await sessions.aclose()


@asynccontextmanager
async def open_turns(
    pool: Pool,
    butler: str,
    models: Models,
    *,
    workspaces: Path | None = None,
    compact_model: str | None = None,
) -> AsyncIterator[TurnContext]:
    """A context for `process_message`: `butler` (`System1/clerk`, engine `model`) of the installation, over `models`.

    The pool stays the caller's; its settings and codecs do not matter. `compact_model` condenses long sessions; None:
    the first that answers. At its end the context waits for that, at most ten seconds.
    """
    database = ForeignDatabase(pool, "read_committed")
    notifier, readers, clock = Notifier(database), Readers(database, CHANNELS), DatabaseClock()
    rule_book = await RuleBook.open(ForeignDatabase(pool, "repeatable_read"), notifier, classifying=False)
    await clock.measure(database)
    context = EngineContext(
        StoredMemos(database),
        StoredRemoteAgents(database),
        models=models,
        workspaces=workspaces,
        readers=readers,
        history=StoredHistory(database, readers),
        facts=StoredFacts(database, readers),
    )
    accept = AcceptLeg(database, DecideLeg(rule_book), notifier, AcceptLimits(), CHANNELS, clock)
    async with _registered(database) as worker:
        engine = _Wishing(ModelEngine(context), rule_book)
        leg = TurnLeg(database, notifier, rule_book, {"model": engine}, _Returned(readers), TurnLimits())
        claim = Claim(worker, StepLog(database, worker), keeps=lambda: False)
        compactor = Compactor(database, models, models.names if compact_model is None else [compact_model])
        parts = _Parts(database, notifier, accept, engine, leg, claim, models, compactor)
        turns = TurnContext(SystemId(butler), parts)
        try:
            yield turns
        finally:
            await turns.finish_compacting(_CLOSE_S)


@dataclass(frozen=True, slots=True)
class _Parts:
    database: ForeignDatabase
    notifier: Notifier
    accept: AcceptLeg
    engine: _Wishing
    leg: TurnLeg
    claim: Claim
    models: Models
    compactor: Compactor


class TurnContext:
    """Runs the turns of one butler in this process. Made by `open_turns`."""

    def __init__(self, butler: SystemId, parts: _Parts) -> None:
        self.butler = butler
        self._parts = parts
        self._compacting: set[asyncio.Task[None]] = set()

    async def process(self, message: Envelope, wishes: Wishes) -> ProcessedMessage:
        """As in `MessageContext`."""
        if wishes.model is not None and wishes.model not in (names := self._parts.engine.models_of(self.butler)):
            raise InvalidInput(
                f"{self.butler} has no model {wishes.model}; it has: {', '.join(names)}", field="model_override"
            )
        accepted = await self._parts.accept.accept(Submission(message, msgspec.json.encode(message)))
        with self._parts.engine.wished(accepted.request_id, wishes):
            answer = await self._answered(accepted.request_id)
        self._start_compacting(message.event.external_thread_id or "")
        return answer

    async def compact(self, session_key: str) -> None:
        """As in `MessageContext`."""
        await self._parts.compactor.compact_due(self.butler, _conversations(self.butler, session_key))

    async def finish_compacting(self, within: float) -> None:
        """Wait so many seconds for what was started; what is not ready then has changed nothing."""
        if self._compacting:
            _, late = await asyncio.wait(self._compacting, timeout=within)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    def _start_compacting(self, session_key: str) -> None:
        """A few at a time: the next turn of a session starts it, too."""
        if len(self._compacting) < _COMPACTING:
            task = asyncio.create_task(self._try_to_compact(session_key))
            self._compacting.add(task)
            task.add_done_callback(self._compacting.discard)

    async def _try_to_compact(self, session_key: str) -> None:
        with contextlib.suppress(Unavailable):
            await compact_session_if_needed(self, session_key)

    async def _answered(self, request_id: RequestId) -> ProcessedMessage:
        ring = asyncio.Event()
        stop = self._parts.notifier.subscribe(settled_topic(request_id), ring.set)
        try:
            while (found := await self._found(request_id)).state == "pending":
                if not await self._worked(found):
                    await _ring_or_timeout(ring)
            return _processed(found)
        finally:
            stop()

    async def _found(self, request_id: RequestId) -> store.Found:
        found = await store.find(self._parts.database, request_id, self.butler)
        if found is None:
            raise NotFound(f"message {request_id} was not delivered to {self.butler}")
        return found

    async def _worked(self, found: store.Found) -> bool:
        """Run what comes next in the lane, if it is free. Raises `ProviderError` if this turn is to be tried later."""
        item = await store.claim_lane(self._parts.database, self._parts.claim.worker, found.lane)
        if item is None and found.waits:
            raise ProviderError(found.error or "the turn is tried again later")
        if item is not None:
            with contextlib.suppress(Fenced):
                await self._parts.leg(item, self._parts.claim)
        return item is not None


class _Wishing:
    """The engine, with what the caller of each turn wants."""

    stoppable: Final = True

    def __init__(self, engine: ModelEngine, rule_book: RuleBook) -> None:
        self._engine = engine
        self._rule_book = rule_book
        self._wishes: dict[RequestId, Wishes] = {}

    @contextlib.contextmanager
    def wished(self, request_id: RequestId, wishes: Wishes) -> Iterator[None]:
        """While a call waits for its answer."""
        self._wishes[request_id] = wishes
        try:
            yield
        finally:
            self._wishes.pop(request_id, None)

    def models_of(self, butler: SystemId) -> Sequence[str]:
        """The models that the caller of a turn may choose from; none of a butler that is not there."""
        member = self._rule_book.rules.members.get(butler)
        return () if member is None else self._engine.models_of(member)

    def patience(self, member: Member) -> float:
        return self._engine.patience(member)

    async def run(self, turn: Turn, journal: Journal) -> TurnResult:
        wishes = self._wishes.get(turn.request_id, Wishes())
        options = turn.member.options if wishes.model is None else {**turn.member.options, "models": (wishes.model,)}
        member = replace(turn.member, options=options)
        told = replace(turn, member=member, on_delta=wishes.on_delta or turn.on_delta, user_context=wishes.user_context)
        return await self._engine.run(told, journal)


class _Returned:
    """The caller has the reply; nobody else sends it."""

    def __init__(self, readers: Readers) -> None:
        self._readers = readers

    def pool(self, work: Work) -> str | None:  # noqa: ARG002
        return None

    async def withheld(self, work: Work) -> str | None:  # noqa: ARG002
        return None

    async def reader(self, turn: Turn) -> Reader:
        return await self._readers.of(turn)


@asynccontextmanager
async def _registered(database: ForeignDatabase) -> AsyncIterator[int]:
    """This process as a worker that claims nothing by itself; its lanes are free again when it dies."""
    new = NewProcess("worker", (), socket.gethostname(), os.getpid(), __version__, _TTL_S)
    worker = await lanes.register_unlocked(database, new)
    beating = asyncio.create_task(_beat(database, worker))
    try:
        yield worker
    finally:
        beating.cancel()
        await asyncio.gather(beating, return_exceptions=True)
        with contextlib.suppress(Unavailable):
            await lanes.release_worker(database, worker)


async def _beat(database: ForeignDatabase, worker: int) -> None:
    while True:
        with contextlib.suppress(Unavailable):
            await lanes.beat(database, worker)
            await lanes.tend(database)
        await asyncio.sleep(_TTL_S / 8)


async def _ring_or_timeout(ring: asyncio.Event) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_LOOK_EVERY_S):
            await ring.wait()
    ring.clear()


def _processed(found: store.Found) -> ProcessedMessage:
    """Raises `ProviderError` for a turn that came to nothing."""
    if found.state not in {"answered", "declined"}:
        raise ProviderError(found.error or f"the turn is {found.state}")
    usage = found.usage
    return ProcessedMessage(
        found.text or "",
        usage[-1].model if usage else "",
        sum(one.input_tokens for one in usage),
        sum(one.output_tokens for one in usage),
        found.stop_reason or "end",
    )
