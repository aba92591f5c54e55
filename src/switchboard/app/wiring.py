"""The composition root: settings in, running parts out, one straight way; things close in reverse order.

`cli/running.py` calls it. No part looks for another by itself; what only doors need is put together in
`server/http/doors.py`, from the `Switchboard` made here.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

import structlog

from switchboard.agents.callback import callbacks_from
from switchboard.app.embedded import embedded_postgres
from switchboard.app.seed import seed_teams
from switchboard.app.settings import ENGINES, Settings
from switchboard.app.upkeep import chores, forgetting
from switchboard.core.channels import CHANNELS
from switchboard.domain.errors import ConfigurationError, SwitchboardError, Unavailable
from switchboard.domain.routing import Member
from switchboard.journey.accept import AcceptLeg, AcceptLimits
from switchboard.journey.classify import Classifier, RouteLeg, RouteLimits
from switchboard.journey.decide import DecideLeg
from switchboard.journey.reply import Callback, ReplyDesk, SendLeg, reply_pool
from switchboard.journey.rulebook import RuleBook
from switchboard.journey.turn import ChecksOptions, Engine, EngineFailure, TurnLeg, TurnLimits
from switchboard.lanes.bell import RULES, Bell
from switchboard.lanes.worker import Worker, WorkerSettings
from switchboard.store import presence
from switchboard.store.database import Database
from switchboard.store.migrate import migrate

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Core:
    """What doors and workers share: database, bell, rules. What is opened later is closed with `closing`."""

    settings: Settings
    database: Database
    bell: Bell
    rule_book: RuleBook
    closing: AsyncExitStack = field(default_factory=AsyncExitStack)


@dataclass(frozen=True, slots=True)
class Switchboard:
    """What doors are given."""

    core: Core
    accept: AcceptLeg
    replies: ReplyDesk


def known_channels(settings: Settings) -> Mapping[str, frozenset[str]]:
    """Channels with their providers: ours, and those that the settings add."""
    return {**CHANNELS, **{name: frozenset(given) for name, given in settings.channels.items()}}


@asynccontextmanager
async def open_database(settings: Settings) -> AsyncIterator[Database]:
    """The database that the settings name, else the embedded one; migrated. Closed again at the end."""
    async with AsyncExitStack() as stack:
        if settings.database_url is not None:
            url = settings.database_url.get_secret_value()
        else:
            server = await stack.enter_async_context(
                embedded_postgres(settings.data_dir / "postgres", binaries=settings.postgres_binaries)
            )
            url = server.url
        database = await Database.connect(url)
        stack.push_async_callback(database.close)
        await migrate(database)
        # While the process still imports: to open one takes twice as long as to answer a message.
        await database.warm(4)
        if settings.database_url is None:
            await _background(stack, lambda: _keep_embedded(settings, database))
        yield database


async def _keep_embedded(settings: Settings, database: Database, every: float = 1.0) -> None:
    """Bring the embedded server back when it has crashed under us. Runs until cancelled."""
    while True:
        await asyncio.sleep(every)
        try:
            await database.ping()
        except Unavailable:
            with contextlib.suppress(SwitchboardError):
                # We are its users already, so leaving this block at once does not stop what it started.
                async with embedded_postgres(settings.data_dir / "postgres", binaries=settings.postgres_binaries):
                    log.warning("PostgreSQL was gone and is back")


@asynccontextmanager
async def open_core(settings: Settings) -> AsyncIterator[Core]:
    """Database, bell and rules, the rules kept up to date."""
    async with AsyncExitStack() as stack:
        database = await stack.enter_async_context(open_database(settings))
        bell = Bell(database)
        if await seed_teams(database, settings.teams_dir, known_channels(settings), written=settings.teams):
            bell.ring(RULES)
        classifying, patience = bool(settings.classify.models), settings.liveness.patience
        rule_book = await RuleBook.open(database, bell, classifying=classifying, patience=patience)
        await _background(stack, rule_book.follow)
        closing = await stack.enter_async_context(AsyncExitStack())
        yield Core(settings, database, bell, rule_book, closing)


@asynccontextmanager
async def open_switchboard(core: Core) -> AsyncIterator[Switchboard]:
    """The parts behind the doors."""
    settings = core.settings
    limits = AcceptLimits(settings.accept.backlog, settings.accept.message_bytes)
    accept = AcceptLeg(core.database, DecideLeg(core.rule_book), core.bell, limits, known_channels(settings))
    async with AsyncExitStack() as stack:
        await presence.listen(core.database)
        await core.rule_book.look_around()
        await _background(stack, lambda: _hear_butlers(core.database))
        await _background(stack, accept.watch_backlog)
        await _background(stack, core.bell.listen)
        yield Switchboard(core, accept, ReplyDesk(core.database, core.bell))


async def _hear_butlers(database: Database, every: float = 5.0) -> None:
    """Keep that the doors are open for heartbeats: silence counts only as long as they are. Runs until cancelled."""
    while True:
        await asyncio.sleep(every)
        with contextlib.suppress(Unavailable):  # nobody could be heard either
            await presence.listen(database)


def make_worker(core: Core, *, concurrency: int | None = None) -> Worker:
    """A worker with all legs; the caller runs it."""
    settings = core.settings
    callbacks: Mapping[str, Callback] = callbacks_from(settings.callbacks)
    limits = TurnLimits(
        settings.turn.attempts, settings.turn.timeout, settings.turn.backoff_base, settings.turn.backoff_cap
    )
    engines = load_engines(core.database)
    members = core.rule_book.rules.members.values()
    _check_options(engines, members)
    # Rules that name a butler without an engine make dead letters that say so; a model is not to choose one at all.
    core.rule_book.avoid([member.system_id for member in members if member.engine not in engines])
    turn = TurnLeg(core.database, core.bell, core.rule_book, engines, reply_pool(callbacks), limits)
    send = SendLeg(core.database, callbacks)
    route = RouteLeg(core.database, core.bell, core.rule_book, make_classifier(core), _route_limits(settings))
    upkeep = chores(core.database, core.bell, settings.dead_letters, callbacks)
    upkeep += forgetting(core.database, settings.classify.keep_days)
    group = settings.worker
    return Worker(
        core.database,
        core.bell,
        {"turn": turn, "notice": turn, "send": send, "route": route},
        WorkerSettings(
            concurrency=concurrency or group.concurrency,
            ttl=group.ttl,
            drain=group.drain,
            use_lock=group.advisory_locks,
        ),
        upkeep,
    )


def make_classifier(core: Core) -> Classifier | None:
    """What asks the models that the settings name; None without any. Closed with the core.

    Imported late: who classifies nothing does not pay for SDKs. Raises ConfigurationError that names the model.
    """
    settings = core.settings
    if not settings.classify.models:
        return None
    parts: Any = import_module("switchboard.app.models")
    classifier: Classifier = parts.open_classifier(settings, core.database, core.closing)
    return classifier


def _route_limits(settings: Settings) -> RouteLimits:
    """The leg waits a little longer than the models may take: their own limit says more."""
    return RouteLimits(settings.classify.attempts, settings.classify.timeout + 30.0)


def load_engines(database: Database) -> dict[str, Engine]:
    """Every engine that is installed, by its entry point's name in `switchboard.engines`."""
    engines: dict[str, Engine] = {}
    for entry in entry_points(group=ENGINES):
        try:
            engines[entry.name] = entry.load()(database)
        except ImportError as error:
            raise ConfigurationError(f"the engine {entry.name!r} ({entry.value}) cannot be loaded: {error}") from error
    return engines


def _check_options(engines: Mapping[str, Engine], members: Iterable[Member]) -> None:
    """Wrong options stop the start of a worker: otherwise the first message would show them, as a dead letter."""
    problems: list[str] = []
    for member in members:
        engine: object = engines.get(member.engine)
        if member.active and isinstance(engine, ChecksOptions):
            try:
                engine.check(member)
            except EngineFailure as error:
                problems.append(str(error))
    if problems:
        raise ConfigurationError("\n".join(problems))


async def _background(stack: AsyncExitStack, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Have `work` done until the stack is left."""
    task = asyncio.create_task(keep_at(work))

    async def end() -> None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    stack.push_async_callback(end)


async def keep_at(work: Callable[[], Coroutine[Any, Any, None]], pause: float = 1.0) -> None:
    """Do what must never end: after a defect, which is logged, again from the start, `pause` seconds later.

    Nobody waits for what works in the background, so its end would be noticed when it is too late: a process that does
    not follow the rules any more misroutes for good.
    """
    while True:
        try:
            await work()
        except Exception:
            log.exception("background work failed; it starts again", work=getattr(work, "__qualname__", repr(work)))
        else:
            return
        await asyncio.sleep(pause)
