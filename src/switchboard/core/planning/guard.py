"""What may still be done once others' words were read: pages and mails may contain instructions. Pure.

Plans and models ask one function, `asks_after_foreign`, whether a person must approve a call then: `machine.py` and
`menu.py` through a `Guard`, `agents/turns/asking.py` directly. Which words are foreign is told by
`core/turns/entries.py`; the cases are in `docs/tools.md`. Next: `menu.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from switchboard.core.turns.entries import comes_from_outside, read_outside
from switchboard.core.turns.frozen import FrozenTool
from switchboard.domain.planning import PipelineStep
from switchboard.ports.history import EntryCall
from switchboard.ports.tools import AfterForeign


def is_read_only(tool: FrozenTool) -> bool:
    """Whether a tool changes nothing: repeating it is harmless, and the order of its calls makes no difference."""
    return tool.effect == "idempotent" and not tool.ordered


def asks_after_foreign(rule: AfterForeign, tool: FrozenTool) -> bool:
    """Whether a person must approve a call of a tool once others' words were read, because of these.

    `never`: none. `outside`: what has effects outside, or sends a query there. `all`: whatever does more than read,
    and queries. What needs an approval in any case is not decided here.
    """
    if rule == "never":
        return False
    if tool.reach == "query":
        return True
    return not is_read_only(tool) and (rule == "all" or tool.reach == "outside")


class Guard(Struct, frozen=True):
    """`readers`: names of tools that only read. `own`: tools whose results contain nothing from outside. `asked`: tools
    whose every call needs approval, whatever was read. `told`: whether the plan itself may follow others' instructions.

    `wary`: tools whose calls need approval once others' words were read.
    """

    readers: frozenset[str] = frozenset()
    own: frozenset[str] = frozenset()
    asked: frozenset[str] = frozenset()
    told: bool = False
    wary: frozenset[str] = frozenset()

    def reads(self, step: PipelineStep, calls: Sequence[EntryCall] | None = None) -> bool:
        """Whether what a step has read may come from outside.

        `calls`: those of a specialist, as far as they are known. One that has called no tool has read nothing new.
        """
        if step.action == "tool":
            return comes_from_outside(step.target, step.args, self.own)
        if step.action != "specialist_with_tools":
            return False
        return calls is None or any(read_outside(one, self.own) for one in calls)

    def acts(self, step: PipelineStep) -> bool:
        """Whether a step has effects. A specialist's tool calls are judged one by one, by what was read until then."""
        return step.action == "tool" and step.target not in self.readers

    def asks(self, step: PipelineStep, *, read_outside: bool) -> bool:
        """Whether somebody must approve a step before it is started."""
        if step.action != "tool":
            return False
        return step.target in self.asked or (step.target in self.wary and (read_outside or self.told))


def guard_of(tools: Iterable[FrozenTool], own: Iterable[str] = (), rule: AfterForeign = "all") -> Guard:
    """The guard for the tools of a turn."""
    there = tuple(tools)
    return Guard(
        frozenset(tool.name for tool in there if is_read_only(tool)),
        frozenset(own),
        frozenset(tool.name for tool in there if tool.approval),
        wary=frozenset(tool.name for tool in there if asks_after_foreign(rule, tool)),
    )
