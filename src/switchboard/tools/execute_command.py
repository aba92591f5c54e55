"""The tool `execute_command`: one shell command in the workspace, in a sandbox.

`registry.py` builds it. `sandbox/` limits what happens inside. The output was written by programs, so characters that
control a terminal are shown as `\\x1b` and the like.
"""

from __future__ import annotations

import asyncio
import re
from typing import Final

from switchboard.core.text.visible import escaped
from switchboard.domain.json_values import JsonMapping, JsonObject
from switchboard.ports.tools import NamedTool, ToolOutcome, ToolScope, ToolSpec
from switchboard.sandbox.run import CommandExit, NoSandbox, Sandbox

MOST_SHOWN: Final = 30_000
"""Maximum characters of the output that a model sees."""
LONGEST: Final = 32_000
"""Maximum characters of a command."""
_EXIT_CODE: Final = re.compile(r"exit code (\d+)(?:\n|\Z)")
UNSAYABLE: Final = ToolOutcome("the command was not run: it cannot contain NUL or half a character", ok=False)
"""The outcome for a command that is not `sayable`."""


def one_command(example: str) -> JsonObject:
    """The schema of arguments that consist of one command."""
    command = {"type": "string", "minLength": 1, "maxLength": LONGEST, "description": f"Such as: {example}"}
    return {
        "type": "object",
        "properties": {"command": command},
        "required": ["command"],
        "additionalProperties": False,
    }


EXECUTE_COMMAND: Final = ToolSpec(
    "execute_command",
    "Run one shell command (sh) in the workspace, in a sandbox without network. Returns its exit code and its output."
    " It has no input and no terminal. When it ends, nothing of it goes on running, and only files in the workspace"
    " remain.",
    one_command("sort notes.txt | uniq -c"),
    "effectful",
    "medium",
    most=MOST_SHOWN,
    reach="inside",
)


class ExecuteCommand(NamedTool):
    """See the port."""

    spec: Final = EXECUTE_COMMAND

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox

    async def lacking(self) -> str:
        """Why there is no sandbox here."""
        return await self._sandbox.lacking()

    async def call(self, arguments: JsonMapping, scope: ToolScope) -> ToolOutcome:
        """The exit code and the output; not `ok` unless the code is 0."""
        command = str(arguments["command"])
        if not sayable(command):
            return UNSAYABLE
        written = bytearray()
        try:
            done = await self._sandbox.run(command, scope.workspace, scope.quota, written=written)
        except asyncio.CancelledError:
            return so_far(bytes(written))
        except NoSandbox as none:
            return ToolOutcome(f"the command was not run: {none}", ok=False)
        except OSError as error:
            return ToolOutcome(f"the command could not be started: {error.strerror}", ok=False)
        return _outcome_of(done)


def so_far(output: bytes, note: str = "") -> ToolOutcome:
    """The outcome for a command that was stopped: its output until then."""
    shown = output.decode("utf-8", "replace").rstrip("\n")
    text = f"its output until then:\n{shown}" if shown else "it had written nothing"
    return ToolOutcome(escaped(f"{note}{text}"), ok=False, unfinished=True)


def sayable(command: str) -> bool:
    """Whether a command can be passed to a shell."""
    try:
        return b"\0" not in command.encode()
    except UnicodeEncodeError:
        return False


def _outcome_of(done: CommandExit) -> ToolOutcome:
    head = f"the command was killed: {done.killed}" if done.killed else f"exit code {done.status}"
    left = too_deep(done.left)
    text = escaped(f"{left}{head}\n{done.output.decode('utf-8', 'replace')}".rstrip("\n"))
    return ToolOutcome(text, ok=not done.killed and not left and done.status == 0)


def exit_code_of(outcome: ToolOutcome) -> int | None:
    """The exit code of a command that ended by itself; None: it did not."""
    found = _EXIT_CODE.match(outcome.text)
    return None if found is None else int(found[1])


def too_deep(excess: str) -> str:
    """What a model is told of directories that a command has left, as a line; empty if there is nothing to say."""
    return f"not permitted: {excess}; remove them (rm -r)\n" if excess else ""
