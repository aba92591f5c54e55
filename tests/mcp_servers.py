"""MCP servers for tests: the rogue one as the settings name it, and what it was called with."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace

from switchboard.tools.mcp_spec import ALL, ServerSpec
from tests.rogue_mcp import a_tool
from tests.waiting import eventually

ROGUE: Final = Path(__file__).with_name("rogue_mcp.py")
OPEN: Final = Path("/proc/self/fd")


@dataclass(frozen=True, slots=True)
class Rogue:
    """A rogue server that has not been started, in a directory of its own."""

    directory: Path
    name: str = "rogue"

    @property
    def file(self) -> Path:
        return self.directory / f"{self.name}.json"

    @property
    def notes(self) -> Path:
        return self.directory / f"{self.name}.notes"

    def offers(self, *tools: str | dict[str, Any]) -> None:
        """What it lists from now on."""
        self.file.write_text(json.dumps([a_tool(tool) if isinstance(tool, str) else tool for tool in tools]))

    def spec(self, **more: Any) -> ServerSpec:
        command = (sys.executable, "-I", "-S", str(ROGUE), str(self.file), str(self.notes))
        return replace(ServerSpec(self.name, command, butlers=(ALL,)), **more)

    @property
    def calls(self) -> list[dict[str, Any]]:
        """The parameters of all calls that have reached it."""
        return [json.loads(line) for line in self.notes.read_text().splitlines()] if self.notes.exists() else []


def a_rogue(directory: Path, *tools: str | dict[str, Any], name: str = "rogue") -> Rogue:
    made = Rogue(directory, name)
    made.offers(*tools)
    return made


def running(marks: Iterable[str]) -> list[int]:
    """The processes with one of these texts in their command lines."""
    texts = [mark.encode() for mark in marks]
    return [int(one.name) for one in Path("/proc").iterdir() if one.name.isdigit() and _mentions(one, texts)]


async def begun(mark: str) -> None:
    """Wait for the one process: until its `exec`, a program that a shell has forked has the words of the shell."""

    async def one_runs() -> bool:
        return len(running([mark])) == 1

    await eventually(one_runs)


def keepers() -> list[int]:
    """The keepers that this process has started; other tests have some of their own meanwhile."""
    return [pid for pid in running(["keeper.py"]) if _parent_of(pid) == os.getpid()]


def _parent_of(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def _mentions(process: Path, texts: list[bytes]) -> bool:
    try:
        line = (process / "cmdline").read_bytes()
    except OSError:
        return False
    return int(process.name) != os.getpid() and any(text in line for text in texts)


def without(name: str, directory: Path) -> Callable[[], bool]:
    """Whether nothing runs any more that was started in a directory."""
    return lambda: not running([f"{directory}/{name}"])
