"""What becomes of a module in a worker: open, failed or quarantined, and which of its tools there are.

`opened.py` keeps a state for each module that butlers have. Shown by `switchboard doctor`, and to the butlers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import structlog
from msgspec import Struct, field

from switchboard.ports.module import Chore, Module, ModuleManifest, ModuleTool

log = structlog.get_logger(__name__)


class ModuleState(Struct, frozen=True):
    """`why`: what is wrong, as a clause, unless it is open. `left_out`: tools that are absent, and why each."""

    name: str
    state: Literal["open", "failed", "quarantined"]
    why: str = ""
    left_out: Mapping[str, str] = field(default_factory=dict)


class OpenedModule(Struct, frozen=True):
    """A module that is open in this worker, with those of its tools that have what they need."""

    manifest: ModuleManifest
    module: Module
    tools: Sequence[ModuleTool]
    left_out: Mapping[str, str]

    @property
    def state(self) -> ModuleState:
        """As others see it."""
        return ModuleState(self.manifest.name, "open", left_out=self.left_out)


def chores_of(opened: OpenedModule) -> Sequence[Chore]:
    """Its chores at present; none if it cannot say."""
    try:
        return [*opened.module.chores]
    except Exception:
        log.exception("a module cannot say what its chores are", module=opened.manifest.name)
        return ()


def tools_with_needs(manifest: ModuleManifest, needs: Mapping[str, object]) -> tuple[list[ModuleTool], dict[str, str]]:
    """The tools whose needs are there, and the others, each with the reason."""
    missing = {tool.spec.name: [need for need in tool.needs if need not in needs] for tool in manifest.tools}
    left_out = {name: f"nothing offers {', '.join(lacking)}" for name, lacking in missing.items() if lacking}
    return [tool for tool in manifest.tools if tool.spec.name not in left_out], left_out
