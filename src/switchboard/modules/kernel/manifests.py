"""Which modules are installed, and what they say of themselves; nothing of their field is imported for it.

Called wherever tools of modules are listed or checked, in servers and workers. In: names of modules; out: manifests,
each loaded once, or why there is none. Next: `grants.py` for what a butler has of them, `opening.py` for opening them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Final

from msgspec import Struct

from switchboard.core.text.words import offer
from switchboard.modules.kernel.foreign import ForeignFailure, call_foreign_now
from switchboard.ports.module import ModuleManifest
from switchboard.transport.plug_ins import plug_ins

GROUP: Final = "switchboard.modules"
"""The entry points that name manifests."""
_LOADING_S: Final = 10.0
"""Seconds that a manifest may take to be imported."""


class Unusable(Struct, frozen=True):
    """Why a module cannot be used at all, as a clause. `unknown`: nothing of this name is installed."""

    why: str
    unknown: bool = False


@cache
def find_manifest(name: str) -> ModuleManifest | Unusable:
    """The manifest of a module. It is imported at the first call, whatever that does."""
    entries = plug_ins(GROUP)
    if name not in entries.names:
        return Unusable(f"there is no module {name!r}{offer(name, sorted(entries.names))}", unknown=True)
    entry = entries[name]
    try:
        found = call_foreign_now(entry.load, _LOADING_S)
    except ForeignFailure as failure:
        return Unusable(f"the module {name} ({entry.value}) cannot be loaded: {failure}")
    if not isinstance(found, ModuleManifest):
        return Unusable(f"{entry.value} is no manifest of a module")
    if found.name != name:
        return Unusable(f"{entry.value} is the manifest of a module {found.name!r}, and its entry point {name!r}")
    return found


def find_manifests(names: Iterable[str]) -> Mapping[str, ModuleManifest]:
    """The manifests of those modules that can be used, by name."""
    found = {name: find_manifest(name) for name in sorted(names)}
    return {name: one for name, one in found.items() if isinstance(one, ModuleManifest)}
