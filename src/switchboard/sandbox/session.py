"""A shell with a terminal in a sandbox: directory, variables and functions persist between commands.

The tool `bash` keeps one for each conversation. The shell is interactive, so that Ctrl-C ends a command and not the
shell. Commands are sent through a pipe, since a line of a terminal has at most 4,096 bytes, and a typed line asks the
shell to read one. The terminal is new, so what is typed there reaches nothing else. Next: `core/text/shell.py`, for the
shell's output.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import secrets
import termios
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from switchboard.core.text.shell import ShellReport, Spoken, quoted
from switchboard.sandbox.enclosure import Inside
from switchboard.sandbox.reading import WaitsForInput, leader_of, waits_for_command, waits_for_input
from switchboard.sandbox.run import MOST_OUTPUT, RunningCommand, Sandbox, TerminalDescriptors
from switchboard.tasks import first_of

_START_S: Final = 30.0
INTERRUPT_S: Final = 5.0
"""Seconds that a command may take to end after Ctrl-C, before it is killed with its shell."""
_PIPE: Final = 256 * 1024
"""Bytes that fit into the pipe of commands: more than the longest command; the kernel allows a user 64 MiB in all."""
_PIECE: Final = 65_536
_CTRL_C: Final = b"\x03"
_COMMANDS: Final = 3
"""The descriptor from which the shell reads its commands."""
_SHELL: Final = f"PS1= PS2= exec setsid --ctty /bin/bash --norc --noprofile --noediting -i {_COMMANDS}<&$1 $1<&-"
# What a command defines stays in the shell, and must not take the place of what we ask of it. In POSIX mode, which an
# assignment turns on, no function replaces a special builtin (`set`, `unset`, `trap`, `eval`), and no alias a reserved
# word; with these, functions with the names of others are removed; with `enable`, builtins could be turned off. What is
# typed has no reserved words at all: after an unfinished quote the shell does not know them. What is read goes into
# variables whose names nobody could guess, and those with fixed names must have no attributes, such as "readonly".
# Nothing of it is traced: `set -x` starts over with the next command. The mark of a report is read after its command
# has ended.
_FIRST: Final = (
    " __due= __begun= __kept= __status=0; unset HISTFILE; set +H; enable -n enable\n"
    " __clean() { POSIXLY_CORRECT=1; \\set +xv; \\trap - DEBUG RETURN ERR;"
    " \\unset -f read printf return || \\exit 1;"
    " [[ ${__due@a}${__begun@a}${__kept@a}${__status@a} != *[^x]* ]] || \\exit 1; }\n"
    ' __read() { \\set -- "$1" "__$1"; while IFS= \\read -r -d \'\' -u 3 "$2" && [[ ${!2} != "$1":* ]]; do \\:;'
    " done; [[ ${!2} ]] || \\exit 1; }\n"
    ' __report() { __clean; __status=$1; [[ $__begun ]] && __kept=$2; \\set -- "$1" "$__due" "__$__due";'
    ' __due= __begun=; if [[ $2 ]]; then __read "$2";'
    ' \\printf \'\\036%s\\037%d\\036\' "${!3#*:}" "$1" >/dev/tty; \\unset "$3"; fi;'
    " \\unset POSIXLY_CORRECT; }\n"
    ' __next() { __clean; __due=$1 __begun=; __read "$1"; }\n'
    ' __go() { __begun=1; \\unset "__$1"; [[ $__kept == *x* ]] && \\set -x; \\unset POSIXLY_CORRECT;'
    ' \\return "$__status"; } 2>/dev/null\n'
    ' __ask() { __due=$1; \\return "$__status"; }\n'
    " readonly -f __clean __read __report __next __go __ask; export -n PS1 PS2\n"
    " PROMPT_COMMAND=$'(( POSIXLY_CORRECT = $? + 1 )) 2>/dev/null\\n"
    ' { \\\\__report "$((POSIXLY_CORRECT - 1))" "$-"; } 2>/dev/null\'; readonly PROMPT_COMMAND\n'
)
_NEXT: Final = " \\__next %(name)s 2>/dev/null; \\eval $'\\\\__go %(name)s\\n'\"${__%(name)s#*:}\" 3<&-\n"
_ASK: Final = " \\__ask %(name)s 2>/dev/null\n"
_AGAIN_S: Final = 0.25
"""Seconds until the shell is asked again whether it listens: Ctrl-C may have discarded the question."""
_LOOK_S: Final = 1.0
"""Seconds between looks whether the shell waits for the next command, though it has not reported the last one."""
_MUTE: Final = "its shell no longer reports how a command ends"


class ShellAnswer(Struct, frozen=True):
    """The outcome of a command: its output, and its report; None: the shell has also ended, and `why` says why."""

    output: bytes
    report: ShellReport | None
    why: str = ""


class _Ends(Struct, frozen=True):
    """Our ends of the terminal and of the pipe of commands."""

    master: int
    commands: int


class ShellSession:
    """One shell. Its methods are called one at a time, except `close`."""

    def __init__(self, running: RunningCommand, ends: _Ends, spoken: Spoken, patience: float) -> None:
        self._running = running
        self._master = ends.master
        self._commands = ends.commands
        self._patience = patience
        self._spoken = spoken
        self._loop = asyncio.get_running_loop()
        self._heard = asyncio.Event()
        self._mark = ""
        self._asked: list[str] = []
        self._closed = False
        self._mute = False
        self._loop.add_reader(ends.master, self._note_heard)

    @property
    def alive(self) -> bool:
        """Whether it can take a command."""
        return not (self._closed or self._running.over.is_set())

    @property
    def why(self) -> str:
        """Why it was killed; empty if it was not."""
        return self._running.why or (_MUTE if self._mute else "")

    async def run(self, command: str) -> ShellAnswer:
        """Run a command to its end, or until it has written too much. If cancelled, the command keeps running.

        Call `interrupt` then. Raises ValueError for a NUL.
        """
        if "\0" in command:
            raise ValueError("NUL")
        self._listen_to_terminal()
        self._mark = secrets.token_hex(16)
        self._spoken.expect(self._mark)
        name = secrets.token_hex(4)
        try:
            os.write(self._commands, f"{name}:{command}\0{name}:{self._mark}\0".encode())
            self._type_data((_NEXT % {"name": name}).encode())
        except OSError:  # it has just ended, or has closed its pipe: then it is alive, but would never answer again
            with suppress(TimeoutError):  # processes that the kernel does not end in time are left behind
                await self.close()
        self._running.is_idle(False)
        await self._wait_for_report()
        return self._take_answer()

    async def interrupt(self) -> ShellAnswer:
        """Type Ctrl-C; a command that does not end within `patience` is killed with the shell."""
        output = self._spoken.take()
        self._asked.clear()
        listens = False
        self._listen_to_terminal()
        with suppress(OSError):  # it has ended
            self._type_data(_CTRL_C)
            async with asyncio.timeout(self._patience):
                with suppress(TimeoutError):  # Ctrl-C may have discarded the line for the command
                    async with asyncio.timeout(self._patience / 2):
                        await self._wait_until(self._is_reported, patient=True)
                listens = await self._is_listening()
        if not listens:
            with suppress(TimeoutError):  # processes that the kernel does not end in time are left behind
                await self.close()
        said = self._take_answer()
        return replace(said, output=output + said.output)

    async def new_excess(self) -> str:
        """See `RunningCommand`."""
        return await self._running.new_excess()

    def take_unfinished(self) -> tuple[bytes, WaitsForInput]:
        """The output so far of a command that has not ended, and whether it waits for somebody to type."""
        return self._spoken.take(), "no" if self._closed else waits_for_input(self._master)

    async def close(self) -> None:
        """Kill the shell and everything that it has started."""
        if self._closed:
            return
        self._closed = True
        self._loop.remove_reader(self._master)
        try:
            await self._running.close()
        finally:
            os.close(self._master)
            os.close(self._commands)
            self._heard.set()

    async def begin(self) -> None:
        """Wait for the shell. Raises TimeoutError, or ChildProcessError with its output if it fails to start."""
        self._type_data(_FIRST.encode())
        self._ask()
        async with asyncio.timeout(_START_S):
            await self._wait_until(self._is_answered)
        if not self._is_answered():
            raise ChildProcessError(self._take_answer().output.decode("utf-8", "replace").strip())
        self._spoken.take()

    async def _is_listening(self) -> bool:
        """Whether it answers, so that late output after Ctrl-C belongs to the interrupted command, not to the next."""
        while not self._is_answered() and self.alive:
            self._ask()
            with suppress(TimeoutError):
                async with asyncio.timeout(_AGAIN_S):
                    await self._wait_until(self._is_answered, patient=True)
        answers = [status for mark in self._asked if (status := self._spoken.status(mark)) is not None]
        if self._spoken.status(self._mark) is None and answers:
            self._mark = next(mark for mark in self._asked if self._spoken.status(mark) is not None)
        return bool(answers)

    def _ask(self) -> None:
        """Have the shell report the status of its last command once more."""
        name, mark = secrets.token_hex(4), secrets.token_hex(16)
        self._asked.append(mark)
        self._spoken.expect(mark)
        os.write(self._commands, f"{name}:{mark}\0".encode())
        self._type_data((_ASK % {"name": name}).encode())

    def _is_reported(self) -> bool:
        return self._spoken.status(self._mark) is not None

    def _is_answered(self) -> bool:
        return any(self._spoken.status(mark) is not None for mark in self._asked)

    def _take_answer(self) -> ShellAnswer:
        self._running.is_idle(True)
        status = self._spoken.status(self._mark)
        report = None if status is None else ShellReport(status, self._directory_of_shell())
        return ShellAnswer(self._spoken.take(), report, self.why)

    def _directory_of_shell(self) -> str:
        """The directory of the shell, as the kernel says, since a command can set PWD."""
        try:
            return quoted(f"{Path(f'/proc/{leader_of(self._master)}/cwd').readlink()}")
        except OSError:  # it has just ended
            return "an unknown directory"

    async def _wait_for_report(self) -> None:
        """Wait for the report of a command. A shell that cannot report is closed: two looks found it without work.

        That is so if a command has set a trap that lets nothing run, or has made readonly what the report needs.
        """
        idle = 0
        while idle < 2:
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_S):
                    await self._wait_until(self._is_reported)
                    return
            idle = idle + 1 if waits_for_command(self._master, self._commands, _COMMANDS) else 0
        self._mute = True
        with suppress(TimeoutError):  # processes that the kernel does not end in time are left behind
            await self.close()

    async def _wait_until(self, done: Callable[[], bool], *, patient: bool = False) -> None:
        """Wait until something was reported, the shell has ended, or, unless `patient`, has written too much."""
        while not done() and self.alive and (patient or not self._spoken.too_much):
            self._heard.clear()
            await first_of(self._heard.wait(), self._running.over.wait())
            if patient and self._spoken.too_much:
                self._spoken.take()
                self._listen_to_terminal()

    def _note_heard(self) -> None:
        try:
            data = os.read(self._master, _PIECE)
            self._spoken.feed(data)
        except OSError:  # the other end is closed
            self._loop.remove_reader(self._master)
        if self._spoken.too_much:  # background output waits until we listen again
            self._loop.remove_reader(self._master)
        self._heard.set()

    def _listen_to_terminal(self) -> None:
        if self._spoken.too_much:
            self._spoken.take()
        if self.alive:
            self._loop.add_reader(self._master, self._note_heard)

    def _type_data(self, data: bytes) -> None:
        """Type into the terminal, after undoing mode changes by the last command."""
        with suppress(termios.error):  # the shell has just ended, which will be noticed soon
            _tidy_terminal(self._master)
        os.write(self._master, data)


async def start_session(sandbox: Sandbox, workspace: Path, disk: int, patience: float = INTERRUPT_S) -> ShellSession:
    """Start a shell. `patience` in seconds, for interrupted commands. Raises `NoSandbox`, OSError, TimeoutError."""
    master, slave = pty.openpty()
    read, write = os.pipe()
    try:
        fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, _PIPE)
        _tidy_terminal(slave)
        inside = Inside(("/bin/bash", "-c", f'eval "{_SHELL}"', "bash", f"{read}"))
        running = await sandbox.start(workspace, disk, inside, TerminalDescriptors(slave, (read,)))
    except BaseException:
        os.close(master)
        os.close(write)
        raise
    finally:
        os.close(slave)
        os.close(read)
    session = ShellSession(running, _Ends(master, write), Spoken(MOST_OUTPUT), patience)
    try:
        await session.begin()
    except BaseException:
        await session.close()
        raise
    return session


def _tidy_terminal(terminal: int) -> None:
    """Set the terminal's modes: no echo, Ctrl-C interrupts, and line ends are written unchanged."""
    modes = termios.tcgetattr(terminal)
    modes[0] |= termios.ICRNL
    modes[1] &= ~termios.OPOST
    modes[3] |= termios.ICANON | termios.ISIG
    modes[3] &= ~(termios.ECHO | termios.ECHOE | termios.ECHOK | termios.ECHONL | termios.ECHOCTL)
    modes[6][termios.VINTR] = _CTRL_C
    termios.tcsetattr(terminal, termios.TCSANOW, modes)
