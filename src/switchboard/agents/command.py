"""Engine `command`: any program answers for the butler.

`journey/turn.py` calls `CommandEngine.run`; the program reads the delivery from standard input (`delivery.v1`), writes
the reply to standard output, and reports the outcome by its exit status. Next: `programs.py`, which runs it.

    exit 0    the output is the reply; without output, no reply       75 (EX_TEMPFAIL)  not now: tried again
    exit 65   (EX_DATAERR) refused; the end of stderr is the reason   other             failed: tried again
    cannot be started: the delivery ends at once

Options of the member: `command` (a list, no shell), `timeout` (seconds), `cwd`, `env`, `user` (to run as; only root
can choose), `effect`, `max_output` (bytes), `output` (`text`, or `json` for the three answers of `delivery.py`),
`sandbox` (true: the program is confined, has no network, and can write only to the directory of its turn).
Files that it leaves in the directory SWITCHBOARD_REPLY_FILES are sent with its reply.
An `effectful` program is tried again only after status 75, which promises that nothing has happened; after any other
failure the outcome is unknown.

The program runs in its own session, and nothing in it outlives the turn. If the worker itself is killed with -9, then
on Linux with util-linux's `setpriv` the kernel kills the program, but not the processes that it has started; on other
systems nothing is killed.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Annotated, Final, Literal
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace
from pydantic import Field, PositiveInt

from switchboard.agents.delivery import (
    EngineOptions,
    delivery_json,
    parse_said,
    read_options,
    refusal,
    run_step,
    text_result,
)
from switchboard.agents.files import TurnDirectory, left_in, turn_directory
from switchboard.core.text.storable import storable_text
from switchboard.domain.envelope import Attachment
from switchboard.domain.routing import Member
from switchboard.ports.engine import Engine, EngineContext, EngineFailure, Files, Journal, NoEffect, Turn, TurnResult
from switchboard.ports.sandbox import SandboxRules
from switchboard.ports.tools import QUOTA
from switchboard.sandbox.enclosure import ENVIRONMENT
from switchboard.sandbox.run import NoSandbox, Sandbox
from switchboard.transport.programs import (
    Program,
    ProgramExit,
    ProgramUser,
    account_of,
    death_guard,
    environment_for,
    run_program,
)
from switchboard.transport.scratch import sweep

_NOT_EXECUTED: Final = (126, 127)
_TAIL: Final = 500
_RULES: Final = SandboxRules()


class CommandOptions(EngineOptions):
    """The options of a member with this engine."""

    command: Annotated[tuple[str, ...], Field(min_length=1)]
    cwd: str | None = None
    env: Mapping[str, str] = Field(default_factory=dict)
    user: str | None = None
    max_output: PositiveInt = 1_048_576
    output: Literal["text", "json"] = "text"
    sandbox: bool = False


def engine(context: EngineContext) -> Engine:
    """The entry point `command` of `switchboard.engines`."""
    sweep()
    user, files = context.program_user, context.files
    return CommandEngine(death_guard(), user=user, files=files, sandbox=context.sandbox)


class _Run(Struct, frozen=True):
    """One run of a program: its key, the user that it runs as, and the directory of its turn."""

    key: UUID
    account: ProgramUser | None
    directory: TurnDirectory


class CommandEngine:
    """Runs programs; `guard` precedes each command, `grace` is the seconds from SIGTERM to SIGKILL.

    `user`: the user that they run as, unless the member names another. `sandbox` is for members that want one; its
    processes are killed without being asked to end.
    """

    def __init__(
        self,
        guard: tuple[str, ...] = (),
        *,
        grace: float = 3.0,
        user: str | None = None,
        files: Files | None = None,
        sandbox: SandboxRules = _RULES,
    ) -> None:
        self._guard = guard
        self._grace = grace
        self._user = user
        self._files = files
        self._sandbox = Sandbox(sandbox)

    def check(self, member: Member) -> None:
        """Raises `EngineFailure` that names each wrong option. Does not check that the program exists."""
        options = read_options(CommandOptions, member)
        try:
            self._account_for(options)
        except ValueError as error:
            message = f"the options of {member.system_id} are wrong: user: {error}"
            raise EngineFailure(message, error_class="validation", retryable=False) from error

    def lacking(self, member: Member) -> str | None:
        """The program or the directory that is missing here; None if nothing is."""
        options = read_options(CommandOptions, member)
        program, directory = options.command[0], Path(options.cwd or "")
        if not directory.is_dir():
            return f"the directory {directory} does not exist"
        if options.sandbox and shutil.which("bwrap") is None:
            return "bubblewrap (bwrap), which the option sandbox needs, is not installed"
        ours = ENVIRONMENT["PATH"] if options.sandbox else os.environ.get("PATH", os.defpath)
        path = options.env.get("PATH", ours)
        found = shutil.which(directory / program if os.sep in program else program, path=path)
        return None if found else f"the program {program} does not exist, or may not be executed"

    def _account_for(self, options: CommandOptions) -> ProgramUser | None:
        user = options.user or self._user
        return account_of(user) if user else None

    async def run(self, turn: Turn, journal: Journal) -> TurnResult:
        """Do the turn. Raises `EngineFailure`; a missing program is not retryable."""
        options = read_options(CommandOptions, turn.member)

        async def act(key: UUID) -> TurnResult:
            try:
                account = self._account_for(options)
            except ValueError as error:
                raise _not_there(options, str(error)) from error
            async with _open_directory(options, self._files, turn, account) as directory:
                ended = await self._execute_program(options, turn, _Run(key, account, directory))
                files = () if ended.status else await left_in(directory, self._files, turn)
                return self._result_of(options, ended, files)

        return await run_step(turn, journal, "command", act, options.effect)

    async def _execute_program(self, options: CommandOptions, turn: Turn, run: _Run) -> ProgramExit:
        argv = options.command if options.sandbox else (*self._guard, *options.command)
        try:
            given = delivery_json(turn, run.key, run.directory.files)
            env = _environment_for_run(options, run)
            program = Program(argv, env, options.cwd, given, options.timeout, options.max_output, run.account)
            ended = await self._run_to_end(program, options, run.directory)
        except (NoSandbox, FileNotFoundError, PermissionError, NotADirectoryError, ValueError) as error:
            raise _not_there(options, str(error)) from error
        except OSError as error:
            raise _not_started(options, error) from error
        if ended.late:
            message = f"{options.command[0]} took longer than {options.timeout:g} s and was killed"
            raise EngineFailure(message, error_class="timeout")
        if ended.too_much:
            message = f"{options.command[0]} wrote more than {options.max_output} bytes and was killed"
            raise EngineFailure(message, retryable=False)
        return replace(ended, errors=storable_text(ended.errors).strip()[-_TAIL:])

    async def _run_to_end(self, program: Program, options: CommandOptions, directory: TurnDirectory) -> ProgramExit:
        if not options.sandbox:
            return await run_program(program, self._grace)
        return await self._sandbox.execute(program, directory.root, QUOTA)

    def _result_of(self, options: CommandOptions, ended: ProgramExit, files: Sequence[Attachment]) -> TurnResult:
        match ended.status:
            case 0 if options.output == "json" and ended.output.strip():
                return parse_said(ended.output, files)
            case 0:
                return text_result(ended.output.decode("utf-8", "replace"), files)
            case os.EX_DATAERR:
                return refusal(ended.errors)
            case os.EX_TEMPFAIL:
                raise NoEffect(ended.errors or "the program asks to be tried again later", error_class="overload")
        if ended.status in _NOT_EXECUTED and _not_executed(options).match(ended.errors):
            raise _not_there(options, ended.errors)
        how = f"exit status {ended.status}" if ended.status > 0 else f"killed by signal {-ended.status}"
        raise EngineFailure(f"{options.command[0]}: {how}: {ended.errors}")


def _not_executed(options: CommandOptions) -> re.Pattern[str]:
    """The error reported by the launcher that could not start the program."""
    name = re.escape(options.command[0])
    return re.compile(rf"sh: (?:line )?\d+: (?:exec: )?{name}: " if options.sandbox else "setpriv: failed to execute")


def _not_there(options: CommandOptions, why: str) -> EngineFailure:
    message = f"{options.command[0]} cannot be run: {why}"
    return EngineFailure(message, error_class="target_unavailable", retryable=False)


def _not_started(options: CommandOptions, error: OSError) -> NoEffect:
    """Out of memory, descriptors, processes or disk space: temporary."""
    return NoEffect(f"{options.command[0]} could not be started: {error}", error_class="overload")


@asynccontextmanager
async def _open_directory(
    options: CommandOptions, files: Files | None, turn: Turn, account: ProgramUser | None
) -> AsyncIterator[TurnDirectory]:
    """The directory of the turn. Raises NoEffect if it cannot be created."""
    async with AsyncExitStack() as stack:
        try:
            directory = await stack.enter_async_context(turn_directory(files, turn, account))
        except OSError as error:
            raise _not_started(options, error) from error
        yield directory


def _environment_for_run(options: CommandOptions, run: _Run) -> dict[str, str]:
    ours_alone = {"SWITCHBOARD_IDEMPOTENCY_KEY": str(run.key), "SWITCHBOARD_REPLY_FILES": str(run.directory.reply)}
    if options.sandbox:
        return {**options.env, **ours_alone}
    return {**environment_for(run.account), **options.env, **ours_alone}
