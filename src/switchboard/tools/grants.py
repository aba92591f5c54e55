"""Who may have a butler use which tools: its option `grants`, by audience.

`agents/turns` asks it in every turn, and the server before it lists tools of modules. It imports no tool. Next:
`registry.py` for the tools that exist.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol, TypeVar

from msgspec import Struct

from switchboard.ports.tools import Audience, ToolSpec
from switchboard.tools.memory import OF_MEMORY, OF_OWNERS

__all__ = ["OF_MEMORY", "Grants", "granted_tools", "withheld_tools"]

NOTHING: Final = frozenset[str]()


class HasSpec(Protocol):
    """A tool, or what describes one that is not open here."""

    @property
    def spec(self) -> ToolSpec: ...


_Tool = TypeVar("_Tool", bound=HasSpec)


class Grants(Struct, frozen=True):
    """The names of the tools that each audience may use; None: all except those of high risk.

    A person alone with a butler may have it remember their own words: it learns from these in any case.
    """

    owners: frozenset[str] | None = None
    others: frozenset[str] | None = OF_MEMORY - OF_OWNERS
    groups: frozenset[str] | None = NOTHING
    household: frozenset[str] | None = NOTHING

    def of(self, audience: Audience) -> frozenset[str] | None:
        """Those of one audience."""
        given = {"owners": self.owners, "others": self.others, "groups": self.groups, "household": self.household}
        return given[audience]


def granted_tools(tools: Sequence[_Tool], grants: Grants, audience: Audience) -> tuple[_Tool, ...]:
    """The tools that this audience may use, in their order."""
    named = grants.of(audience)
    return tuple(tool for tool in tools if (tool.spec.risk != "high" if named is None else tool.spec.name in named))


def withheld_tools(tools: Sequence[_Tool], grants: Grants, audience: Audience) -> tuple[_Tool, ...]:
    """The tools that are withheld from this audience only because of their high risk."""
    return tuple(tool for tool in tools if grants.of(audience) is None and tool.spec.risk == "high")
