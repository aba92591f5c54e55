"""Engine `command`: any program answers for the butler.

`journey/turn.py` calls `CommandEngine.run`; the delivery enters the program on standard input (`delivery.v1`), the
reply leaves it on standard output, and the exit status says how it went. Next: `http.py`, the same over the network.

    exit 0    the output is the reply; no output, no reply          75 (EX_TEMPFAIL)  not now: tried again
    exit 65   (EX_DATAERR) refused, the end of stderr is why        other             failed: tried again
    cannot be started: the delivery ends at once

Options of the member: `command` (a list, no shell), `timeout` (seconds), `cwd`, `env`, `effect`, `max_output` (bytes),
`output` (`text`, or `json` for the three answers of `delivery.py`). Of an `effectful` program only status 75 is tried
again: it promises that nothing has happened; after any other failure the outcome is unknown.

The program has a session of its own, and nothing in it outlives the turn. If the worker itself is killed with -9, then
on Linux with util-linux's `setpriv` the program is killed by the kernel; what it has started is not, nor is anything on
other systems.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import IO, Annotated, Final, Literal
from uuid import UUID

from pydantic import Field, PositiveInt

from switchboard.agents.delivery import (
    EngineOptions,
    NoEffect,
    delivery_json,
    parse_said,
    read_options,
    refusal,
    run_step,
    text_result,
)
from switchboard.domain.routing import Member
from switchboard.journey.turn import Engine, EngineFailure, Turn, TurnResult
from switchboard.lanes.journal import Journal
from switchboard.store.database import Database, storable_text

_NOT_EXECUTED: Final = (126, 127)
_TAIL: Final = 500
_DRAIN_S: Final = 1.0
"""For what a process that has left our group may still hold of the pipes."""


class CommandOptions(EngineOptions):
    """The options of a member with this engine."""

    command: Annotated[tuple[str, ...], Field(min_length=1)]
    cwd: str | None = None
    env: Mapping[str, str] = Field(default_factory=dict)
    max_output: PositiveInt = 1_048_576
    output: Literal["text", "json"] = "text"


@dataclass(frozen=True, slots=True)
class Ended:
    """How a program ended. `status` is negative for a signal; `errors` is the end of its standard error."""

    status: int
    output: bytes
    errors: str


def engine(_: Database) -> Engine:
    """The entry point `command` of `switchboard.engines`."""
    return CommandEngine(death_guard())


def death_guard() -> tuple[str, ...]:
    """The words before a command that make the kernel kill it when the worker dies; none where that is not to be had.

    Not done between fork and exec in Python (`preexec_fn`), which can deadlock when there are threads.
    """
    setpriv = shutil.which("setpriv") if sys.platform == "linux" else None
    if setpriv is None:
        return ()
    guard = (setpriv, "--pdeathsig", "KILL", "--")
    # BusyBox has a setpriv without this option, so it is tried.
    tried = subprocess.run((*guard, setpriv, "--help"), capture_output=True, timeout=10, check=False)
    return guard if tried.returncode == 0 else ()


class CommandEngine:
    """Runs programs; `guard` goes before each command, `grace` is the seconds from SIGTERM to SIGKILL."""

    def __init__(self, guard: tuple[str, ...] = (), *, grace: float = 3.0) -> None:
        self._guard = guard
        self._grace = grace

    def check(self, member: Member) -> None:
        """Raises `EngineFailure` that names each wrong option. Whether the program is there shows when it is run."""
        read_options(CommandOptions, member)

    async def run(self, turn: Turn, journal: Journal) -> TurnResult:
        """Do the turn. Raises `EngineFailure`; a program that is not there is not retryable."""
        options = read_options(CommandOptions, turn.member)

        async def act(key: UUID) -> TurnResult:
            ended = await self._execute(options, delivery_json(turn, key), _environment(options, key))
            return self._result(options, ended)

        return await run_step(turn, journal, "command", act, options.effect)

    async def _execute(self, options: CommandOptions, delivery: bytes, env: Mapping[str, str]) -> Ended:
        run = _Run(options.max_output)
        transport = await self._start(run, options, delivery, env)
        try:
            async with asyncio.timeout(options.timeout):
                await run.over.wait()
        except TimeoutError as error:
            message = f"{options.command[0]} took longer than {options.timeout:g} s and was killed"
            raise EngineFailure(message, error_class="timeout") from error
        finally:
            await _end(transport, run, self._grace)
        if run.too_much:
            message = f"{options.command[0]} wrote more than {options.max_output} bytes and was killed"
            raise EngineFailure(message, retryable=False)
        return Ended(transport.get_returncode() or 0, bytes(run.output), run.errors())

    async def _start(
        self, run: _Run, options: CommandOptions, delivery: bytes, env: Mapping[str, str]
    ) -> asyncio.SubprocessTransport:
        with _standard_input(delivery) as stdin:
            try:
                transport, _ = await asyncio.get_running_loop().subprocess_exec(
                    lambda: run,
                    *self._guard,
                    *options.command,
                    stdin=stdin,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.PIPE,
                    cwd=options.cwd,
                    env=env,
                    start_new_session=True,
                )
            except (FileNotFoundError, PermissionError, NotADirectoryError, ValueError) as error:
                raise _not_there(options, str(error)) from error
            except OSError as error:  # no memory, no descriptors, no processes: of the moment
                message = f"{options.command[0]} could not be started: {error}"
                raise NoEffect(message, error_class="overload") from error
        return transport

    def _result(self, options: CommandOptions, ended: Ended) -> TurnResult:
        match ended.status:
            case 0 if options.output == "json" and ended.output.strip():
                return parse_said(ended.output)
            case 0:
                return text_result(ended.output.decode("utf-8", "replace"))
            case os.EX_DATAERR:
                return refusal(ended.errors)
            case os.EX_TEMPFAIL:
                raise NoEffect(ended.errors or "the program asks to be tried again later", error_class="overload")
        if self._guard and ended.status in _NOT_EXECUTED and ended.errors.startswith("setpriv: failed to execute"):
            raise _not_there(options, ended.errors)
        how = f"exit status {ended.status}" if ended.status > 0 else f"killed by signal {-ended.status}"
        raise EngineFailure(f"{options.command[0]}: {how}: {ended.errors}")


def _not_there(options: CommandOptions, why: str) -> EngineFailure:
    message = f"{options.command[0]} cannot be run: {why}"
    return EngineFailure(message, error_class="target_unavailable", retryable=False)


def _environment(options: CommandOptions, key: UUID) -> dict[str, str]:
    """From scratch: what is secret in our own environment is none of the program's business."""
    ours = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    base = {"PATH": os.defpath, "LANG": "C.UTF-8", **ours}
    return {**base, **options.env, "SWITCHBOARD_IDEMPOTENCY_KEY": str(key)}


@contextlib.contextmanager
def _standard_input(delivery: bytes) -> Iterator[IO[bytes]]:
    """A file and not a pipe: nobody must feed it, and a program that does not read it breaks nothing."""
    with tempfile.TemporaryFile() as file:
        file.write(delivery)
        file.seek(0)
        yield file


class _Run(asyncio.SubprocessProtocol):
    """Collects what a program writes; `over` is set when it has ended or written too much."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._open = {1, 2}
        self._errors = bytearray()
        self.output = bytearray()
        self.too_much = False
        self.over = asyncio.Event()
        self.exited = asyncio.Event()
        self.drained = asyncio.Event()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        if fd == 2:
            self._errors = (self._errors + data)[-4 * _TAIL :]
        elif len(self.output) + len(data) <= self._most:
            self.output += data
        else:
            self.too_much = True
            self.over.set()

    def pipe_connection_lost(self, fd: int, _: Exception | None) -> None:
        self._open.discard(fd)
        if not self._open:
            self.drained.set()

    def process_exited(self) -> None:
        self.exited.set()
        self.over.set()

    def errors(self) -> str:
        """The last characters of standard error."""
        return storable_text(self._errors.decode("utf-8", "replace")).strip()[-_TAIL:]


async def _end(transport: asyncio.SubprocessTransport, run: _Run, grace: float) -> None:
    """Ask the whole group to end, kill what is left of it, and read what is still in the pipes.

    Also when the program has ended by itself: what it has left behind must neither hold its output open nor live on.
    """
    try:
        if not run.exited.is_set():
            _signal_group(transport.get_pid(), signal.SIGTERM)
            await _within(grace, run.exited)
        _signal_group(transport.get_pid(), signal.SIGKILL)
        await _within(_DRAIN_S, run.drained)
        await _within(_DRAIN_S, run.exited)
    finally:
        _signal_group(transport.get_pid(), signal.SIGKILL)  # if we were cancelled while we waited
        transport.close()


def _signal_group(pid: int, number: signal.Signals) -> None:
    # macOS answers EPERM where only a zombie is left.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


async def _within(seconds: float, event: asyncio.Event) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
