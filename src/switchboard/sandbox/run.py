"""Runs a shell command in a sandbox; or says why there is no sandbox on this machine.

The tool `execute_command`, the engine `command`, `session.py` and `switchboard doctor` call it. In: a command or a
program, and a workspace; out: its output and how it ended. Whether bubblewrap works here is determined by running it
once. Next: `enclosure.py`, `watchdog.py`.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO, Final

from msgspec import Struct, structs

from switchboard.ports.sandbox import SandboxRules
from switchboard.sandbox import syscalls
from switchboard.sandbox.cgroups import CommandLimits, Parents, find_parents
from switchboard.sandbox.enclosure import (
    CONFIGURATION,
    ENVIRONMENT,
    FILES,
    LINKED,
    PROGRAMS,
    SHOWN_OF_PROC,
    Descriptors,
    Inside,
    Machine,
    Room,
    arguments,
    shell,
)
from switchboard.sandbox.limits import Allowed
from switchboard.sandbox.watchdog import UNLIMITED, Watchdog, WatchdogPipes
from switchboard.signals import default_signals
from switchboard.transport.programs import Program, ProgramExit, run_program

MOST_OUTPUT: Final = 8 * 1024**2
"""Bytes that a command may write; one that writes more is ended."""
_PROBE_S: Final = 10.0
_GONE_S: Final = 10.0
"""Seconds that the kernel may take to end killed processes."""
_PROBE: Final = """
echo it works; exec 2>/dev/null
(for i in 1 2 3 4 5 6 7 8 9 10; do sleep 30 & done) && echo without limit
"""
"""Tries to start more processes than it may have, but not many."""
_PROBE_PROCESSES: Final = 8
_WORKS: Final = b"it works\n"
_WITHOUT: Final = b"without limit\n"
_HAD_MORE: Final = f"it had more than {_PROBE_PROCESSES} processes"
_NOT_COUNTED: Final = "the kernel does not limit the processes of this user"
_ROOT_NOT_COUNTED: Final = "the kernel limits the processes of root in control groups only, and none can be made here"


class NoSandbox(Exception):
    """Why a command cannot be run."""


class CommandExit(Struct, frozen=True):
    """How a command ended: `killed` says why it was, or is empty; `status` is that of a shell.

    `left` says what it has left in the workspace that no command may leave there.
    """

    output: bytes
    status: int
    killed: str = ""
    left: str = ""


class Sandbox:
    """Runs commands within these rules."""

    def __init__(self, rules: SandboxRules) -> None:
        self._rules = rules
        self._machine: Machine | None = None
        self._parents: Parents | None = None
        self._lacking: str | None = None
        self._probing = asyncio.Lock()

    async def lacking(self) -> str:
        """Why there is no sandbox here; empty if there is one. The first call finds out, by running a command."""
        async with self._probing:
            if self._lacking is None:
                self._lacking = await self._probe_machine()
        return self._lacking

    @property
    def limits(self) -> str:
        """A description of what enforces which limits. Valid once `lacking` has returned."""
        processes, memory = f"{self._rules.processes} processes", f"{self._rules.memory // 1024**2} MiB of memory"
        if self._parents is None:
            return f"the kernel allows {processes} and each {memory}; a watchdog allows all of them together no more"
        group = f"a control group (version {self._parents.version})"
        if not self._parents.memory:
            return f"{group} allows {processes}, a watchdog {memory}"
        return f"{group} allows {processes} and {memory}"

    async def run(
        self,
        command: str,
        workspace: Path,
        disk: int,
        deadline: float | None = None,
        *,
        written: bytearray | None = None,
    ) -> CommandExit:
        """Run a command; the workspace may take `disk` bytes. Nothing outlives it. Raises `NoSandbox`, OSError.

        Raises ValueError for a command with a NUL. `deadline` in seconds. If cancelled, it kills everything; its output
        until then is in `written`.
        """
        if lacking := await self.lacking():
            raise NoSandbox(lacking)
        program = replace(_command_program(command, deadline), written=written)
        ended = await self._run(program, shell(command), self._make_room(workspace, disk))
        return structs.replace(_exit_of(ended), left=await asyncio.to_thread(ended.watchdog.new_excess))

    async def execute(self, program: Program, workspace: Path, disk: int) -> ProgramExit:
        """Run a program in its `cwd`, which is read-only. If it was killed, `errors` says why.

        It sees both directories at their real paths, and has a few variables besides its own. Raises `NoSandbox`,
        OSError, and ValueError for a NUL.
        """
        if lacking := await self.lacking():
            raise NoSandbox(lacking)
        room = self._make_room(workspace, disk)
        place = f"{room.workspace}"
        shown = f"{self._real_path(Path(program.cwd))}" if program.cwd else ""
        inside = Inside(program.argv, shown or place, place, shown)
        env = {**ENVIRONMENT, "HOME": place, **program.env}
        watched = await self._run(replace(program, env=env), inside, room)
        ended, why = watched.ended, watched.watchdog.why
        return structs.replace(ended, errors=f"killed: {why}") if why and ended.status else ended

    def _make_room(self, workspace: Path, disk: int) -> Room:
        """The room with real paths; creates the workspace. Raises `NoSandbox` if it contains hidden directories."""
        workspace.mkdir(mode=0o700, parents=True, exist_ok=True)
        return Room(self._real_path(workspace), structs.replace(self._rules, hidden=self._hidden_paths()), disk)

    def _real_path(self, directory: Path) -> Path:
        real = directory.resolve(strict=True)
        if real == Path("/") or any(one.is_relative_to(real) for one in self._hidden_paths()):
            raise NoSandbox(f"the directory {real} holds more than files of the butler: give it one of its own")
        return real

    def _hidden_paths(self) -> tuple[Path, ...]:
        return tuple([one.resolve() for one in self._rules.hidden])

    async def _probe_machine(self) -> str:
        if sys.platform != "linux":
            return "there is a sandbox on Linux only"
        if os.uname().machine != syscalls.MACHINE:
            return f"there is a sandbox on {syscalls.MACHINE} only, not on {os.uname().machine}"
        if (bwrap := shutil.which("bwrap")) is None:
            return "bubblewrap (bwrap) is not installed"
        self._machine = _look_at_machine(bwrap)
        flaw = _ROOT_NOT_COUNTED
        with tempfile.TemporaryDirectory() as empty:
            room = self._make_room(Path(empty), 1024**2)
            room = structs.replace(room, rules=structs.replace(room.rules, processes=_PROBE_PROCESSES))
            for self._parents in (*find_parents(), *(() if _is_root() else (None,))):
                if not (flaw := await self._find_flaw(room)):
                    break
        return f"{_ROOT_NOT_COUNTED} ({flaw})" if UNLIMITED in flaw and _is_root() else flaw

    async def _find_flaw(self, room: Room) -> str:
        """Why commands cannot be run within these limits; empty if they can."""
        try:
            done = _exit_of(await self._run(_command_program(_PROBE, _PROBE_S), shell(_PROBE), room))
        except OSError as error:
            return f"bubblewrap cannot be started: {error.strerror}"
        if done.output.endswith(_WITHOUT) or done.killed == _HAD_MORE:
            return _NOT_COUNTED
        return "" if done.output == _WORKS else f"bubblewrap does not work here: {done.killed or 'no output'}"

    async def _run(self, program: Program, inside: Inside, room: Room) -> _Watched:
        with ExitStack() as opened:
            ready = self._ready(inside, room, opened)
            bwrap = replace(program, argv=ready.argv, cwd="/", keep=ready.keep, started=ready.ours.close)
            # Stopped like this, bwrap reaps the processes inside, and ends. If it were killed itself, it would leave
            # them to a parent that may not reap them.
            bwrap = replace(bwrap, stop=ready.watchdog.stop)
            ready.watchdog.start()
            try:
                ended = await run_program(bwrap, grace=_GONE_S)
            finally:
                await ready.end()
        return _Watched(ended, ready.watchdog)

    async def start(self, workspace: Path, disk: int, inside: Inside, terminal: TerminalDescriptors) -> RunningCommand:
        """Start a command that runs until `close`, with a terminal. Raises `NoSandbox`, OSError."""
        if lacking := await self.lacking():
            raise NoSandbox(lacking)
        room = self._make_room(workspace, disk)
        with ExitStack() as opened, default_signals():
            ready = self._ready(inside, room, opened)
            process = subprocess.Popen(  # noqa: ASYNC220 (asyncio's own start can be cancelled halfway)
                ready.argv,
                stdin=terminal.descriptor,
                stdout=terminal.descriptor,
                stderr=terminal.descriptor,
                cwd="/",
                env=ENVIRONMENT,
                start_new_session=True,
                pass_fds=(*ready.keep, *terminal.keep),
            )
            opened.callback(process.wait)
            opened.callback(process.kill)
            ready.ours.close()
            ready.watchdog.start()
            return RunningCommand(ready, opened.pop_all())

    def _ready(self, inside: Inside, room: Room, opened: ExitStack) -> _Ready:
        """What must exist before bwrap is started; `opened` closes it."""
        assert self._machine is not None  # noqa: S101 (it was probed)
        allowed = Allowed(CommandLimits(room.rules.memory, room.rules.processes), room.disk)
        told, writing = _open_pipe(opened)
        # Also readable: otherwise, if we died, writing to the pipe would kill bwrap, and its child would wait forever.
        both = os.open(f"/proc/self/fd/{told.fileno()}", os.O_RDWR | os.O_CLOEXEC)
        ours: IO[bytes] = opened.enter_context(os.fdopen(both, "r+b", 0))
        writing.close()
        # Only we can write here, so a waiting process notices if we die.
        gate, release = _open_pipe(opened)
        os.fchmod(gate.fileno(), 0o444)  # it is opened again inside, perhaps by another user
        numbers = _open_descriptors(opened, ours.fileno(), gate.fileno())
        watchdog = Watchdog(WatchdogPipes(told.fileno(), release.fileno()), room.workspace, allowed, self._parents)
        return _Ready(arguments(self._machine, room, numbers, inside), numbers.numbers, ours, watchdog)


class TerminalDescriptors(Struct, frozen=True):
    """The descriptors of the terminal and of what else is inherited."""

    descriptor: int
    keep: tuple[int, ...] = ()


class _Watched(Struct, frozen=True):
    """How a program ended; its watchdog says what it was killed for."""

    ended: ProgramExit
    watchdog: Watchdog


class _Ready(Struct, frozen=True):
    """What bwrap is started with: arguments, descriptors, our end of its reports, and the watchdog."""

    argv: tuple[str, ...]
    keep: tuple[int, ...]
    ours: IO[bytes]
    watchdog: Watchdog

    async def end(self) -> None:
        """Kill everything inside, and wait until it has ended."""
        self.ours.close()
        self.watchdog.stop()
        async with asyncio.timeout(_GONE_S):
            await self.watchdog.over.wait()


class RunningCommand:
    """A command started by `start`. `over` is set when nothing of it is left; then `why` says why it was killed."""

    def __init__(self, ready: _Ready, opened: ExitStack) -> None:
        self._ready = ready
        self._opened = opened

    @property
    def over(self) -> asyncio.Event:
        """See above."""
        return self._ready.watchdog.over

    @property
    def why(self) -> str:
        """See above."""
        return self._ready.watchdog.why

    def is_idle(self, idle: bool) -> None:
        """Tell the watchdog whether the command is idle."""
        self._ready.watchdog.idle = idle

    async def new_excess(self) -> str:
        """What was left in the workspace that no command may leave there, and not said before; empty if nothing."""
        return await asyncio.to_thread(self._ready.watchdog.new_excess)

    async def close(self) -> None:
        """End it."""
        try:
            await self._ready.end()
        finally:
            self._opened.close()


def _command_program(command: str, deadline: float | None) -> Program:
    """A command as a program. Its arguments are later replaced by those of bwrap."""
    return Program((command,), ENVIRONMENT, "/", b"", deadline, MOST_OUTPUT)


def _exit_of(watched: _Watched) -> CommandExit:
    ended, why = watched.ended, watched.watchdog.why
    done = CommandExit(ended.output, ended.status)
    if why:
        return structs.replace(done, killed=why)
    if ended.late:
        return structs.replace(done, killed="its time was up")
    if ended.too_much:
        return structs.replace(done, killed=f"it wrote more than {MOST_OUTPUT} bytes")
    return structs.replace(done, killed=ended.errors.strip()) if ended.errors.startswith("bwrap: ") else done


def _look_at_machine(bwrap: str) -> Machine:
    """What exists on this machine. Raises OSError."""
    linked = {path: f"{Path(path).readlink()}" for path in LINKED if Path(path).is_symlink()}
    there = [path for path in (*PROGRAMS, *LINKED, *CONFIGURATION) if path not in linked and Path(path).exists()]
    return Machine(bwrap, linked, tuple(there), *_covered_of_proc())


def _covered_of_proc() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The files and the directories of /proc that are hidden from commands."""
    rest = [entry for entry in os.scandir("/proc") if not entry.name.isdigit() and entry.name not in SHOWN_OF_PROC]
    return (
        tuple(sorted(entry.name for entry in rest if entry.is_file(follow_symlinks=False))),
        tuple(sorted(entry.name for entry in rest if entry.is_dir(follow_symlinks=False))),
    )


def _open_pipe(opened: ExitStack) -> tuple[IO[bytes], IO[bytes]]:
    """The two ends of a new pipe, which `opened` closes."""
    read, write = os.pipe()
    return opened.enter_context(os.fdopen(read, "rb", 0)), opened.enter_context(os.fdopen(write, "wb", 0))


def _open_descriptors(opened: ExitStack, told: int, released: int) -> Descriptors:
    files = {path: opened.enter_context(_hold_in_memory(text.encode())) for path, text in FILES.items()}
    let_go = os.dup(released)
    opened.callback(os.close, let_go)
    return Descriptors(opened.enter_context(_hold_in_memory(syscalls.program())), files, told, released, let_go)


def _is_root() -> bool:
    """Whether we are root of the machine itself, not only of a container."""
    return os.geteuid() == 0 and Path("/proc/self/uid_map").read_text().split() == ["0", "0", "4294967295"]


@contextmanager
def _hold_in_memory(data: bytes) -> Iterator[int]:
    """The descriptor of a file in memory with this content, positioned at its beginning."""
    number = os.memfd_create("for bwrap")
    try:
        os.write(number, data)
        os.lseek(number, 0, os.SEEK_SET)
        yield number
    finally:
        os.close(number)
