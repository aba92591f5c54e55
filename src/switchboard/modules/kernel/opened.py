"""The modules that are open in a worker, and the tools of each butler.

`app/ops/modules.py` makes one `OpenModules` for a worker, as a `Toolset`. Modules are opened when a butler has them:
at the first look, or before the first turn that may need them. One that fails is tried again later and later; its
tools are absent meanwhile, and nobody else is harmed. Next: `opening.py`, `bound.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import Any, Final, TypeVar

import structlog
from msgspec import Struct, field
from msgspec.structs import replace
from pydantic import ValidationError

from switchboard.domain.errors import SwitchboardError, Unavailable
from switchboard.domain.routing import Member
from switchboard.modules.kernel.bound import ModuleCaller, bind_tool
from switchboard.modules.kernel.described import described_tools
from switchboard.modules.kernel.foreign import ForeignFailure
from switchboard.modules.kernel.grants import ModuleGrant, grants_of, modules_in_use, read_grant
from switchboard.modules.kernel.holding import HoldWatch
from switchboard.modules.kernel.manifests import Unusable, find_manifest, find_manifests
from switchboard.modules.kernel.opening import OPENING_S, close_module, open_module
from switchboard.modules.kernel.quarantine import ModuleUse, NoQuarantine, Quarantine
from switchboard.modules.kernel.states import ModuleState, OpenedModule, chores_of, tools_with_needs
from switchboard.ports.module import Chore, ModuleContext, ModuleManifest
from switchboard.ports.module_store import ModuleStore
from switchboard.ports.tools import Tool
from switchboard.tasks import cancel_tasks

log = structlog.get_logger(__name__)

_T = TypeVar("_T")

_AGAIN_S: Final = 60.0
_LATEST_S: Final = 3600.0
"""Seconds until a module that has failed is tried again: twice as long after each failure, up to this."""
_FRESH_S: Final = 2.0
"""Seconds for which it is known which modules are in quarantine."""


def no_stores(manifest: ModuleManifest) -> Callable[[str], ModuleStore]:
    """Where there is no database."""

    def refuse(_: str) -> ModuleStore:
        raise Unavailable(f"there is no database for the module {manifest.name}")

    return refuse


async def no_migrations(_: Sequence[ModuleManifest]) -> Mapping[str, str]:
    """Where there is no database."""
    return {}


class Installation(Struct, frozen=True):
    """What modules get of the installation.

    `settings` reads the table of a module, and raises an error of the one tree if it is wrong; `migrate` makes the
    tables of modules, and returns why that failed, by their names; `offers` are what the kernel itself offers.
    `on_open` is told that a module is open, which may have chores.
    """

    members: Callable[[], Iterable[Member]]
    settings: Callable[[ModuleManifest], Struct]
    secrets: Callable[[ModuleManifest], Mapping[str, str]]
    stores: Callable[[ModuleManifest], Callable[[str], ModuleStore]] = no_stores
    migrate: Callable[[Sequence[ModuleManifest]], Awaitable[Mapping[str, str]]] = no_migrations
    offers: Mapping[str, object] = field(default_factory=dict)
    quarantine: Quarantine = field(default_factory=NoQuarantine)
    on_open: Callable[[], None] = lambda: None


class _Failure(Struct, frozen=True):
    """Why a module is not open, how often that happened, and when it is tried again, by the monotonic clock."""

    why: str
    times: int
    again: float


class OpenModules:
    """See `switchboard.ports.tools.Toolset`. Close it at the end. `seconds`: for each module to open."""

    def __init__(self, installation: Installation, *, seconds: float = OPENING_S) -> None:
        self._installation = installation
        self._seconds = seconds
        self._open: dict[str, OpenedModule] = {}
        self._failed: dict[str, _Failure] = {}
        self._quarantined: Mapping[str, str] = {}
        self._known_until = float("-inf")
        self._opening = asyncio.Lock()
        self._use = ModuleUse(installation.quarantine)
        self._looking: asyncio.Task[None] | None = None
        self._reports: set[asyncio.Task[None]] = set()
        self.watch = HoldWatch(self._report_hold)
        self._guarded = False

    @property
    def offers(self) -> Mapping[str, object]:
        """What modules are offered, by name."""
        return self._installation.offers

    # What others see --------------------------------------------------------------------------------------------------

    def may_have(self, member: Member, name: str) -> bool:
        """As in the port."""
        return any(tool.spec.name == name for tool in described_tools(member))

    async def of(self, member: Member) -> Sequence[Tool]:
        """As in the port. Modules that are not open yet are opened, unless they have just failed."""
        mine = grants_of(member)
        if not mine:
            return ()
        await self._refresh_quarantine()
        if any(self._is_due(name) for name in mine):
            await self.look([*mine])
        return self.tools_of(member)

    def tools_of(self, member: Member) -> Sequence[Tool]:
        """The tools of a butler from the modules that are open now."""
        return tuple(tool for name, grant in grants_of(member).items() for tool in self._bind_tools(name, grant))

    def lacking(self, member: Member) -> Mapping[str, str]:
        """Which of a butler's modules are absent now, and why."""
        states = {name: self.state_of(name) for name in grants_of(member)}
        return {name: state.why for name, state in states.items() if state.state != "open"}

    def state_of(self, name: str) -> ModuleState:
        """The state of one module in this worker."""
        if name in self._quarantined:
            return ModuleState(name, "quarantined", self._quarantined[name])
        if name in self._open:
            return self._open[name].state
        return ModuleState(name, "failed", self._failed[name].why if name in self._failed else "it is not open yet")

    def states(self) -> Sequence[ModuleState]:
        """The states of all modules that butlers have, by name."""
        return [self.state_of(name) for name in sorted(modules_in_use(self._installation.members()))]

    @property
    def open_modules(self) -> Sequence[OpenedModule]:
        """The modules that are open and not in quarantine: those whose chores are due."""
        return [one for name, one in self._open.items() if name not in self._quarantined]

    def find_chores(self) -> list[tuple[ModuleManifest, Chore]]:
        """What the open modules do from time to time, watched as their calls are."""
        return [
            (one.manifest, self._watch_chore(one.manifest.name, chore))
            for one in self.open_modules
            for chore in chores_of(one)
        ]

    def _watch_chore(self, name: str, chore: Chore) -> Chore:
        async def run(store: ModuleStore) -> None:
            await self.call_module(name, chore.run(store))

        return replace(chore, run=run)

    # Opening ----------------------------------------------------------------------------------------------------------

    async def look(self, names: Iterable[str] = ()) -> None:
        """Open what butlers have and is not open; `names` too. Nothing that a module does is raised."""
        wanted = {*names, *modules_in_use(self._installation.members())}
        if not wanted:
            return
        async with self._opening:
            await self._refresh_quarantine()
            due = [name for name in sorted(wanted) if self._is_due(name)]
            if due:
                await self._open_all(due)

    async def start_look(self) -> None:
        """Begin a look, unless one is going on: whoever calls this has other things to do."""
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look_alone())

    async def _look_alone(self) -> None:
        try:
            await self.look()
        except Unavailable as error:
            log.warning("modules cannot be opened now", reason=error.message)

    async def aclose(self) -> None:
        """Close all modules, in reverse order."""
        await cancel_tasks(*self._reports, *([self._looking] if self._looking else []))
        async with self._opening:
            for name in reversed([*self._open]):
                await self._close(name)
        await self._use.aclose()

    def _is_due(self, name: str) -> bool:
        if name in self._open or name in self._quarantined:
            return False
        return name not in self._failed or monotonic() >= self._failed[name].again

    async def _open_all(self, names: Sequence[str]) -> None:
        """Open these; those that offer what others need come first."""
        manifests = await asyncio.to_thread(find_manifests, names)  # which imports them
        for name in names:
            if isinstance(unusable := find_manifest(name), Unusable):
                await self._note_failure(name, unusable.why)
        failures = await self._make_tables([*manifests.values()])
        for name, why in failures.items():
            await self._note_failure(name, f"its tables cannot be made: {why}")
        left = [one for name, one in manifests.items() if name not in failures]
        while left:
            later = {offered for one in left for offered in one.offers}
            ready = [one for one in left if not later.difference(one.offers) & {*one.needs}] or left
            await asyncio.gather(*map(self._open_one, ready))
            left = [one for one in left if one not in ready]

    async def _make_tables(self, manifests: Sequence[ModuleManifest]) -> Mapping[str, str]:
        if not manifests:
            return {}
        try:
            return await self._installation.migrate(manifests)
        except SwitchboardError as error:
            return {one.name: error.message for one in manifests}

    async def _open_one(self, manifest: ModuleManifest) -> None:
        offered = self._find_offers()
        try:
            context = self._context_for(manifest, offered)
            module = await open_module(manifest, context, partial(self.call_module, manifest.name), self._seconds)
        except (ForeignFailure, SwitchboardError) as failure:
            await self._note_failure(manifest.name, f"{failure}")
            return
        tools, left_out = tools_with_needs(manifest, context.needs)
        self._open[manifest.name] = OpenedModule(manifest, module, tools, left_out)
        self._failed.pop(manifest.name, None)
        await self._note_state(manifest.name)
        self._installation.on_open()
        log.info("a module is open", module=manifest.name, tools=len(tools), left_out=left_out)

    def _context_for(self, manifest: ModuleManifest, offered: Mapping[str, object]) -> ModuleContext:
        installation = self._installation
        needs: Mapping[str, Any] = {need: offered[need] for need in manifest.needs if need in offered}
        return ModuleContext(
            installation.settings(manifest), installation.stores(manifest), installation.secrets(manifest), needs
        )

    def _find_offers(self) -> dict[str, object]:
        """What the kernel and the open modules offer, by name."""
        theirs = {offer: one.module for one in self.open_modules for offer in one.manifest.offers}
        return {**theirs, **self._installation.offers}

    async def _note_failure(self, name: str, why: str) -> None:
        times = self._failed[name].times + 1 if name in self._failed else 1
        again = min(_AGAIN_S * 2.0 ** (times - 1), _LATEST_S)
        self._failed[name] = _Failure(why, times, monotonic() + again)
        log.warning("a module cannot be used", module=name, why=why, again_s=again)
        await self._note_state(name, why)

    async def _close(self, name: str) -> None:
        opened = self._open.pop(name)
        try:
            await close_module(opened.module)
        except ForeignFailure as failure:
            log.warning("a module could not be closed", module=name, why=str(failure))

    async def call_module(self, name: str, work: Awaitable[_T]) -> _T:
        """What comes of the work of a module, such as a call or a chore, which is watched."""
        if not self._guarded:
            self._guarded = True
            self.watch.end_process_if_held()
        async with self._use.calling(name):
            return await self.watch.around(name, work)

    async def _note_state(self, name: str, why: str = "") -> None:
        """For those who look from outside; it is no failure of a module if they cannot be told."""
        with suppress(Unavailable):
            await self._installation.quarantine.note_state(name, why)

    # Quarantine -------------------------------------------------------------------------------------------------------

    async def _refresh_quarantine(self) -> None:
        if monotonic() < self._known_until:
            return
        before, self._quarantined = self._quarantined, await self._installation.quarantine.read_quarantine()
        for name in self._quarantined.keys() - before.keys():
            log.error("a module is in quarantine", module=name, remedy=f"switchboard modules release {name}")
        self._known_until = monotonic() + _FRESH_S

    def _report_hold(self, module: str, seconds: float) -> None:
        log.warning("a module has held the event loop", module=module, seconds=seconds)
        task = asyncio.get_running_loop().create_task(self._note_hold(module))
        self._reports.add(task)
        task.add_done_callback(self._reports.discard)

    async def _note_hold(self, module: str) -> None:
        try:
            await self._installation.quarantine.note_hold(module)
        except Unavailable as error:
            log.warning("a long hold could not be recorded", module=module, reason=error.message)

    # Tools ------------------------------------------------------------------------------------------------------------

    def _bind_tools(self, name: str, grant: ModuleGrant) -> Iterable[Tool]:
        opened = self._open.get(name)
        if opened is None or name in self._quarantined:
            return ()
        try:
            rest = read_grant(opened.manifest, grant)
        except ValidationError:
            return ()  # the checks of options tell what is wrong
        caller = ModuleCaller(opened.module, rest, partial(self.call_module, name))
        return [bind_tool(tool, caller, name) for tool in opened.tools if grant.has(tool)]
