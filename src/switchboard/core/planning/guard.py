"""What a plan may still do once it has read something from outside: pages and mails may contain instructions. Pure.

`machine.py` asks for approval where it says so; `menu.py` offers reviews and tool loops only what it allows. Next:
`menu.py`.

Every result of a tool counts as from outside, even files of a workspace, unless the tool is listed as one that returns
only what we made ourselves.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from switchboard.core.turns.frozen import FrozenTool
from switchboard.domain.planning import PipelineStep


def is_read_only(tool: FrozenTool) -> bool:
    """Whether a tool changes nothing: repeating it is harmless, and the order of its calls makes no difference."""
    return tool.effect == "idempotent" and not tool.ordered


class Guard(Struct, frozen=True):
    """`readers`: names of tools that only read. `own`: tools whose results contain nothing from outside. `asked`: tools
    whose every call needs approval, whatever was read. `told`: whether the plan itself may follow others' instructions.
    """

    readers: frozenset[str] = frozenset()
    own: frozenset[str] = frozenset()
    asked: frozenset[str] = frozenset()
    told: bool = False

    def reads(self, step: PipelineStep) -> bool:
        """Whether the result of a step may come from outside."""
        if step.action == "tool":
            return step.target not in self.own
        return step.action == "specialist_with_tools"

    def acts(self, step: PipelineStep) -> bool:
        """Whether a step has effects. A specialist's tool calls are judged one by one, by what was read until then."""
        return step.action == "tool" and step.target not in self.readers

    def asks(self, step: PipelineStep, *, read_outside: bool) -> bool:
        """Whether somebody must approve a step before it is started."""
        wary = read_outside or self.told
        return step.action == "tool" and (step.target in self.asked or (wary and self.acts(step)))


def guard_of(tools: Iterable[FrozenTool], own: Iterable[str] = ()) -> Guard:
    """The guard for the tools of a turn."""
    there = tuple(tools)
    return Guard(
        frozenset(tool.name for tool in there if is_read_only(tool)),
        frozenset(own),
        frozenset(tool.name for tool in there if tool.approval),
    )
