"""Opens an installation for the turns of one butler: `open_turns`, and the context that it yields.

Called by the program, with its pool and its models. This process is registered like a worker, but claims nothing by
itself; its data about butlers, clock and backlog is kept up to date. Next: `agent.py` and `memory.py`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from switchboard.core.channels.registry import CHANNELS
from switchboard.core.policy.rates import AcceptLimits
from switchboard.domain.envelope import Envelope
from switchboard.domain.ledger import ReplyFile
from switchboard.domain.routing import SystemId
from switchboard.journey.accept import AcceptLeg
from switchboard.journey.compaction import Compactor
from switchboard.journey.decide import DecideLeg
from switchboard.journey.rulebook import RuleBook
from switchboard.journey.turn import TurnLeg, TurnLimits
from switchboard.lanes.background import run_in_background
from switchboard.lanes.logs import hide_variables
from switchboard.lanes.notifier import Notifier
from switchboard.ports.blobs import BlobStore
from switchboard.ports.channel import Channel
from switchboard.ports.engine import EngineContext, Turn
from switchboard.ports.facts import Reader
from switchboard.ports.models import Models
from switchboard.ports.sandbox import SandboxRules
from switchboard.store.clock import DatabaseClock
from switchboard.store.database import ForeignDatabase
from switchboard.store.memory.facts import StoredFacts
from switchboard.store.memory.history import StoredHistory, StoredReaders
from switchboard.store.messages.blobs import PieceStore
from switchboard.store.messages.files import StoredFiles
from switchboard.store.models.classification import Pool
from switchboard.store.models.memos import StoredMemos
from switchboard.store.rules.remote_agents import StoredRemoteAgents
from switchboard.store.work.lanes import Work
from switchboard.turns.agent import AgentParts, ButlerAgent
from switchboard.turns.engine import Calls, SessionEngine, SessionHistory
from switchboard.turns.memory import SessionMemory
from switchboard.turns.registration import Registration
from switchboard.turns.terminal import NoTerminal

_CLOSE_S: Final = 10.0
"""Seconds that a context waits at its end for running compactions."""


class TurnContext:
    """The `MessageContext` of an installation, for one butler. Made by `open_turns`."""

    def __init__(self, agent: ButlerAgent, memory: SessionMemory, files: BlobStore) -> None:
        self._files = files
        self._agent = agent
        self._memory = memory
        self._terminal = NoTerminal()

    def agent(self) -> ButlerAgent:
        """The butler."""
        return self._agent

    def memory(self) -> SessionMemory:
        """The history and the facts of its sessions."""
        return self._memory

    def read(self, file: ReplyFile) -> AsyncIterator[bytes]:
        """The bytes of a file that came with an answer. Raises `Unavailable`."""
        return self._files.read(bytes.fromhex(file.sha256))

    def terminal(self) -> NoTerminal:
        """Not available yet: every command raises ConfigurationError."""
        return self._terminal


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
    the first model that answers. At its end the context waits up to ten seconds for compactions. Images are kept below
    `workspaces`, where the workers of the installation should also keep theirs. Raises NotFound if there is no such
    butler, and ConfigurationError if it has another engine.
    """
    hide_variables()
    database, calls, system_id = ForeignDatabase(pool, "read_committed"), Calls(), SystemId(butler)
    notifier, readers, clock = Notifier(database), StoredReaders(database, CHANNELS), DatabaseClock()
    rule_book = await RuleBook.open(ForeignDatabase(pool, "repeatable_read"), notifier, classifying=False)
    await clock.measure(database)
    history = StoredHistory(database, readers)
    context = EngineContext(
        StoredMemos(database),
        StoredRemoteAgents(database),
        models=models,
        workspaces=workspaces,
        readers=readers,
        history=SessionHistory(calls, history),
        facts=StoredFacts(database, readers),
        files=StoredFiles(database, ""),
        sandbox=SandboxRules(hidden=() if workspaces is None else (workspaces,)),
    )
    compactor = Compactor(database, models, models.names if compact_model is None else [compact_model])
    async with AsyncExitStack() as stack:
        for work in (rule_book.follow, partial(clock.follow, database)):
            await run_in_background(stack, work)
        registration = await stack.enter_async_context(Registration.open(database, calls))
        limits, decide = AcceptLimits(sender_per_minute=0), DecideLeg(rule_book)
        accept = AcceptLeg(
            database, decide, notifier, limits, CHANNELS, clock, program=lambda: registration.claim.worker
        )
        await run_in_background(stack, accept.watch_backlog)
        engine = SessionEngine(replace(context, closing=stack), calls)
        leg = TurnLeg(database, notifier, rule_book, {"model": engine}, _Returned(readers), TurnLimits())
        agent = ButlerAgent(
            system_id, AgentParts(database, notifier, rule_book, engine, accept, leg, registration, calls)
        )
        agent.require_butler()
        try:
            yield TurnContext(agent, SessionMemory(system_id, database, history, compactor), PieceStore(database))
        finally:
            await agent.finish_compacting(_CLOSE_S)
            await leg.aclose()


class _Returned:
    """The delivery of replies: the caller gets them, and nobody else sends them."""

    def __init__(self, readers: StoredReaders) -> None:
        self._readers = readers

    def pool(self, work: Work) -> str | None:  # noqa: ARG002
        return None

    async def withheld(self, work: Work, *, allowed: bool = False) -> str | None:  # noqa: ARG002
        return None

    async def reader(self, turn: Turn) -> Reader:
        return await self._readers.of(turn)

    async def whole(self, turn: Turn) -> Envelope:
        return turn.envelope

    def replied_to(self, whole: Envelope) -> str | None:  # noqa: ARG002
        return None

    def channel_of(self, whole: Envelope) -> Channel:
        """Nobody vouches for a sender but the program, which knows no persons."""
        return Channel(name=whole.source.channel)
