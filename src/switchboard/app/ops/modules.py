"""The modules of an installation: opened in a worker, their tables of the settings checked.

`app/wiring.py` calls it for each worker, `app/module_trials.py` at a terminal, `app/ops/checks.py` for doctor. In: the
runtime; out: `OpenModules`. Next: `modules/kernel/opened.py`.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Final

from msgspec import Struct
from msgspec.structs import replace
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from switchboard.agents.turns.call_engine import CallEngine
from switchboard.app.access import Principal
from switchboard.app.answered_mails import AnsweredMailEngine
from switchboard.app.calendar_mails import WorkerCalendarMails
from switchboard.app.front_door import WorkerFrontDoor
from switchboard.app.gates import WorkerGates
from switchboard.app.mail_desk import WorkerMailDesk, check_senders
from switchboard.app.ops.invitations import check_invitations
from switchboard.app.people_seen import WorkerPeople, WorkerWriters
from switchboard.app.runtime import Runtime
from switchboard.app.settings import Settings
from switchboard.app.settings_file import describe_unknown_setting, present_file
from switchboard.core.calls import CALL
from switchboard.core.mail.telling import ANSWERED_MAIL
from switchboard.core.text.problems import wrong
from switchboard.domain.errors import ConfigurationError, NotFound
from switchboard.domain.routing import Member
from switchboard.lanes.background import keep_at
from switchboard.modules.kernel.chores import ChoreRunner, OpenChore
from switchboard.modules.kernel.grants import modules_in_use
from switchboard.modules.kernel.manifests import Unusable, find_manifest, find_manifests
from switchboard.modules.kernel.opened import Installation, OpenModules
from switchboard.modules.kernel.tables import read_table, settings_of
from switchboard.ports.calendar_mails import CALENDAR_MAILS
from switchboard.ports.checks import CheckResult, count_of, error, ok, warning
from switchboard.ports.engine import Engine, EngineContext
from switchboard.ports.front_door import FRONT_DOOR
from switchboard.ports.gates import GATES
from switchboard.ports.mail_desk import MAIL_DESK
from switchboard.ports.maintenance import MaintenanceTask
from switchboard.ports.module import ModuleManifest
from switchboard.ports.people_seen import PEOPLE
from switchboard.ports.recent_writers import RECENT_WRITERS
from switchboard.store.checks.modules import check_cages
from switchboard.store.database import Database
from switchboard.store.models import module_quarantine
from switchboard.store.models.module_quarantine import StoredQuarantine
from switchboard.store.modules.chores import ChoreTable, overdue_chores
from switchboard.store.modules.opening import ModuleRooms
from switchboard.store.people import audit
from switchboard.store.rules.teams import TeamsOnce
from switchboard.tasks import cancel_tasks

_LOOK_S: Final = 10.0
_REINSTALL: Final = "install its package again, or take it from the option `modules` of butlers"
_RUN_WORKERS: Final = "see whether workers run: `switchboard processes list`; it is done as soon as one does"
_MEND: Final = "mend it; workers try again within an hour, and at once when they are restarted"


def make_modules(runtime: Runtime, **offers: object) -> OpenModules:
    """The modules of a worker, closed with the runtime. Raises ConfigurationError for tables that are wrong.

    `offers`: what we offer to modules that need it, by the names in their manifests.
    """
    rooms, host = ModuleRooms(runtime.database), socket.gethostname()

    def open_chores() -> list[OpenChore]:
        return [OpenChore(one.name, chore, rooms.stores(one)) for one, chore in modules.find_chores()]

    chores = _ChoreTask(ChoreRunner(ChoreTable(runtime.database, f"{host}:{os.getpid()}"), open_chores))
    quarantine = StoredQuarantine(runtime.database, host)
    modules = OpenModules(replace(_installation_of(runtime, rooms, offers), quarantine=quarantine, on_open=chores.look))
    runtime.closing.push_async_callback(modules.aclose)
    runtime.closing.push_async_callback(chores.aclose)
    return modules


def make_trial_modules(runtime: Runtime) -> OpenModules:
    """The same for a person at a terminal: only what is asked for is opened, no chores are done, and what workers have
    noted of modules stays.
    """
    installation = _installation_of(runtime, ModuleRooms(runtime.database), {})
    modules = OpenModules(replace(installation, members=lambda: ()))
    runtime.closing.push_async_callback(modules.aclose)
    return modules


def _installation_of(runtime: Runtime, rooms: ModuleRooms, offers: Mapping[str, object]) -> Installation:
    """What modules get here, beside what only a worker has. Raises ConfigurationError."""

    def members() -> Iterable[Member]:
        return runtime.rule_book.rules.members.values()

    check_tables(runtime.settings, members())
    people, door = WorkerPeople(runtime.people_book), WorkerFrontDoor(runtime)
    ours = {
        FRONT_DOOR: door,
        GATES: WorkerGates(runtime),
        MAIL_DESK: WorkerMailDesk(runtime, door),
        PEOPLE: people,
        RECENT_WRITERS: WorkerWriters(people, runtime.database),
        CALENDAR_MAILS: WorkerCalendarMails(runtime),
    }
    return Installation(
        *(members, partial(module_settings, runtime.settings), secrets_of, rooms.stores, rooms.migrate),
        offers={**ours, **offers},
    )


class _ChoreTask:
    """Chores are looked for from the moment when a module is open, so that nothing runs where there is none."""

    def __init__(self, runner: ChoreRunner) -> None:
        self._runner = runner
        self._task: asyncio.Task[None] | None = None

    def look(self) -> None:
        if self._task is None:
            self._task = asyncio.create_task(keep_at(self._runner.run))
        self._runner.look_now()

    async def aclose(self) -> None:
        if self._task is not None:
            await cancel_tasks(self._task)


def module_tasks(modules: OpenModules) -> tuple[MaintenanceTask, ...]:
    """Every worker opens modules that butlers have got, and those that have failed before."""
    return (MaintenanceTask("open_modules", _LOOK_S, modules.start_look, local=True),)


def open_gates(modules: OpenModules, context: EngineContext) -> EngineContext:
    """Let the conditions of tasks use the tools with which turns work. Returns the context."""
    gates = modules.offers.get(GATES)
    if isinstance(gates, WorkerGates):
        gates.open(context)
    return context


def add_calls(engines: Mapping[str, Engine], context: EngineContext, runtime: Runtime) -> Mapping[str, Engine]:
    """These engines, and those that no butler has: for calls of tools outside turns, and for answers to mails."""
    answered = AnsweredMailEngine(runtime.database, WorkerFrontDoor(runtime), runtime.channels)
    return {**engines, CALL: CallEngine(context), ANSWERED_MAIL: answered}


async def release_module(database: Database, caller: Principal, name: str) -> None:
    """Let workers open and call a module again, for an operator. Raises NotFound if it is not in quarantine."""
    async with database.transaction() as one:
        if not await module_quarantine.release_module(one, name):
            raise NotFound(f"the module {name!r} is not in quarantine")
        await audit.append(one, caller.name, "module:released", {"module": name})


async def check_modules(database: Database, settings: Settings, teams: TeamsOnce) -> list[CheckResult]:
    """What is wrong with the modules that butlers have: their tables, and why workers do without them."""
    members = [member for team in await teams.read() for member in team.members]
    names = modules_in_use(members)
    if not names:
        return []
    manifests = find_manifests(names)
    found = [_report_table(settings, one) for one in manifests.values()]
    unusable = {name: one.why for name in sorted(names) if isinstance(one := find_manifest(name), Unusable)}
    results = [error(f"module {name}", why, _REINSTALL) for name, why in unusable.items()]
    results += [one for one in found if one is not None]
    results += await check_cages(database, manifests.values())
    for held in await module_quarantine.list_quarantined(database):
        since = f"in quarantine since {held.since:%Y-%m-%d %H:%M} UTC: {held.why}"
        results.append(error(f"module {held.module}", since, f"switchboard modules release {held.module}"))
    for failed in await module_quarantine.list_failures(database):
        if failed.module in names - unusable.keys():
            results.append(warning(f"module {failed.module}", f"on {failed.host}: {failed.why}", _MEND))
    results += await check_overdue(database, settings, manifests)
    results += await check_senders(database, settings, members)
    results = results or [ok("modules", count_of(len(names), "module"))]
    if "calendar" in manifests:
        results += await check_invitations(database, _table_or_none(settings, manifests["calendar"]))
    return results


async def check_overdue(
    database: Database, settings: Settings, manifests: Mapping[str, ModuleManifest]
) -> list[CheckResult]:
    """What modules do from time to time, and have not done; but for accounts that are not in the settings any more."""
    found = []
    for one in await overdue_chores(database):
        accounts = settings.modules.get(one.module, {}).get("accounts", {})
        if one.module in manifests and (not one.account or (isinstance(accounts, dict) and one.account in accounts)):
            since = f"since {one.at:%Y-%m-%d %H:%M} UTC" if one.at else "yet"
            what = f"{one.name} of {one.account}" if one.account else one.name
            found.append(warning(f"module {one.module}", f"{what} was not done {since}", _RUN_WORKERS))
    return found


def _table_or_none(settings: Settings, manifest: ModuleManifest) -> Struct | None:
    """None: it is wrong, as another check tells."""
    try:
        return module_settings(settings, manifest)
    except ConfigurationError:
        return None


def _report_table(settings: Settings, manifest: ModuleManifest) -> CheckResult | None:
    try:
        module_settings(settings, manifest)
    except ConfigurationError as failure:
        return error(f"module {manifest.name}", failure.message, f"correct [modules.{manifest.name}], and restart")
    return None


def check_tables(settings: Settings, members: Iterable[Member]) -> None:
    """Check the tables of the modules that these have. Raises ConfigurationError with all that is wrong."""
    problems = []
    for manifest in find_manifests(modules_in_use(members)).values():
        try:
            module_settings(settings, manifest)
        except ConfigurationError as error:
            problems.append(error.message)
    if problems:
        raise ConfigurationError("; ".join(problems))


def module_settings(settings: Settings, manifest: ModuleManifest) -> Struct:
    """The table of a module. Raises ConfigurationError with the line or the variable, and what would be correct."""
    try:
        return read_table(manifest, settings.modules)
    except ValidationError as error:
        raise present_file().errors_with_places(error, partial(_describe_problem, manifest)) from error


def secrets_of(manifest: ModuleManifest) -> Mapping[str, str]:
    """Those of its secrets that are set: each is a variable of the environment with the name in the manifest."""
    return {name: os.environ[name] for name in manifest.secrets if os.environ.get(name)}


def _describe_problem(manifest: ModuleManifest, problem: ErrorDetails) -> str:
    """What is wrong, in the terms of a settings file."""
    if problem["type"] == "extra_forbidden":
        return describe_unknown_setting(str(problem["loc"][-1]), settings_of(manifest).__struct_fields__)
    return wrong(problem).replace("an object", "a table")
