"""The port of gates: a call of a tool that reads, or an approved command, decides whether what is due is carried out.

A module keeps a `Gate` with what it will do, and asks the `Gates` that the kernel hands it as the need `gates`. A
worker implements them over the tools and grants of the butler, without a turn and a model. Next: `front_door.py`.
"""

from __future__ import annotations

from typing import Final, Literal, Protocol

from msgspec import Struct

from switchboard.domain.json_values import JsonObject
from switchboard.ports.front_door import Origin

GATES: Final = "gates"
"""The name in the `needs` of a manifest."""
GATE_SECONDS: Final = 30.0
"""Seconds that a call may take."""


COMMAND: Final = "execute_command"
"""The tool that may be a gate although it may do anything within the sandbox: an owner approves each such gate."""


class Gate(Struct, frozen=True):
    """The call. `tainted`: the turn that made it had read what its person did not write.

    `fingerprint`: of a command and the program that it runs, as they were approved; empty for a tool that reads.
    """

    tool: str
    arguments: JsonObject
    tainted: bool = True
    fingerprint: str = ""


class GateAnswer(Struct, frozen=True):
    """What the call said: `found` something, found `nothing`, or `failed`, and then why."""

    result: Literal["found", "nothing", "failed"]
    why: str = ""


class Gates(Protocol):
    """Calls gates with the rights that the person of an origin has at that moment."""

    async def find_flaw(self, origin: Origin, gate: Gate) -> str:
        """Why a gate cannot be called, and what would be right; empty: it can. Nothing is called.

        Raises `Unavailable`.
        """
        ...

    async def fingerprint_of(self, origin: Origin, gate: Gate) -> str:
        """Of a command as it is now: another one, or another program, has another. Raises `Unavailable`."""
        ...

    async def check(self, origin: Origin, gate: Gate) -> GateAnswer:
        """Call it. Whatever the tool does is an answer. Raises `Unavailable`."""
        ...


class NoGates:
    """Where there are no tools."""

    async def find_flaw(self, origin: Origin, gate: Gate) -> str:  # noqa: ARG002
        """As in the port."""
        return "no tools can be called here"

    async def fingerprint_of(self, origin: Origin, gate: Gate) -> str:  # noqa: ARG002
        """As in the port."""
        return ""

    async def check(self, origin: Origin, gate: Gate) -> GateAnswer:
        """As in the port."""
        return GateAnswer("failed", await self.find_flaw(origin, gate))
