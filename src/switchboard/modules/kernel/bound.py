"""A tool of a module, bound to the module that is open, as turns, plans and calls have it.

`opened.py` makes one for each tool of a butler. In: arguments and a scope; out: outcomes of a limited size, whatever
the module does. Next: `tools/calls.py`, which limits the time of calls.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from switchboard.domain.json_values import JsonMapping
from switchboard.ports.module import Module, ModuleTool
from switchboard.ports.tools import PreparedCall, ToolOutcome, ToolScope, ToolSpec

_T = TypeVar("_T")

MOST_RESULT: Final = 1_000_000
"""Characters of a result. The model sees far less of it, and the rest is kept in a file."""
MOST_FOUND: Final = 100
"""Entries of each kind that an outcome may have besides its text."""


class ModuleCaller(Struct, frozen=True):
    """The opened module, and what stands around its calls: `around` runs each. `grant`: as in `ToolScope`."""

    module: Module
    grant: object
    around: Callable[[Awaitable[_T]], Awaitable[_T]]


class BoundTool(Struct, frozen=True):
    """See `switchboard.ports.tools.Tool`. `module_name`: that of its module."""

    tool: ModuleTool
    caller: ModuleCaller
    module_name: str

    @property
    def spec(self) -> ToolSpec:
        """As in the manifest."""
        return self.tool.spec

    @property
    def core(self) -> bool:
        """Whether models are offered it without asking for it."""
        return self.tool.core

    async def call(self, arguments: JsonMapping, scope: ToolScope) -> ToolOutcome:
        """As in the port."""
        scope = replace(scope, grant=self.caller.grant)
        outcome: object = await self.caller.around(self.tool.run(self.caller.module, arguments, scope))
        return _bound_outcome(outcome) if isinstance(outcome, ToolOutcome) else _not_an_outcome(self.spec.name, outcome)


class PreparingTool(BoundTool, frozen=True):
    """The same, of a tool whose calls are prepared; see `switchboard.ports.tools.Prepares`."""

    async def prepare(self, arguments: JsonMapping, scope: ToolScope) -> PreparedCall | ToolOutcome:
        """As in the port."""
        look_up = self.tool.prepare
        if look_up is None:
            return PreparedCall(self.spec.effect, self.spec.risk)
        scope = replace(scope, grant=self.caller.grant)
        found: object = await self.caller.around(look_up(self.caller.module, arguments, scope))
        if isinstance(found, PreparedCall):
            return found
        return _bound_outcome(found) if isinstance(found, ToolOutcome) else _not_an_outcome(self.spec.name, found)


def bind_tool(tool: ModuleTool, caller: ModuleCaller, module_name: str) -> BoundTool:
    """The tool of an opened module."""
    return (BoundTool if tool.prepare is None else PreparingTool)(tool, caller, module_name)


def _bound_outcome(outcome: ToolOutcome) -> ToolOutcome:
    """The outcome without what no turn could carry."""
    text = outcome.text
    if len(text) > MOST_RESULT:
        text = f"{text[:MOST_RESULT]}\n[cut off: the result had {len(text)} characters]"
    return replace(
        outcome,
        text=text,
        attachments=outcome.attachments[:MOST_FOUND],
        urls=outcome.urls[:MOST_FOUND],
        remembered=outcome.remembered[:MOST_FOUND],
    )


def _not_an_outcome(name: str, result: object) -> ToolOutcome:
    return ToolOutcome(f"{name} failed: it returned {type(result).__name__}; that is a defect of the tool", ok=False)
