"""Opens a module as a worker would, and runs its wizard that logs in an account: for a person at a terminal.

`cli/modules.py` calls it with the settings of the terminal. In: the name of an installed module; out: its state, or an
error that says what would be right. Next: `ops/modules.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from importlib import import_module
from time import monotonic

from msgspec import Struct

from switchboard.app.front_door import WorkerFrontDoor
from switchboard.app.login_desk import Questions, SettingsDesk
from switchboard.app.mail_desk import WorkerMailDesk
from switchboard.app.ops.modules import make_trial_modules, module_settings, secrets_of
from switchboard.app.settings import Settings
from switchboard.app.wiring import open_runtime
from switchboard.core.text.words import offer
from switchboard.domain.errors import InvalidInput, NotFound, Unavailable
from switchboard.modules.kernel.grants import modules_in_use
from switchboard.modules.kernel.manifests import GROUP, Unusable, find_manifest, find_manifests
from switchboard.modules.kernel.states import ModuleState
from switchboard.ports.login_desk import LOGIN_DESK
from switchboard.ports.mail_desk import MAIL_DESK
from switchboard.ports.module import ModuleContext, ModuleManifest
from switchboard.store.modules.opening import ModuleRooms
from switchboard.store.people.people import load as load_people
from switchboard.transport.plug_ins import plug_ins

_LogIn = Callable[[ModuleContext], Awaitable[None]]


class TriedModule(Struct, frozen=True):
    """What became of a module that was opened, and closed again, and how long opening took."""

    opened: ModuleState
    tools: tuple[str, ...]
    seconds: float


async def try_module(settings: Settings, name: str) -> TriedModule:
    """Open a module here, with those of butlers that it needs, and close them.

    Raises NotFound for one that is not installed, and ConfigurationError.
    """
    manifest = await _find_installed(name)
    async with open_runtime(settings) as runtime, runtime.closing:
        modules = make_trial_modules(runtime)
        began = monotonic()
        used = modules_in_use(runtime.rule_book.rules.members.values())
        await modules.look(modules_to_open(name, await asyncio.to_thread(find_manifests, {*used, name})))
        state = modules.state_of(name)
        tools = tuple(tool.spec.name for tool in manifest.tools if tool.spec.name not in state.left_out)
        return TriedModule(state, tools if state.state == "open" else (), monotonic() - began)


def modules_to_open(name: str, manifests: Mapping[str, ModuleManifest]) -> Sequence[str]:
    """This module, those that offer what it needs, and what these need in turn."""
    wanted = [name]
    for one in wanted:  # which grows meanwhile
        needs = {*manifests[one].needs}
        wanted += [other for other in manifests if other not in wanted and needs & {*manifests[other].offers}]
    return wanted


async def log_in(settings: Settings, kind: str, questions: Questions) -> str:
    """Run the wizard for a kind of accounts, or of a module that has only one kind; returns the module's name.

    Raises NotFound for what no installed module logs in, InvalidInput, and what the wizard raises.
    """
    manifest, place = await _find_wizard(kind)
    async with open_runtime(settings) as runtime, runtime.closing:
        rooms = ModuleRooms(runtime.database)
        failures = await rooms.migrate([manifest])
        if why := failures.get(manifest.name):
            raise Unavailable(f"the tables of the module {manifest.name!r} cannot be made: {why}")
        desk = SettingsDesk(questions, settings, await load_people(runtime.database))
        known = (module_settings(settings, manifest), rooms.stores(manifest), secrets_of(manifest))
        needs = {LOGIN_DESK: desk, MAIL_DESK: WorkerMailDesk(runtime, WorkerFrontDoor(runtime))}
        await _load_wizard(manifest, place)(ModuleContext(*known, needs))
    return manifest.name


async def _find_wizard(kind: str) -> tuple[ModuleManifest, str]:
    """Who logs in this kind of accounts, and where the function is."""
    manifests = await asyncio.to_thread(find_manifests, plug_ins(GROUP).names)
    kinds = {name: (one, place) for one in manifests.values() for name, place in one.logs_in.items()}
    if kind in kinds:
        return kinds[kind]
    if kind not in manifests and kind not in plug_ins(GROUP).names:
        known = {*kinds, *(name for name, one in manifests.items() if one.logs_in)}
        raise NotFound(f"no module logs in {kind!r}{offer(kind, known)}")
    manifest = await _find_installed(kind)
    if len(manifest.logs_in) > 1:
        raise InvalidInput(
            f"the module {kind!r} has accounts of several kinds; give one: {', '.join(manifest.logs_in)}"
        )
    for place in manifest.logs_in.values():
        return manifest, place
    raise InvalidInput(f"the module {kind!r} has no accounts to log in; its settings are in [modules.{kind}]")


async def _find_installed(name: str) -> ModuleManifest:
    found = await asyncio.to_thread(find_manifest, name)
    if isinstance(found, Unusable):
        raise NotFound(found.why)
    return found


def _load_wizard(manifest: ModuleManifest, place: str) -> _LogIn:
    package, _, function = place.partition(":")
    try:
        found: _LogIn = getattr(import_module(package), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidInput(f"{place} of the module {manifest.name!r} cannot be loaded: {error}") from error
    return found
