"""Whether what runs at a terminal waits for somebody to type, as far as the kernel tells.

`session.py` asks when a command has not ended in time, and now and then whether its shell waits for the next one
without having reported the last. In: our end of the terminal; out: what is known. A process that
is in the system call `read` with the terminal waits for input; one that waits in `poll` or the like may do so.
"""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, Literal

WaitsForInput = Literal["surely", "perhaps", "no"]

_READ: Final = 0
_POLLING: Final = frozenset({7, 23, 232, 270, 271, 281})
"""poll, select, epoll_wait, pselect6, ppoll, epoll_pwait, by their numbers on x86-64, the only machine of sandboxes."""
_NUMBER_OF_TERMINAL: Final = 0x80045430
"""TIOCGPTN, which Python does not name."""
_TERMINALS: Final = 136
_CONTROLLING: Final = os.makedev(5, 0)
_SESSION: Final = 0x5429
"""TIOCGSID, which Python does not name."""


def waits_for_input(master: int) -> WaitsForInput:
    """Whether a foreground process waits for input; `no` also if the kernel does not tell us. Never raises."""
    try:
        group = os.tcgetpgrp(master)
        calls = [call for pid in _members_of(group) for call in _calls_of(pid)]
        if _reads_terminal(master, calls):
            return "surely"
    except OSError:
        return "no"
    return "perhaps" if calls and all(number in _POLLING for _, number, _ in calls) else "no"


def waits_for_command(master: int, pipe: int, descriptor: int) -> bool:
    """Whether the shell itself reads from the terminal, and has our `pipe` at `descriptor`. Never raises.

    It has it there only between commands. What a command reads in the shell, with `read`, does not count.
    """
    try:
        shell, ours = leader_of(master), os.fstat(pipe)
        theirs = Path(f"/proc/{shell}/fd/{descriptor}").stat()
        return os.path.samestat(ours, theirs) and _reads_terminal(master, [*_calls_of(shell)])
    except OSError:  # among others: there is nothing at this descriptor
        return False


def leader_of(master: int) -> int:
    """The process that leads the session of a terminal. Raises OSError if it has ended."""
    (leader,) = struct.unpack("i", fcntl.ioctl(master, _SESSION, b"\0" * 4))
    return int(leader)


def _reads_terminal(master: int, calls: Iterable[tuple[int, int, int]]) -> bool:
    """Whether one of the system calls reads from the terminal."""
    (number,) = struct.unpack("i", fcntl.ioctl(master, _NUMBER_OF_TERMINAL, b"\0" * 4))
    ours = {os.makedev(_TERMINALS, number), _CONTROLLING}
    return any(call == _READ and _device_of(pid, descriptor) in ours for pid, call, descriptor in calls)


def _members_of(group: int) -> Iterator[int]:
    """The processes of a group."""
    for place in Path("/proc").iterdir():
        if place.name.isdigit():
            with suppress(OSError):  # it has ended
                fields = (place / "stat").read_bytes().rpartition(b")")[2].split()
                if int(fields[2]) == group:
                    yield int(place.name)


def _calls_of(pid: int) -> Iterator[tuple[int, int, int]]:
    """The system calls that the threads of a process wait in: process, number of the call, its first argument."""
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            words = (task / "syscall").read_text().split()
            if len(words) > 2 and words[0].isdigit():
                yield pid, int(words[0]), int(words[1], 16)
            else:
                yield pid, -1, -1  # it runs


def _device_of(pid: int, descriptor: int) -> int:
    try:
        return Path(f"/proc/{pid}/fd/{descriptor}").stat().st_rdev
    except OSError:
        return 0
