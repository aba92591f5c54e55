"""Watches one sandbox from start to end: sets its limits, releases the command, then checks its usage.

`run.py` starts a watchdog for each command. The kernel enforces the limits (`limits.py`). What it cannot count is
checked here every 200 ms: the workspace on disk and, without a control group, the memory of all processes together. A
command that uses too much is killed with everything that it has started. Between two checks it can exceed its limits;
the memory is freed when it is killed.
"""

from __future__ import annotations

import asyncio
import errno
import os
import re
import select
import signal
import stat
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from msgspec import Struct

from switchboard.sandbox.cgroups import CommandLimits, ControlGroup, Parents
from switchboard.sandbox.enclosure import RELEASE
from switchboard.sandbox.limits import Allowed, hold
from switchboard.trees import TreeEntry, walk

PERIOD_S: Final = 0.2
UNLIMITED: Final = "its limits could not be set"
MOST_ENTRIES: Final = 100_000
"""Files and directories that a workspace may hold."""
_UNREADABLE: Final = "the workspace had a directory that may not be looked through (chmod u+rx makes it one)"
_MOVED: Final = "the workspace had directories far inside each other that were moved all the time"
MOST_DEPTH: Final = 64
"""Directories that a workspace may have inside each other."""
MOST_LENGTH: Final = 2048
"""Bytes of the path of a directory in a workspace."""
_OPENED: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_RESCAN_S: Final = 2.0
_SLACK: Final = 1024**2
_MUCH: Final = 16 * 1024**2
"""Bytes by which a disk may fill before the workspace is scanned again."""
_MANY: Final = 10_000
_CHILD: Final = re.compile(rb'"child-pid"\s*:\s*(\d+)')
_HEIR: Final = ("/bin/sh", "-c", 'read -r pid || exit; read -r over || kill -9 "$pid"')
_FIELD: Final = re.compile(rb"^(VmRSS|VmSwap|Threads):\s*(\d+)", re.MULTILINE)
_SHARE: Final = re.compile(rb"^(?:Pss|SwapPss):\s*(\d+)", re.MULTILINE)


class _Excess(Exception):
    """A limit was exceeded; the message says which."""


class WatchdogPipes(Struct, frozen=True):
    """Pipes to and from bwrap: the descriptor in which it reports its process, and the one that releases this."""

    told: int
    release: int


class Watchdog:
    """Watches one sandbox from its start; `why` says why it was killed, or is empty.

    `over` is set when nothing inside is left. `idle`: nobody waits for a command, so the disk is scanned only when it
    fills. `parents`: where control groups can be made, if possible.
    """

    def __init__(self, lines: WatchdogPipes, workspace: Path, allowed: Allowed, parents: Parents | None) -> None:
        self._lines = lines
        self._disk = _Disk(workspace, allowed.disk)
        self._allowed = allowed
        self._parents = parents
        self._loop = asyncio.get_running_loop()
        self._stopping = _Signal()
        self.over = asyncio.Event()
        self.idle = False
        self.why = ""

    def new_excess(self) -> str:
        """What was left in the workspace that is too deep, and not said before; empty if nothing. Takes a while."""
        return self._disk.new_excess()

    def start(self) -> None:
        """Start watching in a thread. Raises RuntimeError if no thread can be started."""
        threading.Thread(target=self._watch_program, name="watches a sandbox", daemon=True).start()

    def stop(self) -> None:
        """Kill everything that is left."""
        self._stopping.set()

    def _watch_program(self) -> None:
        try:
            found = _CHILD.search(_all_of(self._lines.told))
            if found:
                with suppress(ProcessLookupError):
                    self._watch_process(int(found[1]))
        finally:
            self._stopping.close()
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self.over.set)

    def _watch_process(self, pid: int) -> None:
        """Watch the first process inside, which waits to be released: when it ends, all others end."""
        process = os.pidfd_open(pid)
        try:
            self._hold_and_watch(pid, process)
        except ProcessLookupError:  # bwrap has failed, and says why
            pass
        except OSError as error:
            self.why = f"{UNLIMITED}: {error.strerror}"
        finally:
            _kill_process(process)
            os.close(process)

    def _hold_and_watch(self, pid: int, process: int) -> None:
        group = hold(pid, self._allowed, self._parents)
        try:
            with _survived_by_nothing(pid):
                try:
                    self._disk.new_excess()  # what others have left
                    os.write(self._lines.release, RELEASE)
                    self._watch_held(_Taken(pid, group, self._allowed.totals), process)
                finally:
                    _kill_process(process)
        finally:
            _kill_process(process)
            if group:
                self.why = self.why or group.excess()
                group.remove()

    def _watch_held(self, taken: _Taken, process: int) -> None:
        ended = select.poll()
        ended.register(process, select.POLLIN)
        ended.register(self._stopping.descriptor, select.POLLIN)
        while not ended.poll(0) and not self._exceeds_limits(taken):
            ended.poll(1000 * PERIOD_S)

    def _exceeds_limits(self, taken: _Taken) -> bool:
        try:
            taken.check()
            self._disk.check(taken.pid, self._allowed.totals.processes, self.idle)
        except _Excess as excess:
            self.why = str(excess)
        return bool(self.why)


class _Signal:
    """A signal that a thread can wait for together with other descriptors."""

    def __init__(self) -> None:
        self.descriptor: Final = os.eventfd(0, os.EFD_CLOEXEC)
        self._lock = threading.Lock()
        self._closed = False

    def set(self) -> None:
        with self._lock:
            if not self._closed:
                os.eventfd_write(self.descriptor, 1)

    def close(self) -> None:
        """Close the descriptor: nobody waits any more."""
        with self._lock:
            self._closed = True
            os.close(self.descriptor)


@contextmanager
def _survived_by_nothing(pid: int) -> Iterator[None]:
    """If we die within this block, a shell kills the process: it notices by the end of a pipe. Raises OSError."""
    null = subprocess.DEVNULL
    with subprocess.Popen(_HEIR, stdin=subprocess.PIPE, stdout=null, stderr=null, start_new_session=True) as heir:
        assert heir.stdin is not None  # noqa: S101 (it was asked for)
        os.write(heir.stdin.fileno(), f"{pid}\n".encode())
        try:
            yield
        finally:
            os.write(heir.stdin.fileno(), b"over\n")


def _kill_process(process: int) -> None:
    """Kill the process of a descriptor, and wait until it has ended, and with it everything inside."""
    with suppress(ProcessLookupError):
        signal.pidfd_send_signal(process, signal.SIGKILL)
    ended = select.poll()
    ended.register(process, select.POLLIN)
    ended.poll()


class _Taken:
    """What a process and its descendants use together; for those in a control group, the kernel reports it."""

    def __init__(self, pid: int, group: ControlGroup | None, totals: CommandLimits) -> None:
        self.pid = pid
        self._group = group
        self._totals = totals
        self._was_full = False

    def check(self) -> None:
        """Raises `_Excess`."""
        if self._group and (excess := self._group.excess()):
            raise _Excess(excess)
        if not (self._group and self._group.memory):
            self._check_processes([*_family_of(self.pid, self._totals.processes)])

    def _check_processes(self, pids: list[int]) -> None:
        memory = tasks = 0
        for pid in pids:
            fields = dict(_FIELD.findall(_read_bytes(f"/proc/{pid}/status")))
            memory += 1024 * (int(fields.get(b"VmRSS", 0)) + int(fields.get(b"VmSwap", 0)))
            tasks += int(fields.get(b"Threads", 0))
        if tasks > self._totals.processes:
            raise _Excess(f"it had more than {self._totals.processes} processes")
        full = tasks == self._totals.processes
        if full and self._was_full:  # it would only waste processor time
            raise _Excess(f"it wanted more than {self._totals.processes} processes")
        self._was_full = full
        # Shared memory was counted for each process. Asking for the proportional shares takes longer.
        if memory > self._totals.memory and _share_of_memory(pids) > self._totals.memory:
            raise _Excess(f"it took more than {self._totals.memory} bytes of memory")


def _family_of(pid: int, most: int) -> Iterator[int]:
    """A process and its descendants. Raises `_Excess`."""
    waiting, seen = [pid], {pid}
    while waiting:
        yield (one := waiting.pop())
        for task in _names_in(f"/proc/{one}/task"):
            below = {int(child) for child in _read_bytes(f"/proc/{one}/task/{task}/children").split()} - seen
            waiting += below
            seen |= below
        if len(seen) > most:
            raise _Excess(f"it had more than {most} processes")


def _share_of_memory(pids: list[int]) -> int:
    kib = (int(share) for pid in pids for share in _SHARE.findall(_read_bytes(f"/proc/{pid}/smaps_rollup")))
    return 1024 * sum(kib)


class _Disk:
    """The workspace, scanned when its disk has filled by much, or after a while."""

    def __init__(self, workspace: Path, most: int) -> None:
        self._workspace = workspace
        self._most = most
        self._first = True
        self._due = 0.0
        self._room = 0
        self._free = (0, 0)
        self._shape = _Shape()

    def new_excess(self) -> str:
        """What is too deep, said once: from then on it is permitted, since commands must be able to remove it."""
        found, shape = "", self._shape
        for one in _entries_of(self._workspace, lenient=True, files=False):
            if excess := self._shape.excess(one):
                found, shape = found or excess, shape.with_room_for(one)
        self._shape = shape
        return found

    def check(self, pid: int, processes: int, idle: bool) -> None:
        """Check the usage; `pid` and its descendants may keep removed files open. Raises `_Excess`."""
        free, names = self._free_now()
        filled = self._free[0] - free >= max(self._room // 2, _MUCH) or self._free[1] - names >= _MANY
        if not (filled or self._first or (time.monotonic() >= self._due and not idle)):
            return
        began = time.monotonic()
        used = _bytes_used(self._workspace, self._shape, self._first)
        used += _bytes_unnamed([*_family_of(pid, processes)], self._workspace)
        # Commands may still clean up a workspace that is already full.
        self._most = max(self._most, used + _SLACK) if self._first else self._most
        self._first, self._room, self._free = False, self._most - used, (free, names)
        self._due = time.monotonic() + max(_RESCAN_S, 20 * (time.monotonic() - began))
        if self._room < 0:
            raise _Excess(f"the workspace took more than {self._most} bytes")

    def _free_now(self) -> tuple[int, int]:
        found = os.statvfs(self._workspace)
        return found.f_bfree * found.f_frsize, found.f_ffree


class _Shape(Struct, frozen=True):
    """How deep directories may be inside each other, and how many bytes a path may have."""

    depth: int = MOST_DEPTH
    length: int = MOST_LENGTH

    def excess(self, one: TreeEntry) -> str:
        """What is wrong with a directory; empty if nothing."""
        if one.depth > self.depth:
            return f"the workspace had more than {self.depth} directories inside each other"
        return f"the workspace had paths of more than {self.length} bytes" if one.length > self.length else ""

    def with_room_for(self, one: TreeEntry) -> _Shape:
        """The shape in which a directory is permitted."""
        return _Shape(max(self.depth, one.depth), max(self.length, one.length))


def _bytes_used(workspace: Path, shape: _Shape, lenient: bool) -> int:
    """Bytes on disk; a file with several names counts once. Raises `_Excess` for too deep directories.

    Unless `lenient`, also for too many or hidden entries.
    """
    seen: set[tuple[int, int]] = set()
    total = 0
    for count, one in enumerate(_entries_of(workspace, lenient), 1):
        if one.is_directory and (excess := shape.excess(one)):
            raise _Excess(excess)
        with _looked_at(lenient):
            status = one.status()
            if status.st_nlink == 1 or (status.st_dev, status.st_ino) not in seen:
                seen.add((status.st_dev, status.st_ino))
                total += status.st_blocks * 512
        if count > MOST_ENTRIES and not lenient:
            raise _Excess(f"the workspace had more than {MOST_ENTRIES} files and directories")
    return total


def _entries_of(workspace: Path, lenient: bool, *, files: bool = True) -> Iterator[TreeEntry]:
    """The entries of the workspace. Raises `_Excess`, unless `lenient`, if files could be hidden in it."""

    def refused(error: OSError) -> None:
        if isinstance(error, PermissionError) and not lenient:
            raise _Excess(_UNREADABLE)

    try:
        root = os.open(workspace, _OPENED)
    except OSError as error:
        refused(error)
        return
    try:
        yield from walk(root, refused, files=files)
    except OSError as error:
        if error.errno == errno.ESTALE and not lenient:
            raise _Excess(_MOVED) from None
    finally:
        os.close(root)


@contextmanager
def _looked_at(lenient: bool) -> Iterator[None]:
    """Ignore entries that have disappeared. Raises `_Excess` for those that the commands' user may not read."""
    try:
        yield
    except PermissionError:
        if not lenient:
            raise _Excess(_UNREADABLE) from None
    except OSError:
        pass


def _bytes_unnamed(pids: list[int], workspace: Path) -> int:
    """Bytes of files on the workspace's disk that were removed but are still open."""
    device = workspace.stat().st_dev
    seen: dict[int, int] = {}
    for pid in pids:
        for number in _names_in(f"/proc/{pid}/fd"):
            with suppress(OSError):
                status = Path(f"/proc/{pid}/fd/{number}").stat()
                if status.st_dev == device and stat.S_ISREG(status.st_mode) and status.st_nlink == 0:
                    seen[status.st_ino] = status.st_blocks * 512
    return sum(seen.values())


def _all_of(pipe: int) -> bytes:
    """Everything written until the other end is closed."""
    data = b""
    while piece := os.read(pipe, 4096):
        data += piece
    return data


def _names_in(directory: str) -> list[str]:
    try:
        return [entry.name for entry in os.scandir(directory)]
    except OSError:  # it has ended
        return []


def _read_bytes(file: str) -> bytes:
    try:
        return Path(file).read_bytes()
    except OSError:  # it has ended
        return b""
