"""Checks engines and options of butlers, before a worker starts and for doctor.

Called by `app/wiring.py` and `engine_checks.py`. In: settings and members; out: engines, or problems with their fixes.
Nothing is called or written. Next: the engines in `agents`.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Final

import structlog

from switchboard.app.models.process import ProcessModels
from switchboard.app.settings import ENGINES, Settings
from switchboard.core.channels.registry import CHANNELS, Channels
from switchboard.domain.errors import ConfigurationError
from switchboard.domain.routing import Member, SystemId
from switchboard.modules.kernel.described import DescribedModules
from switchboard.modules.kernel.grants import grant_problems
from switchboard.ports.embedder import Embedder
from switchboard.ports.engine import ChecksOptions, Engine, EngineContext, EngineFailure, OpenEngine
from switchboard.ports.models import Models
from switchboard.ports.sandbox import SandboxRules
from switchboard.ports.tools import Toolset
from switchboard.store.database import Database
from switchboard.store.memory.facts import StoredFacts
from switchboard.store.memory.history import StoredHistory, StoredReaders
from switchboard.store.messages.files import StoredFiles
from switchboard.store.models.mcp_tools import StoredPins
from switchboard.store.models.memos import StoredMemos
from switchboard.store.people.people import StoredNames
from switchboard.store.rules.remote_agents import StoredRemoteAgents
from switchboard.store.work.approvals import StoredApprovals
from switchboard.store.work.surroundings import StoredSurroundings
from switchboard.tools.mcp_servers import McpServers
from switchboard.tools.searxng import Searxng
from switchboard.tools.toolsets import Toolsets
from switchboard.transport.plug_ins import plug_ins

log = structlog.get_logger(__name__)

WORKSPACES: Final = "workspaces"
"""In `data_dir`."""


def engine_context(
    settings: Settings,
    database: Database,
    channels: Channels = CHANNELS,
    models: Models | None = None,
    toolset: Toolset | None = None,
    embedder: Embedder | None = None,
) -> EngineContext:
    """`models` are asked, `toolset` is called; None: only check whether they could be."""
    readers = StoredReaders(database, channels)
    return EngineContext(
        StoredMemos(database),
        StoredRemoteAgents(database),
        settings.program_user,
        models=models or ProcessModels(settings, database),
        workspaces=settings.data_dir / WORKSPACES,
        readers=readers,
        history=StoredHistory(database, readers),
        surroundings=StoredSurroundings(database, channels, readers),
        facts=StoredFacts(database, readers, embedder),
        names=StoredNames(database),
        files=stored_files(settings, database),
        sandbox=sandbox_rules(settings),
        search=None if settings.search.url is None else Searxng(settings.search),
        toolset=toolset or Toolsets(McpServers(settings.servers, StoredPins(database)), DescribedModules()),
        approvals=StoredApprovals(database),
        roles=settings.trio.named,
    )


def sandbox_rules(settings: Settings) -> SandboxRules:
    """What butlers' commands may use, and must not see."""
    limits = settings.sandbox
    return SandboxRules(limits.memory, limits.processes, limits.tmpfs, hidden=(settings.data_dir,))


def stored_files(settings: Settings, database: Database) -> StoredFiles:
    """The files of messages and answers, within the limits of the settings."""
    return StoredFiles(
        database,
        settings.blobs.link_url or f"http://{settings.host}:{settings.port}",
        directory=settings.data_dir,
        largest=settings.turn.reply_file_bytes,
        total=settings.blobs.total_bytes,
    )


def load_engines(context: EngineContext, only: Collection[str] | None = None) -> dict[str, Engine]:
    """Every installed engine, or `only` those, by the name of its entry point in `switchboard.engines`."""
    engines: dict[str, Engine] = {}
    for entry in plug_ins(ENGINES):
        if only is not None and entry.name not in only:
            continue
        try:
            open_engine: OpenEngine = entry.load()
            engines[entry.name] = open_engine(context)
        except ImportError as error:
            raise ConfigurationError(f"the engine {entry.name!r} ({entry.value}) cannot be loaded: {error}") from error
    return engines


def _runs_unconfined(member: Member, program_user: str | None) -> bool:
    """Whether it runs a program outside a sandbox, as the user of the worker."""
    if not member.active or member.engine != "command" or member.options.get("sandbox") is True:
        return False
    return (member.options.get("user") or program_user) is None


def warn_of_root(members: Iterable[Member], program_user: str | None) -> None:
    """Warn about programs that read strangers' text with all rights."""
    exposed = sorted(member.system_id for member in members if _runs_unconfined(member, program_user))
    if exposed and os.geteuid() == 0:
        log.warning(
            "programs of butlers run as root",
            butlers=exposed,
            remedy="set program_user, or the option user of each, to a user that owns nothing of Switchboard; or set"
            " the option sandbox",
        )


def check_options(
    engines: Mapping[str, Engine], members: Iterable[Member], files: Mapping[SystemId, Path] | None = None
) -> None:
    """Wrong options stop the start of a worker: otherwise the first message would reveal them, as a dead letter."""
    if problems := option_problems(engines, members, files or {}):
        raise ConfigurationError("\n".join(problems))


def option_problems(
    engines: Mapping[str, Engine], members: Iterable[Member], files: Mapping[SystemId, Path]
) -> list[str]:
    """Problems of active members, including missing secrets; each names the member and its file."""
    problems: list[str] = []
    for member in members:
        if member.active:
            problems += [problem_with_place(one, member, files) for one in grant_problems(member)]
        engine: object = engines.get(member.engine)
        if member.active and isinstance(engine, ChecksOptions):
            try:
                engine.check(member)
            except EngineFailure as error:
                problems.append(problem_with_place(str(error), member, files))
    return problems


def problem_with_place(problem: str, member: Member, files: Mapping[SystemId, Path]) -> str:
    """The problem with the member it concerns, and, if known, the file that defines it."""
    named = problem if member.system_id in problem else f"{member.system_id}: {problem}"
    return f"{files[member.system_id]}: {named}" if member.system_id in files else named
