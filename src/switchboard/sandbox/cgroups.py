"""Control groups (cgroups): the kernel limits what all processes in a group use together.

`limits.py` makes one for each command, if this machine allows it: version 2 in a group that was delegated to us, or
version 1 as root. The files are described in `Documentation/admin-guide/cgroup-v2.rst` and `cgroup-v1/` of Linux.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final
from uuid import uuid4

from msgspec import Struct

_WANTED: Final[tuple[str, ...]] = ("pids", "memory", "cpu")
"""The first is required. With `cpu`, all processes of a command together get as much CPU time as one of ours."""
_PREFIX: Final = "switchboard-"
_LEFT_S: Final = 60.0
"""An empty group that is older than this was left behind by a killed process."""
_TRIES: Final = 200
_PAUSE_S: Final = 0.005
_EVENTS: Final = re.compile(r"^(oom_kill|max) (\d+)$", re.MULTILINE)


class CommandLimits(Struct, frozen=True):
    """Limits for all processes of a command together: bytes of memory, and the number of processes and threads."""

    memory: int
    processes: int


class Parents(Struct, frozen=True):
    """Where groups can be made: a directory for each controller; in version 2 the same for all."""

    directories: Mapping[str, Path]
    version: int

    @property
    def memory(self) -> bool:
        """Whether memory can be limited too."""
        return "memory" in self.directories

    def group(self, totals: CommandLimits, pid: int) -> ControlGroup:
        """A new group with these limits, for a process and its future children. Raises OSError."""
        for parent in {*self.directories.values()}:
            _sweep_groups(parent)
        name = f"{_PREFIX}{uuid4().hex}"
        made = ControlGroup({controller: parent / name for controller, parent in self.directories.items()}, totals)
        try:
            made.make()
            made.add(pid)
        except OSError:
            made.remove()
            raise
        return made


class ControlGroup:
    """The control group of one command."""

    def __init__(self, directories: Mapping[str, Path], totals: CommandLimits) -> None:
        self._directories = directories
        self._distinct = [*dict.fromkeys(directories.values())]
        self._totals = totals
        self.memory: Final = "memory" in directories

    def make(self) -> None:
        """Create it with its limits. Raises OSError."""
        for directory in self._distinct:
            directory.mkdir()
        self.limit()

    def limit(self) -> None:
        """Write its limits. Raises OSError."""
        self._write_limits("pids", {"pids.max": self._totals.processes})
        if self.memory:
            versions = {"memory.max": self._totals.memory, "memory.limit_in_bytes": self._totals.memory}
            # Without these, a command could swap endlessly instead of being killed; and all are killed, not just one.
            others = {"memory.swap.max": 0, "memory.memsw.limit_in_bytes": self._totals.memory, "memory.oom.group": 1}
            self._write_limits("memory", versions | others)

    def add(self, pid: int) -> None:
        """Add a process, and with it all its future children. Raises OSError."""
        for directory in self._distinct:
            (directory / "cgroup.procs").write_text(f"{pid}")

    def excess(self) -> str:
        """The limit at which the kernel refused something or killed processes; empty if none."""
        if self.memory and self._count_events("memory", "oom_kill", ("memory.events", "memory.oom_control")):
            return f"it took more than {self._totals.memory} bytes of memory"
        if self._count_events("pids", "max", ("pids.events",)):
            return f"it wanted more than {self._totals.processes} processes"
        return ""

    def remove(self) -> None:
        """Remove it once its processes have ended, which the kernel may notice late. Blocks for up to a second."""
        for directory in self._distinct:
            for _ in range(_TRIES):
                try:
                    directory.rmdir()
                except FileNotFoundError:
                    break
                except OSError:
                    time.sleep(_PAUSE_S)
                else:
                    break

    def _write_limits(self, controller: str, values: Mapping[str, int]) -> None:
        """Write the values whose files exist in this version. Raises OSError, also if none exists."""
        directory = self._directories[controller]
        there = {name: value for name, value in values.items() if (directory / name).exists()}
        if not there:
            raise FileNotFoundError(2, "the kernel gives the group no limits", f"{directory}")
        for name, value in there.items():
            (directory / name).write_text(f"{value}")

    def _count_events(self, controller: str, event: str, files: tuple[str, ...]) -> int:
        for name in files:
            with suppress(FileNotFoundError):
                return int(dict(_EVENTS.findall((self._directories[controller] / name).read_text())).get(event, 0))
        return 0


def find_parents(process: Path = Path("/proc/self")) -> Iterator[Parents]:
    """Places where groups might be made, the best first. Only making one shows whether it is possible.

    `process`: the directory in /proc that describes this process.
    """
    mounts = [*_read_mounts(process)]
    paths = dict(_own_paths(process))
    if unified := next((mount for mount in mounts if mount.kind == "cgroup2"), None):
        yield from _unified_parents(unified, unified.directory_of(paths.get("", "/")))
    legacy = {
        controller: mount.directory_of(paths[controller])
        for controller in _WANTED
        for mount in mounts
        if mount.kind == "cgroup" and controller in mount.options and controller in paths
    }
    if "pids" in legacy:
        yield Parents(legacy, 1)


def _unified_parents(mount: _Mount, own: Path) -> Iterator[Parents]:
    above = [one for one in own.parents if one.is_relative_to(mount.point)] or [own]
    _enable_limits(above[0])
    return (Parents(dict.fromkeys(enabled, one), 2) for one in above if (enabled := _enabled_controllers(one)))


class _Mount(Struct, frozen=True):
    """A mounted hierarchy: its root in the hierarchy, and its mount point."""

    kind: str
    root: str
    point: Path
    options: tuple[str, ...]

    def directory_of(self, path: str) -> Path:
        """The directory of a group, given by its path in /proc."""
        shown = path.removeprefix(self.root) if self.root != "/" else path
        return self.point / shown.strip("/")


def _read_mounts(process: Path) -> Iterator[_Mount]:
    for line in (process / "mountinfo").read_text().splitlines():
        first, _, last = line.partition(" - ")
        kind, _, options = last.split(" ", 2)
        if kind in {"cgroup", "cgroup2"}:
            root, point = first.split(" ")[3:5]
            yield _Mount(kind, root, Path(point), tuple(options.split(",")))


def _own_paths(process: Path) -> Iterator[tuple[str, str]]:
    """Our own groups, as pairs of controller and path; the controller of version 2 is the empty name."""
    for line in (process / "cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        yield from ((controller, path) for controller in controllers.split(","))


def _enable_limits(directory: Path) -> None:
    """Enable limits for groups in a directory of version 2; errors are ignored, as we may lack permission."""
    for missing in {"memory", "pids"} - {*_enabled_controllers(directory)}:
        with suppress(OSError):  # one by one: the kernel accepts a whole line or nothing
            (directory / "cgroup.subtree_control").write_text(f"+{missing}")


def _enabled_controllers(directory: Path) -> tuple[str, ...]:
    """The controllers that groups in a directory of version 2 have."""
    with suppress(OSError):
        names = (directory / "cgroup.subtree_control").read_text().split()
        return tuple(name for name in _WANTED if name in names) if "pids" in names else ()
    return ()


def _sweep_groups(parent: Path) -> None:
    """Remove groups that killed processes left behind."""
    for left in parent.glob(f"{_PREFIX}*"):
        with suppress(OSError):
            if time.time() - left.stat().st_mtime > _LEFT_S:
                left.rmdir()
