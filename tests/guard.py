"""Nothing that tests start outlives them, and nothing that they start depends on how pytest was started.

A plugin that conftest.py registers; the chaos runs call `stand_guard` themselves. Before anything runs, the process
that was started stays behind as a guard, and a child of it goes on as pytest. There are two guards, one the parent of
the other, and both adopt what is orphaned below them (Linux: child subreaper), so that everything is ended whichever
process is killed, even with SIGKILL. What is still running when pytest has ended is listed and ended, and the run has
failed. After each test, what it has left running is ended, and the test has failed. On systems other than Linux there
is no guard.

Signals that were ignored when pytest was started (`nohup`, or `&` in a script) are not ignored by what tests start;
pytest then runs in a session of its own, where no terminal sends them.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable, Generator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn

import pytest

PATIENCE: Final = 5.0
"""Seconds that what is ending already, or is told to end, has before it is killed."""

_GUARD: Final = "TESTS_GUARD"
_TEST: Final = "PYTEST_CURRENT_TEST"
_SET_DEATH_SIGNAL, _SET_SUBREAPER = 1, 36
_PYTHONS_OWN: Final = {signal.SIGPIPE, signal.SIGXFSZ}  # ignored by every Python, reset for every child of subprocess
_MAY_BE_IGNORED: Final = {signal.SIGINT, signal.SIGHUP}
_TO_END: Final = {*_MAY_BE_IGNORED, signal.SIGTERM}
_POLL: Final = 0.02
_FORKED: Final[dict[int, str]] = {}
"""The test that started it, by the id of a process that another one forked for us: it shows that one's environment."""


@dataclass(frozen=True, slots=True)
class Left:
    """A process that should have ended: its id, its command line, and the test that was running when it started."""

    pid: int
    command: str
    test: str

    def __str__(self) -> str:
        return f"process {self.pid} ({self.command or '?'}), started by {self.test or 'an unknown test'}"


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main() -> None:
    """Not in the workers of pytest-xdist: they are below the guard of the run."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        stand_guard()


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[object]) -> Generator[None, object, object]:
    """What a fixture of several tests starts belongs to the run, not to the test that happens to need it first."""
    test = os.environ.pop(_TEST, None) if fixturedef.scope != "function" else None
    try:
        return (yield)
    finally:
        if test is not None:
            os.environ[_TEST] = test


def stand_guard() -> None:
    """Return in a child, in the state in which tests may be run; the caller becomes the guard and never returns."""
    ignored = {number for number in _MAY_BE_IGNORED if signal.getsignal(number) is signal.SIG_IGN}
    if sys.platform == "linux":
        for _ in range(2):
            _go_on_as_child(ignored)
    _reset_signals()
    if ignored:
        with suppress(PermissionError):  # where there is no guard we may lead a group already
            os.setsid()


def watch(pid: int) -> None:
    """Watch over a process that another one forked for us as if it were a child of ours."""
    if test := os.environ.get(_TEST):
        _FORKED[pid] = _name(test)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, None, None]:
    """Fail a test that leaves a process running. What is about to end has a while to do so."""
    yield
    left = _after_a_while(lambda: [left for left in _ours() if left.test == item.nodeid])
    _FORKED.clear()
    if left:
        _end([below for one in left for below in (one.pid, *_below(one.pid))])
        pytest.fail("\n".join(["still running after the test, ended now:", *map(str, left)]), pytrace=False)


# The guard


def _go_on_as_child(ignored: set[signal.Signals]) -> None:
    _control(_SET_SUBREAPER, 1)
    # From here on signals wait until somebody takes them: the guard below, the child when it has its handlers.
    signal.pthread_sigmask(signal.SIG_BLOCK, {*_TO_END, signal.SIGCHLD})
    os.environ[_GUARD] = str(os.getpid())
    sys.stdout.flush()
    sys.stderr.flush()
    guard = os.getpid()
    if child := os.fork():
        _keep_guard(child, ignored)
    _control(_SET_DEATH_SIGNAL, signal.SIGTERM)
    if os.getppid() != guard:
        os._exit(1)


def _keep_guard(child: int, ignored: set[signal.Signals]) -> NoReturn:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # if it was ignored, the kernel would not tell us how they ended
    for number in _TO_END:
        signal.signal(number, signal.SIG_DFL)  # blocked, not ignored: a signal that is ignored does not wait
    broken_off, status = _watch(child, ignored)
    if not broken_off and os.WIFEXITED(status):
        left = _after_a_while(lambda: _described(_below(os.getpid())))
        if left:
            sys.stderr.write(
                "\n  ".join(["\nERROR: still running after the tests, ended now:", *map(str, left)]) + "\n"
            )
            sys.stderr.flush()
            status = status or 1 << 8
    for _ in range(3):  # a process that is just starting another may be a step ahead
        _end(_below(os.getpid()))
    os._exit(os.waitstatus_to_exitcode(status) & 0xFF if os.WIFEXITED(status) else 128 + os.WTERMSIG(status))


def _watch(child: int, ignored: set[signal.Signals]) -> tuple[bool, int]:
    """Wait until `child` has ended: whether we were told to end, and its status."""
    broken_off = False
    while (status := _reap(child)) is None:
        heard = signal.sigwaitinfo({*_TO_END, signal.SIGCHLD})
        number = signal.Signals(heard.si_signo)
        from_terminal = heard.si_code > 0  # by the kernel, which tells the child as well
        if number not in _TO_END or number in ignored or from_terminal:
            continue
        broken_off = True
        os.kill(child, number)
    return broken_off, status


def _reap(child: int) -> int | None:
    """Reap what has ended; the status of `child` if that has."""
    with suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == child:
                return status
            if pid == 0:
                break
    return None


def _reset_signals() -> None:
    for number in signal.valid_signals() - _PYTHONS_OWN:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _control(option: int, value: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


# Processes


def _ours() -> list[Left]:
    """What runs directly below us, was forked for us, or has been orphaned and adopted by the guard."""
    guard = int(os.environ.get(_GUARD, "0"))
    ours = {*_children(os.getpid()), *_children(guard), *_FORKED} - {os.getpid()}
    return _described(sorted(ours))


def _children(parent: int) -> list[int]:
    with suppress(OSError):  # a thread has ended meanwhile
        if files := [*Path(f"/proc/{parent}/task").glob("*/children")]:
            return [int(pid) for file in files for pid in file.read_text().split()]
    return [pid for pid, its_parent in _parents().items() if its_parent == parent]  # no such files in every kernel


def _below(pid: int) -> list[int]:
    """All that live and descend from `pid`."""
    parents = _parents()
    below = [pid]
    for known in below:
        below += [other for other, parent in parents.items() if parent == known]
    return below[1:]


def _parents() -> dict[int, int]:
    """The parent of every process that lives, by process id."""
    parents = {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, parent = file.read_text().rpartition(")")[2].split()[:2]
            if state not in {"Z", "X"}:
                parents[int(file.parent.name)] = int(parent)
    return parents


def _described(pids: list[int]) -> list[Left]:
    return [left for pid in pids if (left := _describe(pid)) is not None]


def _describe(pid: int) -> Left | None:
    """None for one that has ended, and for what multiprocessing keeps as long as Python runs."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return None
    known = b""
    with suppress(OSError):  # a server or a worker shows its environment to root only
        known = Path(f"/proc/{pid}/environ").read_bytes()
    if not command or b"multiprocessing.resource_tracker" in command:
        return None
    words = command.replace(b"\0", b" ").decode(errors="replace").strip()
    tests = [entry.partition(b"=")[2] for entry in known.split(b"\0") if entry.startswith(_TEST.encode() + b"=")]
    return Left(pid, words, _FORKED.get(pid) or (_name(tests[0].decode(errors="replace")) if tests else ""))


def _name(test: str) -> str:
    """Without its phase."""
    return test.rpartition(" (")[0]


def _after_a_while(look: Callable[[], list[Left]]) -> list[Left]:
    """What is found; after PATIENCE if it does not go away before."""
    deadline = time.monotonic() + PATIENCE
    while (found := look()) and time.monotonic() < deadline:
        _wait()
    return found


def _end(pids: list[int]) -> None:
    """SIGTERM, so that a database shuts down cleanly, then SIGKILL."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        for pid in pids:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline and _parents().keys() & set(pids):
            _wait()


def _wait() -> None:
    time.sleep(_POLL)
