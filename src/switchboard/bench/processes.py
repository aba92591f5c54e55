"""What processes take, as Linux reports it: memory in proportion to who shares it, and CPU.

Called by `footprint.py`. In: process ids; out: figures by kind of process. A process that has ended counts for nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from msgspec import Struct

_PROC: Final = Path("/proc")
_GONE: Final = (FileNotFoundError, ProcessLookupError)


class ProcessUsage(Struct, frozen=True):
    """Of processes of a kind: how many, and their memory (PSS) in 10^6 bytes."""

    processes: int
    memory_mb: float


def tree(*roots: int) -> set[int]:
    """These processes and all that descend from them."""
    parents = {}
    for entry in _PROC.iterdir():
        if entry.name.isdigit():
            with suppress(*_GONE):
                parents[int(entry.name)] = int(_stat(int(entry.name))[1])
    found, new = set[int](), set(roots)
    while new:
        found |= new
        new = {pid for pid, parent in parents.items() if parent in new} - found
    return found


def usage(pids: Iterable[int]) -> Mapping[str, ProcessUsage]:
    """By kind of process, the largest first."""
    kinds: dict[str, ProcessUsage] = {}
    for pid in pids:
        with suppress(*_GONE):
            kind, size = _kind(pid), proportional_mb(pid)
            before = kinds.get(kind, ProcessUsage(0, 0.0))
            kinds[kind] = ProcessUsage(before.processes + 1, before.memory_mb + size)
    return dict(sorted(kinds.items(), key=lambda one: -one[1].memory_mb))


def proportional_mb(pid: int) -> float:
    """The process's own memory, and its share of what it has in common with others (PSS), in 10^6 bytes."""
    lines = (_PROC / f"{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) * 1024 / 1e6


def cpu_s(pids: Iterable[int]) -> float:
    """CPU seconds that they have used so far, and children that have ended."""
    ticks = 0
    for pid in pids:
        with suppress(*_GONE):
            ticks += sum(map(int, _stat(pid)[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def _stat(pid: int) -> list[str]:
    """The fields after the name, which may contain anything: state, parent, ..."""
    return (_PROC / f"{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()


def _kind(pid: int) -> str:
    words = (_PROC / f"{pid}/cmdline").read_bytes().decode(errors="replace").strip("\0").split("\0")
    if words[0].startswith("postgres: "):
        return "connections of PostgreSQL" if "[local]" in words[0] else "other processes of PostgreSQL"
    if Path(words[0]).name == "postgres":
        return "PostgreSQL itself"
    if "connect" in words:
        return "connector"
    return "server and worker" if "up" in words else "other"
