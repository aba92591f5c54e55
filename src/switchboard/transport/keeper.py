"""The parent of a long-running program: ends everything that the program started, however it hides or the worker ends.

`kept.py` starts it by its path, without any package of ours: `keeper.py LIFELINE ACCOUNT PROGRAM ARGUMENT…`. LIFELINE
is the number of a descriptor to read from. Only the worker has the other end, so LIFELINE ends when the worker closes
it or dies, even by `kill -9`. Then the program gets SIGTERM, after a second SIGKILL, and so does everything else that
it has started: orphans become children of the keeper, whatever session they are in (Linux). The same happens when the
program ends by itself. A byte through LIFELINE requests the same in a hurry. ACCOUNT is `-`, or the
`UID:GID:GROUP,GROUP` to run the program as. The status is that of the program, 128 plus the number of a signal, or 127
if it cannot be started.
"""

import contextlib
import ctypes
import os
import select
import signal
import sys
import time

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_UNHEARD = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""Stopping a service sends these to all its processes; the keeper waits until the worker closes the lifeline."""
_INHERITED = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGQUIT)
"""Python ignores the first two, a parent perhaps the last, and the program that it executes would inherit that."""
_GRACE_S = 1.0
_HASTE_S = 0.3
"""Used instead of `_GRACE_S` in a hurry."""
_LOOK_S = 0.05


def main() -> int:
    """Start the program, wait until it or the lifeline ends, and leave nothing running."""
    lifeline, account, argv = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
    os.set_inheritable(lifeline, False)
    _call_prctl(_PR_SET_CHILD_SUBREAPER, 1)
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(woken, False)
    for number in (signal.SIGCHLD, *_UNHEARD):
        signal.signal(number, lambda *_: None)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    keeper = os.getpid()
    program = os.fork()
    if program == 0:
        _become_program(argv, account, keeper)
    _let_go()
    status = _watch_program(program, lifeline, woken)
    if status is None:
        status = _end_program(program, woken, _HASTE_S if os.read(lifeline, 1) else _GRACE_S)
    _end_others()
    return status


def _become_program(argv: list[str], account: str, keeper: int) -> None:
    """Execute the program in this child process; never returns."""
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, *_UNHEARD, *_INHERITED):
            signal.signal(number, signal.SIG_DFL)
        os.setsid()
        if account != "-":
            uid, gid, groups = account.split(":")
            os.setgroups([int(group) for group in groups.split(",") if group])
            os.setgid(int(gid))
            os.setuid(int(uid))
        _call_prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == keeper:
            os.execvpe(argv[0], argv, os.environ)
    except BaseException as error:
        os.write(2, f"it cannot be started: {error}\n".encode("utf-8", "replace"))
    os._exit(127)


def _let_go() -> None:
    """Close our copies of the program's pipes, so that their readers notice its end."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nothing, number)
    os.close(nothing)


def _watch_program(program: int, lifeline: int, woken: int) -> int | None:
    """Wait for the status of the program; None if the lifeline ends first."""
    while (status := _reap_children(program)) is None:
        ready, _, _ = select.select([lifeline, woken], [], [])
        _drain_pipe(woken)
        if lifeline in ready:
            return None
    return status


def _end_program(program: int, woken: int, grace: float) -> int:
    """End the program: ask it first, kill it after `grace` seconds. Returns its status."""
    _signal_group(program, signal.SIGTERM)
    until = time.monotonic() + grace
    while (status := _reap_children(program)) is None and (left := until - time.monotonic()) > 0:
        select.select([woken], [], [], left)
        _drain_pipe(woken)
    _signal_group(program, signal.SIGKILL)
    while status is None:
        status = _reap_children(program)
        select.select([woken], [], [], _LOOK_S)
        _drain_pipe(woken)
    return status


def _signal_group(program: int, number: int) -> None:
    """Send a signal to the program's whole process group."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(program, number)


def _reap_children(program: int) -> int | None:
    """Reap all ended children; returns the status of the program if it is among them."""
    found = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return found
        if pid == 0:
            return found
        if pid == program:
            code = os.waitstatus_to_exitcode(status)
            found = code if code >= 0 else 128 - code


def _end_others() -> None:
    """Kill what is left, level by level: children of killed processes become ours."""
    while True:
        for pid in _child_processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                time.sleep(_LOOK_S / 10)
        except ChildProcessError:
            return


def _child_processes() -> list[int]:
    """The ids of our child processes."""
    found: list[int] = []
    with contextlib.suppress(OSError), os.scandir("/proc") as entries:
        names = [entry.name for entry in entries if entry.name.isdigit()]
        found += [int(name) for name in names if _parent_of(name) == os.getpid()]
    return found


def _parent_of(process: str) -> int:
    """The parent's id; 0 if the process has ended."""
    try:
        stat = os.open(f"/proc/{process}/stat", os.O_RDONLY)
    except OSError:
        return 0
    try:
        return int(os.read(stat, 4096).rpartition(b")")[2].split()[1])
    except (OSError, IndexError):
        return 0
    finally:
        os.close(stat)


def _drain_pipe(woken: int) -> None:
    with contextlib.suppress(BlockingIOError):
        while os.read(woken, 4096):
            pass


def _call_prctl(option: int, value: int) -> None:
    """Call prctl, if the system has it."""
    control = getattr(ctypes.CDLL(None), "prctl", None)
    if control is not None:
        control(option, value, 0, 0, 0)


if __name__ == "__main__":
    sys.exit(main())
