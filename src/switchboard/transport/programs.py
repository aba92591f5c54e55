"""One program with a deadline: started in its own session, fed from a file, and ended with all that it started.

`agents/command.py` and `llm/cli.py` call `run_program` with a command, its environment and its input; it returns the
output and the exit status. Nothing outlives the call, however it ends: SIGTERM to the whole group, three seconds,
SIGKILL. With `death_guard` the kernel does the same when we are killed ourselves.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import IO, Final

from msgspec import Struct

from switchboard.signals import default_signals
from switchboard.tasks import wait_at_most

_DRAIN_S: Final = 1.0
"""Limit for reading pipes that a process outside our group may still hold open."""
_EXIT_S: Final = 10.0
"""Limit for the kernel to end a killed process: immediate, unless the machine is stalled."""
_TAIL: Final = 4000
_PIECE: Final = 262_144


class ProgramUser(Struct, frozen=True):
    """The user that a program runs as, with the groups that a login would give it."""

    uid: int
    gid: int
    groups: Sequence[int]
    home: str


def account_of(user: str) -> ProgramUser | None:
    """The account of a user; None for our own. Raises ValueError if there is none, or if only root could use it."""
    try:
        entry = pwd.getpwnam(user)
    except KeyError:
        raise ValueError(f"there is no user {user!r} on this machine") from None
    if entry.pw_uid == os.geteuid():
        return None
    if os.geteuid() != 0:
        raise ValueError(f"only root can run a program as another user, {user!r}")
    return ProgramUser(entry.pw_uid, entry.pw_gid, os.getgrouplist(user, entry.pw_gid), entry.pw_dir)


def environment_for(account: ProgramUser | None) -> dict[str, str]:
    """The part of our environment that a program gets: PATH, HOME and LANG. Other variables may be secrets."""
    ours = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    return {"PATH": os.defpath, "LANG": "C.UTF-8", **ours, **({"HOME": account.home} if account else {})}


@dataclass(frozen=True, slots=True)
class Program:
    """What to run: an argument vector, never a shell line; `env` is its whole environment. In seconds and bytes.

    `cwd` None: our own. `deadline` None: no limit. `account` None: our own. `keep`: descriptors that it also gets.
    `started` is called when it has been started, `stop` to end it, if not by SIGTERM. The output is collected in
    `written`, if given, for those who cancel the run.
    """

    argv: Sequence[str]
    env: Mapping[str, str] = field(repr=False)
    cwd: Path | str | None
    given: bytes = field(repr=False)
    deadline: float | None
    most: int = 8_388_608
    account: ProgramUser | None = None
    keep: Sequence[int] = ()
    started: Callable[[], None] = field(default=lambda: None, repr=False)
    stop: Callable[[], None] | None = field(default=None, repr=False)
    written: bytearray | None = field(default=None, repr=False)


class ProgramExit(Struct, frozen=True):
    """How it ended: `status` is negative for a signal; `errors` is the end of standard error."""

    output: bytes
    errors: str
    status: int
    late: bool = False
    too_much: bool = False

    @property
    def text(self) -> str:
        """The output as text; invalid UTF-8 is replaced."""
        return self.output.decode("utf-8", "replace")


@cache
def death_guard() -> tuple[str, ...]:
    """The prefix of a command that makes the kernel kill it when the worker dies; empty if unavailable.

    It is not done between fork and exec in Python (`preexec_fn`), which can deadlock if there are threads.
    """
    setpriv = shutil.which("setpriv") if sys.platform == "linux" else None
    if setpriv is None:
        return ()
    guard = (setpriv, "--pdeathsig", "KILL", "--")
    # The setpriv of BusyBox lacks this option, so we try it.
    tried = subprocess.run((*guard, setpriv, "--help"), capture_output=True, timeout=10, check=False)
    return guard if tried.returncode == 0 else ()


async def run_program(program: Program, grace: float = 3.0) -> ProgramExit:
    """Run it to its end, to its deadline, or until it has written too much. Raises OSError if it cannot be started.

    Raises ValueError for an argument or a variable that cannot be passed to a program, such as one with a NUL.
    """
    # No await between the start and the `try`. asyncio's own start can be cancelled halfway: then it kills only the
    # program, does not reveal the rest of the group, and waits until all of the group have closed the pipes.
    run = _Run(_start_program(program), program.most, bytearray() if program.written is None else program.written)
    late = False
    try:
        program.started()
        run.watch()
        async with asyncio.timeout(program.deadline):
            await run.over.wait()
    except TimeoutError:
        late = True
    finally:
        await _end_group(run, grace, program.stop)
    errors = bytes(run.errors).decode("utf-8", "replace")
    return ProgramExit(bytes(run.output), errors, run.status, late, run.too_much)


def _start_program(program: Program) -> subprocess.Popen[bytes]:
    account = program.account
    with _standard_input(program.given) as stdin, default_signals():
        if account and program.given:
            os.fchown(stdin.fileno(), account.uid, account.gid)  # some programs open /dev/stdin
        return subprocess.Popen(
            program.argv,
            bufsize=0,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=program.cwd,
            env=program.env,
            start_new_session=True,
            user=account.uid if account else None,
            group=account.gid if account else None,
            extra_groups=account.groups if account else None,
            pass_fds=program.keep,
        )


@contextlib.contextmanager
def _standard_input(given: bytes) -> Iterator[IO[bytes]]:
    """The input as a file, not a pipe: nobody must feed it, and a program that does not read it breaks nothing."""
    if not given:  # and then there is no file that a program could fill
        with Path(os.devnull).open("rb") as nothing:
            yield nothing
        return
    with tempfile.TemporaryFile() if sys.platform != "linux" else _in_memory() as file:
        file.write(given)
        file.seek(0)
        if sys.platform == "linux":  # sealed, so that nobody can open it through /proc and fill it
            fcntl.fcntl(file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK)
        yield file


def _in_memory() -> IO[bytes]:
    return os.fdopen(os.memfd_create("input", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING), "w+b")


class _Run:
    """Collects what a program writes; `over` is set when it has ended or written too much."""

    def __init__(self, process: subprocess.Popen[bytes], most: int, output: bytearray) -> None:
        self._process = process
        self._most = most
        self._loop = asyncio.get_running_loop()
        takers = ((process.stdout, self._add_output), (process.stderr, self._add_errors))
        self._open: dict[IO[bytes], Callable[[bytes], None]] = {pipe: take for pipe, take in takers if pipe is not None}
        self.pid = process.pid
        self.output = output
        self.errors = bytearray()
        self.too_much = False
        self.over = asyncio.Event()
        self.exited = asyncio.Event()
        self.drained = asyncio.Event()

    @property
    def status(self) -> int:
        """The status of the process; 0 if unknown."""
        return self._process.returncode or 0

    def watch(self) -> None:
        """Begin to read, and to wait for the end. Raises RuntimeError if no thread can be started."""
        for pipe in self._open:
            os.set_blocking(pipe.fileno(), False)
            self._loop.add_reader(pipe, self._read, pipe)
        threading.Thread(target=self._wait, name=f"waits for {self.pid}", daemon=True).start()

    def close(self) -> None:
        """Stop reading."""
        for pipe in [*self._open]:
            self._close(pipe)
        self._process.poll()  # in case nobody waits for it

    def _wait(self) -> None:
        self._process.wait()
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._has_exited)

    def _has_exited(self) -> None:
        self.exited.set()
        self.over.set()

    def _read(self, pipe: IO[bytes]) -> None:
        try:
            data = os.read(pipe.fileno(), _PIECE)
        except BlockingIOError:
            return
        if data:
            self._open[pipe](data)
        else:
            self._close(pipe)

    def _close(self, pipe: IO[bytes]) -> None:
        del self._open[pipe]
        self._loop.remove_reader(pipe)
        pipe.close()
        if not self._open:
            self.drained.set()

    def _add_output(self, data: bytes) -> None:
        if len(self.output) + len(data) <= self._most:
            self.output += data
        else:
            self.too_much = True
            self.over.set()

    def _add_errors(self, data: bytes) -> None:
        self.errors = (self.errors + data)[-_TAIL:]


async def _end_group(run: _Run, grace: float, stop: Callable[[], None] | None) -> None:
    """Ask the whole group to end, kill the rest, and read what is still in the pipes.

    This is also done if the program ended by itself: its children must neither keep its output open nor live on.
    """
    try:
        if not run.exited.is_set():
            stop() if stop else _signal_group(run.pid, signal.SIGTERM)
            await wait_at_most(grace, run.exited)
        _signal_group(run.pid, signal.SIGKILL)
        await wait_at_most(_DRAIN_S, run.drained)
    finally:
        _signal_group(run.pid, signal.SIGKILL)  # in case we were cancelled while waiting
        try:
            await wait_at_most(_EXIT_S, run.exited)
        finally:
            run.close()


def _signal_group(pid: int, number: signal.Signals) -> None:
    # macOS reports EPERM if only a zombie is left.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)
