"""Processes that are forked from one that has imported everything: real ones to be killed, without a second of imports.

Fixture `forks` (session): `start` runs `main(arguments)` of a module in a process of its own. In: the module, its
arguments, its whole environment; out: a `Forked`, of which the caller makes sure that it has ended. `ForkedCommand` is
`subprocess.Popen` for `switchboard ARGUMENTS` or `python -m MODULE ARGUMENTS`: with its streams, its directory, its
signals and its exit code.
`commands_for_shells` makes a directory for PATH in which `switchboard` is the same, for what a shell starts.
A process that is waited for in vain says where it is, on its standard error.
"""

from __future__ import annotations

import asyncio
import faulthandler
import fcntl
import inspect
import json
import os
import signal
import socket
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from multiprocessing import forkserver, get_context
from multiprocessing.connection import wait
from multiprocessing.context import ForkServerProcess
from multiprocessing.reduction import DupFd
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import IO, Any, AnyStr, Final

import pytest

from switchboard.cli.main import COMMANDS, main
from switchboard.lanes import faults
from switchboard.transport.plug_ins import plug_ins
from tests import guard
from tests.clusters import copy_clusters

_TEST: Final = "PYTEST_CURRENT_TEST"
_PRELOADED: Final = [
    *(__name__, "tests.chaos.node", "tests.acceptance.model_node", "switchboard.cli.processes.working"),
    # What is imported only when it is needed: a process that is killed would do so in each of its lives.
    *("switchboard.server.app", "switchboard.app.models.dispatcher", "switchboard.agents.turns.toolbox", "anthropic"),
    "switchboard.server.serve",
    *("switchboard.connectors.telegram.channel", "switchboard.connectors.email.channel"),
    *("tests.chaos.turns_node", "tests.chaos.plans_node", "tests.pymap_server", "tests.remote_butler"),
    *(f"switchboard.cli.{entry.place.partition(':')[0]}" for entry in COMMANDS),
    *("tests.settled", "tests.speaking", "tests.preloaded"),
]
_STUCK_S: Final = 45.0
"""Seconds after which a process tells where it is, in `errors`."""
_WHERE: Final = signal.SIGUSR1
"""Has a process tell where its threads and tasks are."""
_TELLING_S: Final = 1.0


class Forked:
    """A process that was started; what it wrote to standard error is in `errors`."""

    def __init__(self, process: ForkServerProcess, errors: Path) -> None:
        self._process = process
        self.errors = errors

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def kill(self) -> None:
        self._process.kill()

    async def wait(self, within: float = 150.0) -> int:
        """Its exit code. Raises TimeoutError after `within` seconds."""
        await asyncio.to_thread(self._process.join, within)
        if self._process.exitcode is None:
            raise TimeoutError(f"still running after {within} s; its errors: {self.errors.read_text()[-2000:]}")
        return self._process.exitcode


@dataclass(frozen=True, slots=True)
class Forks:
    """Starts processes."""

    def start(
        self, module: str, *arguments: str, env: Mapping[str, str], errors: Path, cwd: Path | None = None
    ) -> Forked:
        """Run `main(arguments)` of `module` in a new process."""
        place = Path.cwd() if cwd is None else cwd
        process = get_context("forkserver").Process(
            target=_live, args=(module, arguments, dict(env), str(errors), str(place))
        )
        _begin(process)
        return Forked(process, errors)


@pytest.fixture(scope="session")
def forks() -> Forks:
    """What has imported everything is started once, by the first test that wants it, and ends with the run."""
    return forked()


def forked() -> Forks:
    """The same outside of pytest, and within a test: what they are forked from outlives the test."""
    test = os.environ.pop(_TEST, None)
    try:
        forkserver.set_forkserver_preload(_PRELOADED)
        forkserver.ensure_running()
    finally:
        if test is not None:
            os.environ[_TEST] = test
    return Forks()


def end_forking() -> None:
    """End what processes are forked from, at the end of a run: by itself it takes its time."""
    if (pid := _forks_from()) is not None:
        with suppress(ProcessLookupError, ChildProcessError):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _begin(process: ForkServerProcess) -> None:
    """Start it. Raises RuntimeError where what it is to be forked from has ended, and says how."""
    server = _forks_from() or 0
    try:
        process.start()
    except EOFError as error:
        with suppress(ChildProcessError):
            code = os.waitstatus_to_exitcode(os.waitpid(server, os.WNOHANG)[1])
            raise RuntimeError(f"what processes are forked from, PID {server}, has ended: {code}") from error
        raise
    guard.watch(process.pid or 0)


def _forks_from() -> int | None:
    pid: int | None = getattr(vars(forkserver)["_forkserver"], "_forkserver_pid", None)
    return pid


def spent_by_forked() -> float:
    """The CPU time of forked processes that have ended, in seconds; 0 where the system does not tell."""
    try:
        words = Path(f"/proc/{_forks_from()}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, words[13:15])) / os.sysconf("SC_CLK_TCK")


class ForkedCommand(subprocess.Popen[AnyStr]):
    """`subprocess.Popen` of which the first word is not looked at: it is `switchboard` with the other words.

    If these begin with `-m MODULE`, it is `main(arguments)` of that module instead.

    `env` has to be given. With `start_new_session`, a terminal that is its stdin is the one that controls it. What
    /proc says of its words and its environment is of the process that it was forked from.
    """

    _process: ForkServerProcess

    def _execute_child(self, *given: object) -> None:
        asked = _ASKED.bind(self, *given).arguments
        # Each with the end that stays here, or -1: without one it is ours, or was given to us.
        ends = [(asked["p2cread"], asked["p2cwrite"]), (asked["c2pwrite"], asked["c2pread"])]
        ends.append((asked["errwrite"], asked["errread"]))
        streams = _Streams([ours if stream == -1 else stream for ours, (stream, _) in enumerate(ends)])
        words = [os.fspath(word) for word in asked["args"]]
        cwd = Path(asked["cwd"] or ".").resolve()
        forked()
        self._process = get_context("forkserver").Process(
            target=_be_switchboard, args=(words, asked["env"], cwd, streams, asked["start_new_session"]), daemon=True
        )
        _begin(self._process)
        self._child_created = True
        self.pid = self._process.pid or 0
        for made_here in {stream for stream, end in ends if -1 not in (stream, end)} | {getattr(self, "_devnull", -1)}:
            if made_here != -1:
                os.close(made_here)

    def _internal_poll(self, _deadstate: object = None) -> int | None:
        if self.returncode is None and self._process.exitcode is not None:
            self.returncode = self._process.exitcode
        return self.returncode

    def _wait(self, timeout: float | None) -> int:
        if not wait([self._process.sentinel], timeout):
            with suppress(ProcessLookupError):
                os.kill(self.pid, _WHERE)
            wait([self._process.sentinel], _TELLING_S)
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        self._internal_poll()
        return self.returncode


_ASKED: Final = inspect.signature(vars(subprocess.Popen)["_execute_child"])


class _Streams:
    """Descriptors that go with a process that is forked; there they are numbers again."""

    def __init__(self, numbers: Sequence[int]) -> None:
        self._numbers = numbers

    def __reduce__(self) -> tuple[object, ...]:
        return _taken, tuple(DupFd(number) for number in self._numbers)


_IN_A_SHELL: Final = """#!{python} -IS
import json, os, signal, socket, sys
with socket.socket(socket.AF_UNIX) as asked, asked.makefile() as told:
    asked.connect({place!r})
    socket.send_fds(asked, [json.dumps([sys.argv, dict(os.environ), os.getcwd()]).encode()], [0, 1, 2])
    pid = int(told.readline())
    for number in signal.SIGINT, signal.SIGTERM, signal.SIGHUP:
        signal.signal(number, lambda number, _: os.kill(pid, number))
    code = int(told.readline() or 1)
sys.exit(code if code >= 0 else 128 - code)
"""
_WORDS_BYTES: Final = 1 << 17


@contextmanager
def commands_for_shells() -> Iterator[Path]:
    """A directory with a `switchboard` that has a forked process do its work, and passes signals on to it."""
    forked()
    with TemporaryDirectory(prefix="switchboard-commands-") as made, socket.socket(socket.AF_UNIX) as door:
        place = Path(made, "door")
        program = Path(made, "switchboard")
        program.write_text(_IN_A_SHELL.format(python=sys.executable, place=str(place)))
        program.chmod(0o755)
        door.bind(str(place))
        door.listen()
        Thread(target=_attend, args=(door,), daemon=True).start()
        yield Path(made)
        door.shutdown(socket.SHUT_RDWR)


def _attend(door: socket.socket) -> None:
    with suppress(OSError):  # it was shut
        while True:
            Thread(target=_do_as_asked, args=(door.accept()[0],), daemon=True).start()


def _do_as_asked(asked: socket.socket) -> None:
    """Until the command has ended, or the one that asks has been killed."""
    with asked:
        said, streams, _, _ = socket.recv_fds(asked, _WORDS_BYTES, 3)
        words, env, cwd = json.loads(said)
        process = get_context("forkserver").Process(
            target=_be_switchboard, args=(words, env, Path(cwd), _Streams(streams), False), daemon=True
        )
        _begin(process)
        for stream in streams:
            os.close(stream)
        asked.sendall(f"{process.pid}\n".encode())
        if process.sentinel not in wait([process.sentinel, asked]):
            process.kill()
        process.join()
        with suppress(OSError):  # it was killed
            asked.sendall(f"{process.exitcode}\n".encode())


def _taken(*sent: Any) -> list[int]:
    return [one.detach() for one in sent]


def _be_switchboard(
    words: Sequence[str], env: Mapping[str, str], cwd: Path, streams: Sequence[int], own_session: bool
) -> None:
    if own_session:
        os.setsid()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    if own_session and os.isatty(0):
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    sys.stdin, sys.stdout, sys.stderr = (_text(0, "r"), _text(1, "w"), _text(2, "w", "backslashreplace"))
    _move(env, cwd)
    sys.argv = [*words]
    if words[1:2] == ["-m"]:
        import_module(words[2]).main(words[3:])
    else:
        main()


def _text(number: int, mode: str, errors: str = "strict") -> IO[str]:
    """As Python opens its own at the start."""
    return open(number, mode, buffering=1 if os.isatty(number) or number == 2 else -1, errors=errors, closefd=False)


def _tell_where(*_: object) -> None:
    """Of each thread its stack; of each task the coroutines that it waits in, as far as these can be followed."""
    faulthandler.dump_traceback(file=2)
    status = Path("/proc/self/status").read_text().splitlines()
    said = [line for line in status if line.startswith(("Sig", "Shd"))]
    with suppress(RuntimeError):  # there is no loop
        for task in asyncio.all_tasks():
            said += [f"{task.get_name()}, {task.cancelling()} times cancelled", *_awaited(task.get_coro())]
    os.write(2, "\n".join([*said, ""]).encode())


def _awaited(coroutine: Any) -> Iterator[str]:
    while coroutine is not None:
        frame = getattr(coroutine, "cr_frame", None) or getattr(coroutine, "ag_frame", None)
        yield f"  {frame or coroutine}"
        coroutine = getattr(coroutine, "cr_await", None) or getattr(coroutine, "ag_await", None)


def _move(env: Mapping[str, str], cwd: Path) -> None:
    signal.signal(_WHERE, _tell_where)
    os.environ.clear()
    os.environ.update(env)
    if places := [place for place in env.get("PYTHONPATH", "").split(os.pathsep) if place]:
        sys.path[:0] = places
        plug_ins.cache_clear()
    time.tzset()
    os.chdir(cwd)
    copy_clusters()
    faults.arm(env.get("SWITCHBOARD_CRASH_AT", ""))


def _live(module: str, arguments: Sequence[str], env: Mapping[str, str], errors: str, cwd: str) -> None:
    _move(env, Path(cwd))
    with Path(os.devnull).open("wb") as nothing, Path(errors).open("ab") as told:
        sys.stdout.flush()
        os.dup2(nothing.fileno(), 1)
        os.dup2(told.fileno(), 2)
    faulthandler.dump_traceback_later(_STUCK_S, file=sys.stderr)
    import_module(module).main(arguments)
