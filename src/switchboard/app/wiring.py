"""The composition root: settings in, running parts out, in one straight line; things close in reverse order.

`cli/processes/working.py` calls it. No part looks up another; the parts that only interfaces need are put together in
`server/http/services.py`, from the `Switchboard` made here.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager

import structlog
from msgspec.structs import asdict, replace

from switchboard.agents.callback import callbacks_from
from switchboard.app.checked import CheckedSettings, check_settings
from switchboard.app.database import open_database
from switchboard.app.mcp_servers import unknown_names
from switchboard.app.memory.embedding import embedder_of
from switchboard.app.models.process import ProcessModels
from switchboard.app.ops.engines import check_options, engine_context, load_engines, stored_files, warn_of_root
from switchboard.app.ops.modules import add_calls, make_modules, module_tasks, open_gates
from switchboard.app.ops.periodic import periodic_tasks
from switchboard.app.processes import stay_registered
from switchboard.app.rules.seed import seed_teams
from switchboard.app.runtime import Runtime, Switchboard
from switchboard.app.settings import Settings
from switchboard.app.transcription import open_hearing
from switchboard.domain.errors import Unavailable
from switchboard.journey.accept import AcceptLeg
from switchboard.journey.ask import Classifier
from switchboard.journey.classify import RouteLeg, RouteLimits
from switchboard.journey.decide import DecideLeg
from switchboard.journey.reply import Callback, ReplyService, ReplyWays, SendLeg
from switchboard.journey.rulebook import RuleBook
from switchboard.journey.strangers import Strangers
from switchboard.journey.turn import TurnLeg, TurnLimits
from switchboard.lanes.background import run_in_background
from switchboard.lanes.kinds import NOTICE, ROUTE, SEND, TURN, WORK_POOL
from switchboard.lanes.notifier import RULES, Notifier
from switchboard.lanes.worker import Worker, WorkerSettings
from switchboard.store.clock import DatabaseClock
from switchboard.store.database import Database
from switchboard.store.models.mcp_tools import StoredPins
from switchboard.store.rules import remote_agents
from switchboard.tools.mcp_servers import McpServers
from switchboard.tools.toolsets import Toolsets
from switchboard.transport.mail_reading import MailReader

log = structlog.get_logger(__name__)


@asynccontextmanager
async def open_runtime(settings: Settings, *, for_worker: bool = False) -> AsyncIterator[Runtime]:
    """Database, notifier and rules, the rules kept up to date.

    Raises ConfigurationError before anything is written; `for_worker` also for what `make_worker` would refuse.
    """
    checked = check_settings(settings, for_worker=for_worker)
    async with open_database(settings) as database, runtime_on(database, checked) as runtime:
        yield runtime


@asynccontextmanager
async def runtime_on(database: Database, checked: CheckedSettings) -> AsyncIterator[Runtime]:
    """The same on an open database."""
    settings, channels, seed = checked.settings, checked.channels, checked.seed
    async with AsyncExitStack() as stack:
        if checked.for_worker and seed is not None:
            engines = load_engines(engine_context(settings, database, channels))
            check_options(engines, (m for team in seed.teams for m in team.members), seed.files)
        notifier = Notifier(database)
        if await seed_teams(database, seed):
            notifier.notify(RULES)
        classifying, patience = bool(settings.classify.models), settings.liveness
        rule_book = await RuleBook.open(
            database, notifier, classifying=classifying, patience=patience, channels=channels
        )
        await run_in_background(stack, rule_book.follow)
        closing = await stack.enter_async_context(AsyncExitStack())
        embedder = embedder_of(settings, database, closing)
        yield Runtime(settings, database, notifier, rule_book, channels, closing, embedder)


@asynccontextmanager
async def open_switchboard(runtime: Runtime) -> AsyncIterator[Switchboard]:
    """The parts behind the interfaces."""
    settings = runtime.settings
    limits = settings.accept
    people_book, clock = runtime.people_book, DatabaseClock()
    decide = DecideLeg(runtime.rule_book, runtime.channels, people_book)
    owns = runtime.rule_book.is_owner
    strangers = Strangers(runtime.database, runtime.notifier, runtime.channels, runtime.policies, owns=owns)
    accept = AcceptLeg(runtime.database, decide, runtime.notifier, limits, runtime.channels, clock, strangers=strangers)
    async with AsyncExitStack() as stack:
        await remote_agents.listen(runtime.database)
        await runtime.rule_book.look_around()
        await people_book.refresh()
        await clock.measure(runtime.database)
        await run_in_background(stack, lambda: clock.follow(runtime.database))
        await run_in_background(stack, lambda: _hear_butlers(runtime.database))
        await run_in_background(stack, lambda: stay_registered(runtime.database))
        await run_in_background(stack, accept.watch_backlog)
        await run_in_background(stack, runtime.policies.follow)
        await run_in_background(stack, people_book.follow)
        await run_in_background(stack, runtime.notifier.listen)
        mails = MailReader()
        stack.push_async_callback(mails.close)
        replies = ReplyService(runtime.database, runtime.notifier, lambda: runtime.rule_book.rules.members)
        yield Switchboard(runtime, accept, replies, mails)


async def _hear_butlers(database: Database) -> None:
    """Record that the server accepts heartbeats: silence counts only while it does. Runs until cancelled."""
    while True:
        await asyncio.sleep(10)
        with contextlib.suppress(Unavailable):  # nobody could be heard either
            await remote_agents.listen(database)


def make_worker(runtime: Runtime, *, concurrency: int | None = None) -> Worker:
    """A worker with all legs, for the caller to run."""
    settings = runtime.settings
    callbacks: Mapping[str, Callback] = callbacks_from(settings.callbacks, stored_files(settings, runtime.database))
    limits = TurnLimits(**asdict(settings.turn))
    models = ProcessModels(settings, runtime.database)
    runtime.closing.push_async_callback(models.aclose)
    servers = McpServers(settings.servers, StoredPins(runtime.database))
    runtime.closing.push_async_callback(servers.aclose)
    modules = make_modules(runtime)
    toolsets = Toolsets(servers, modules)
    context = engine_context(settings, runtime.database, runtime.channels, models, toolsets, runtime.embedder)
    context = open_gates(modules, replace(context, closing=runtime.closing))
    engines = load_engines(context)
    members = runtime.rule_book.rules.members.values()
    check_options(engines, members)
    warn_of_root(members, settings.program_user)
    for problem in unknown_names(settings.servers, runtime.rule_book.rules.teams):
        log.warning("a setting names nobody", problem=problem, remedy="correct it in the settings, and restart")
    # Rules that name a butler without an engine create dead letters that say so; a model must not choose one at all.
    runtime.rule_book.avoid([member.system_id for member in members if member.engine not in engines])
    ways = ReplyWays(runtime.database, callbacks, runtime.channels, context.readers)
    hearing = open_hearing(settings, runtime.database, stored_files(settings, runtime.database), runtime.closing)
    parts = (runtime.database, runtime.notifier, runtime.rule_book)
    turn = TurnLeg(*parts, add_calls(engines, context, runtime), ways, limits, hearing=hearing)
    runtime.closing.push_async_callback(turn.aclose)
    send = SendLeg(runtime.database, callbacks)
    route = RouteLeg(*parts, make_classifier(runtime, models), _route_limits(settings), hearing=hearing)
    group = settings.worker
    return Worker(
        runtime.database,
        runtime.notifier,
        {TURN: turn, NOTICE: turn, SEND: send, ROUTE: route},
        WorkerSettings(
            pools=settings.places | ({WORK_POOL.name: concurrency} if concurrency else {}),
            catch_up=group.catch_up,
            ttl=group.ttl,
            drain=group.drain,
            use_lock=group.advisory_locks,
        ),
        (*periodic_tasks(runtime, models, callbacks), *module_tasks(modules)),
    )


def make_classifier(runtime: Runtime, models: ProcessModels) -> Classifier | None:
    """The classifier for the models of `classify.models`; None without any.

    They are opened at once, so that a worker that cannot ask them does not start. Raises ConfigurationError.
    """
    settings = runtime.settings
    if not settings.classify.models:
        return None
    from switchboard.app.models.classifier import open_classifier

    return open_classifier(settings, runtime.database, models.open().dispatcher)


def _route_limits(settings: Settings) -> RouteLimits:
    """The leg waits slightly longer than the models may take, as their own error says more."""
    return RouteLimits(settings.classify.attempts, settings.classify.timeout + 30.0)
