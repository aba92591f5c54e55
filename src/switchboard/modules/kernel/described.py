"""The tools of modules as their manifests describe them, where no module is open: to check options, and to list them.

`app/ops/engines.py` uses it before a worker starts and for doctor; servers list the tools of a butler by it. Next:
`opened.py`, where they can be called.
"""

from __future__ import annotations

from collections.abc import Sequence

from switchboard.domain.routing import Member
from switchboard.modules.kernel.grants import grants_of
from switchboard.modules.kernel.manifests import find_manifest
from switchboard.ports.module import ModuleManifest, ModuleTool
from switchboard.ports.tools import Tool


def described_tools(member: Member) -> list[ModuleTool]:
    """The tools that the options of a butler grant it, in the order of its modules and their manifests."""
    found: list[ModuleTool] = []
    for name, grant in grants_of(member).items():
        manifest = find_manifest(name)
        if isinstance(manifest, ModuleManifest):
            found += [tool for tool in manifest.tools if grant.has(tool)]
    return found


class DescribedModules:
    """See `switchboard.ports.tools.Toolset`. It knows which tools a butler may have, and has none to call."""

    def may_have(self, member: Member, name: str) -> bool:
        """As in the port."""
        return any(tool.spec.name == name for tool in described_tools(member))

    async def of(self, member: Member) -> Sequence[Tool]:  # noqa: ARG002
        """As in the port."""
        return ()
