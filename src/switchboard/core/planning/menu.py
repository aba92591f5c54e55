"""What a plan may use: tools, specialists, other butlers, and the URLs and paths that people wrote. Pure.

`start.py` makes one per turn. Prompts and the form that a model fills in are made from it, and `check.py` checks
plans against it. Next: `form.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from switchboard.core.planning.guard import Guard, asks_after_foreign, guard_of, is_read_only
from switchboard.core.turns.frozen import FrozenTool
from switchboard.ports.tools import AfterForeign

SPECIALIST_TASKS: Final = ("synthesize", "analyze", "write")


class PlanReach(Struct, frozen=True, kw_only=True):
    """`urls` and `paths` are those of the message, `more_urls` and `more_paths` of earlier turns and the settings.

    `subagents`: butlers and teams that may answer instead, with their descriptions.
    """

    subagents: Mapping[str, str] = field(default_factory=dict)
    urls: tuple[str, ...] = ()
    more_urls: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    more_paths: tuple[str, ...] = ()


class Menu(PlanReach, frozen=True):
    """`own`: names of tools whose results contain nothing from outside.

    `after_foreign`: what people are asked about once others' words were read.
    """

    tools: tuple[FrozenTool, ...] = ()
    own: frozenset[str] = frozenset()
    after_foreign: AfterForeign = "all"

    @property
    def guard(self) -> Guard:
        """The guard for these tools."""
        return guard_of(self.tools, self.own, self.after_foreign)

    @property
    def all_urls(self) -> tuple[str, ...]:
        """Those that may be used, the message's first."""
        return tuple(dict.fromkeys((*self.urls, *self.more_urls)))

    @property
    def all_paths(self) -> tuple[str, ...]:
        """Those that may be used, the message's first."""
        return tuple(dict.fromkeys((*self.paths, *self.more_paths)))

    def tool(self, name: str) -> FrozenTool | None:
        """The tool with this name."""
        for tool in self.tools:  # a generator would cost twice as much, and each step asks several times
            if tool.name == name:
                return tool
        return None

    def after_outside(self) -> Menu:
        """What reviews and tool loops may use once others' words were read: tools that change nothing, or that nobody
        is asked about then, with the message's own URLs and paths, and no other butlers.
        """
        rule = self.after_foreign
        tools = tuple(tool for tool in self.tools if is_read_only(tool) or not asks_after_foreign(rule, tool))
        return replace(self, tools=tools, subagents={}, more_urls=(), more_paths=())
