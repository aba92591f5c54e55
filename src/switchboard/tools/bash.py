"""The tool `bash`: runs commands in the shell of a conversation and its readers, which keeps what they set.

`registry.py` builds it. A shell lives only in this process, so the turns of its conversation are offered to this
process first. On another worker, after half an hour without a command, or when the shell has ended, the next command
begins a new one, and says so; so does this process when a conversation returns to it. Next: `sandbox/session.py`.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from switchboard.core.text.visible import escaped
from switchboard.domain.errors import Unavailable
from switchboard.domain.json_values import JsonMapping
from switchboard.ports.tools import NamedTool, ToolOutcome, ToolScope, ToolSpec
from switchboard.sandbox.reading import WaitsForInput
from switchboard.sandbox.run import MOST_OUTPUT, NoSandbox, Sandbox
from switchboard.sandbox.session import INTERRUPT_S, ShellAnswer, ShellSession, start_session
from switchboard.tools.execute_command import MOST_SHOWN, UNSAYABLE, one_command, sayable, so_far, too_deep

IDLE_S: Final = 1800.0
"""Seconds that a shell waits for a command before it is ended."""
MOST_SESSIONS: Final = 16
"""Maximum of shells in one process; to start another, the one that has been idle longest is ended."""

BASH: Final = ToolSpec(
    "bash",
    "Run a command in the bash session of this conversation, in a sandbox without network. It begins in the workspace;"
    " directory, variables, functions and background jobs stay for the next command. It has a terminal, but nobody"
    " types there. Returns the exit code, the directory and the output, and says when the session is new.",
    one_command("cd src && make"),
    "effectful",
    "medium",
    most=MOST_SHOWN,
    reach="inside",
)

_LONGEST_PROMPT: Final = 500
_UNSAID: Final = "a new session since the last command that ended: nothing is set that was set until then\n"
_WAITS: Final[Mapping[WaitsForInput, str]] = {
    "surely": "it waits for input{}\n",
    "perhaps": "it may wait for input{}\n",
    "no": "",
}
_Key = tuple[Path, str, str]
"""Workspace, conversation, readers."""


@dataclass(slots=True)
class _Kept:
    """The shell of one conversation, if there is one; `ending` is the clean-up after a cancelled command.

    `keeper` is the number that this process had as a worker when it ran the last command of the conversation, for
    whichever readers; `stale`: there may have been a shell for these elsewhere since. `unsaid` is what the model must
    still be told, if that command, and perhaps others before it, was stopped.
    """

    session: ShellSession | None = None
    keeper: int | None = None
    stale: bool = False
    unsaid: str = ""
    ending: asyncio.Task[object] | None = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    expiry: asyncio.TimerHandle | None = None


class Bash(NamedTool):
    """See the port."""

    spec: Final = BASH

    def __init__(
        self, sandbox: Sandbox, *, idle: float = IDLE_S, most: int = MOST_SESSIONS, patience: float = INTERRUPT_S
    ) -> None:
        self._sandbox = sandbox
        self._idle = idle
        self._most = most
        self._patience = patience
        self._kept: dict[_Key, _Kept] = {}
        self._expiring: set[asyncio.Task[None]] = set()

    async def lacking(self) -> str:
        """What a shell needs but is missing here."""
        gone = [name for name in ("bash", "setsid") if shutil.which(name, path="/usr/bin:/bin") is None]
        return f"{gone[0]} is not installed" if gone else await self._sandbox.lacking()

    async def call(self, arguments: JsonMapping, scope: ToolScope) -> ToolOutcome:
        """The exit code, the directory and the output; not `ok` unless the code is 0."""
        command = str(arguments["command"])
        if not sayable(command):
            return UNSAYABLE
        kept = self._kept.setdefault(_key(scope), _Kept())
        async with kept.lock:
            if kept.expiry:
                kept.expiry.cancel()
            try:
                return await self._run(kept, command, scope)
            except (NoSandbox, Unavailable) as none:
                return ToolOutcome(f"the command was not run: {none}", ok=False)
            except TimeoutError:
                return ToolOutcome("the session does not answer; the next command begins a new one", ok=False)
            except OSError as error:
                return ToolOutcome(f"the session could not be started: {error}", ok=False)
            finally:
                self._let_wait(scope, kept)

    async def close(self) -> None:
        """End all shells."""
        for key, kept in [*self._kept.items()]:  # a copy: idle shells may expire meanwhile
            await self._end(key, kept)

    async def _run(self, kept: _Kept, command: str, scope: ToolScope) -> ToolOutcome:
        if kept.ending is not None:
            await asyncio.wait((kept.ending,))
            kept.ending = None
        if not await self._keeps(kept, scope):
            return ToolOutcome("the command was not run: another worker has taken over this turn", ok=False)
        begun = kept.unsaid
        if kept.session is None or not kept.session.alive:
            why = kept.session.why if kept.session else ""
            begun = f"a new session: nothing is set that was set before{why and f' (the last one was killed: {why})'}\n"
            kept.unsaid = _UNSAID
            await self._make_room()
            await self._close(kept)
            kept.session = await start_session(self._sandbox, scope.workspace, scope.quota, self._patience)
        session = kept.session
        try:
            said = await session.run(command)
        except asyncio.CancelledError:
            output, waits = session.take_unfinished()
            kept.ending = asyncio.ensure_future(session.interrupt())
            return so_far(output, begun + _WAITS[waits].format(_last_line(output)))
        late = said.report is None and session.alive
        if late:
            said = replace(await session.interrupt(), output=said.output)
        if said.report is None:
            await self._close(kept)
        kept.unsaid = ""
        left = too_deep(await session.new_excess())
        return _outcome_of(said, begun + left, ok=not late and not left, too_much=late)

    async def _keeps(self, kept: _Kept, scope: ToolScope) -> bool:
        """Ask for the next turns to come here. If there was a shell elsewhere since, ours is out of date, and ends."""
        if scope.keeps is None:
            return True
        said = await scope.keeps(self._idle)
        now = None if said is None else said.now
        mates = [one for key, one in self._kept.items() if key[:2] == _key(scope)[:2]]
        known = next((one.keeper for one in mates if one.keeper is not None), None)
        for one in mates:  # it was elsewhere with all its readers, perhaps
            one.stale = one.stale or (said is not None and said.before != known)
            one.keeper = now
        if kept.stale:
            await self._close(kept)
            kept.stale = False
        return said is not None

    async def _make_room(self) -> None:
        """End the shell that has been idle longest, which is the first, if there are too many."""
        living = [key for key, kept in self._kept.items() if kept.session is not None]
        waiting = [key for key in living if not self._kept[key].lock.locked()]
        if len(living) >= self._most and waiting:
            await self._end(waiting[0], self._kept[waiting[0]])

    def _let_wait(self, scope: ToolScope, kept: _Kept) -> None:
        key = _key(scope)
        self._kept.pop(key, None)
        self._kept[key] = kept  # at the end: it has been idle for the shortest time
        loop = asyncio.get_running_loop()
        kept.expiry = loop.call_later(self._idle, self._expire, key, kept)

    def _expire(self, key: _Key, kept: _Kept) -> None:
        if not kept.lock.locked():
            task = asyncio.ensure_future(self._end(key, kept))
            self._expiring.add(task)
            task.add_done_callback(self._expiring.discard)

    async def _end(self, key: _Key, kept: _Kept) -> None:
        if kept.expiry:
            kept.expiry.cancel()
        if self._kept.get(key) is kept:
            del self._kept[key]
        async with kept.lock:
            await self._close(kept)

    async def _close(self, kept: _Kept) -> None:
        session, kept.session = kept.session, None
        if session is not None:
            with suppress(OSError):  # it did not end in time
                await session.close()


def _key(scope: ToolScope) -> _Key:
    return scope.workspace, scope.conversation, scope.readers


def _last_line(output: bytes) -> str:
    """What a command has written last, if it has not ended the line: perhaps it asks for something."""
    line = output.rpartition(b"\n")[2].decode("utf-8", "replace")[-_LONGEST_PROMPT:].rstrip()
    return f": {line}" if line else ""


def _outcome_of(said: ShellAnswer, begun: str, *, ok: bool, too_much: bool) -> ToolOutcome:
    report = said.report
    if report is None:
        head = f"the session has ended{': ' + said.why if said.why else ''}; the next command begins a new one"
    else:
        head = f"exit code {report.status}, in {report.directory}"
    interrupted = f"it was interrupted: it wrote more than {MOST_OUTPUT} bytes\n" if too_much else ""
    text = escaped(f"{begun}{interrupted}{head}\n{said.output.decode('utf-8', 'replace')}".rstrip("\n"))
    return ToolOutcome(text, ok=ok and report is not None and report.status == 0)
