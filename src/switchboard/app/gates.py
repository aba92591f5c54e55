"""The gates of tasks in a worker: tools that read, and approved commands, with the rights of a task's maker then.

The kernel of the modules hands `WorkerGates` to modules that need it; `app/ops/modules.py` tells it with what turns
work. Tools, grants and limits are those of a turn in which the task is carried out. In: an origin and a gate; out:
whether the call found anything. Next: `agents/turns/equipment.py`.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from uuid import uuid4

from msgspec import Struct
from msgspec.structs import replace

from switchboard.agents.turns.equipment import Equipment
from switchboard.agents.turns.options import tool_options_of
from switchboard.app.runtime import Runtime
from switchboard.core.arguments import complaint
from switchboard.core.envelope.due import envelope_of_firing
from switchboard.core.people.readers import reader_among
from switchboard.core.planning.guard import asks_after_foreign, is_read_only
from switchboard.core.turns.frozen import Frozen, FrozenTool
from switchboard.domain.message import RequestId
from switchboard.domain.routing import Member, spoken_name
from switchboard.ports.channel import Channel
from switchboard.ports.engine import EngineContext, EngineFailure, Turn
from switchboard.ports.facts import Reader
from switchboard.ports.front_door import Firing, Origin
from switchboard.ports.gates import COMMAND, GATE_SECONDS, Gate, GateAnswer
from switchboard.ports.tools import AsksFirst, Prepares, Tool, ToolScope
from switchboard.tools.calls import CallLimits, call_tool
from switchboard.tools.execute_command import exit_code_of

_PLAIN: Final = re.compile(r"[\w./:,@%+-]+(?: +[\w./:,@%+=-]+)*")
"""Words that mean to a shell what they say; the first one sets no variable."""
_NO_PROGRAM: Final = (
    "a command as a condition is a program in the workspace, of at most 10 MB, and plain arguments, such as "
    "./new-mail.sh inbox"
)
_LARGEST: Final = 10_000_000
"""Bytes of a program."""
_NOTHING: Final = frozenset({"", "[]", "{}", "false", "null", "none"})


class _Ready(Struct, frozen=True):
    """A gate that may be called."""

    tool: Tool
    scope: ToolScope


class WorkerGates:
    """Gates over the tools of a worker, once it has any."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._context: EngineContext | None = None

    def open(self, context: EngineContext) -> None:
        """From now on, gates may be called, with the tools of `context`."""
        # Nothing that is remembered of people can be asked for, and nothing is kept running: there is no turn.
        self._context = replace(context, facts=None, closing=None)

    async def find_flaw(self, origin: Origin, gate: Gate) -> str:
        """As in the port."""
        found = await self._find_ready(origin, gate)
        if isinstance(found, str):
            return found
        return _NO_PROGRAM if gate.tool == COMMAND and not await _fingerprint_of(found, gate) else ""

    async def fingerprint_of(self, origin: Origin, gate: Gate) -> str:
        """As in the port."""
        found = await self._find_ready(origin, gate)
        return "" if isinstance(found, str) else await _fingerprint_of(found, gate)

    async def check(self, origin: Origin, gate: Gate) -> GateAnswer:
        """As in the port."""
        found = await self._find_ready(origin, gate)
        if isinstance(found, str):
            return GateAnswer("failed", found)
        if gate.tool == COMMAND and await _fingerprint_of(found, gate) != gate.fingerprint:
            return GateAnswer("failed", "the program is not as it was approved")
        outcome = await call_tool(found.tool, gate.arguments, found.scope, CallLimits(GATE_SECONDS))
        if gate.tool == COMMAND and exit_code_of(outcome) == 1:
            return GateAnswer("nothing")
        if not outcome.ok:
            return GateAnswer("failed", outcome.why or outcome.text)
        if gate.tool == COMMAND:
            return GateAnswer("found")
        return GateAnswer("nothing" if outcome.text.strip().lower() in _NOTHING else "found")

    async def _find_ready(self, origin: Origin, gate: Gate) -> _Ready | str:
        """The tool and what it may touch, or why it cannot be called."""
        member = self._runtime.rule_book.rules.members.get(origin.system_id)
        if member is None or self._context is None:
            return f"{spoken_name(origin.system_id)} has no tools now"
        readers = _OriginReaders(origin.facts, self._runtime.channels[origin.channel])
        try:
            return await _find_call(Equipment(replace(self._context, readers=readers)), _turn_of(member, origin), gate)
        except EngineFailure as error:
            return str(error)


class _OriginReaders(Struct, frozen=True):
    """Who reads what is due: what is known of the message that made the task, as there is no other yet."""

    facts: Mapping[str, str]
    channel: Channel

    async def of(self, turn: Turn) -> Reader:
        """As in the port."""
        return reader_among(turn.member.system_id, turn.conversation, turn.envelope, self.facts, self.channel)


async def _fingerprint_of(ready: _Ready, gate: Gate) -> str:
    return await asyncio.to_thread(_hash_command, str(gate.arguments.get("command", "")), ready.scope.workspace)


def _hash_command(command: str, workspace: Path) -> str:
    """Of the command and of the program that is its first word; empty: it is more than a program and its arguments.

    What a shell does with a word might name another file later, so nothing of the kind is taken.
    """
    words = command.split() if _PLAIN.fullmatch(command) else []
    top = workspace.resolve()
    file = (top / words[0]).resolve() if words and "/" in words[0] else top
    if not (file.is_relative_to(top) and file.is_file() and file.stat().st_size <= _LARGEST):
        return ""
    found = hashlib.sha256(file.read_bytes())
    found.update(f"\0{command}".encode())
    return found.hexdigest()


def _turn_of(member: Member, origin: Origin) -> Turn:
    """The turn in which it would be carried out."""
    now = datetime.now(UTC)
    firing = Firing(origin=origin, task_id="gate", revision=0, due=now, made_at=now, text="")
    envelope = envelope_of_firing(firing, now)
    return Turn(member, member.team_id, RequestId(uuid4()), origin.conversation, envelope, now)


async def _find_call(equipment: Equipment, turn: Turn, gate: Gate) -> _Ready | str:
    options = tool_options_of(turn.member)
    tools = await equipment.tools_of(turn.member)
    frozen = await equipment.freeze_call(turn, options, tools)
    if why := _find_objection(frozen, tools, gate):
        return why
    workspace = equipment.workspace_of(turn.member, options)
    if workspace is None:
        return f"{spoken_name(turn.member.system_id)} has no workspace"
    scope = ToolScope(
        workspace,
        *(frozenset(), frozenset(options.hosts), turn.request_id, turn.request_id, frozenset(options.private_hosts)),
        options.workspace_quota,
        conversation=f"{turn.member.system_id} {turn.conversation}",
        readers=frozen.readers,
        cause="reminder",
        own_text=False,
        reader=frozen.reader,
        zone=frozen.zone,
        tainted=gate.tainted,
    )
    return _Ready(tools[gate.tool], scope)


def _find_objection(frozen: Frozen, tools: Mapping[str, Tool], gate: Gate) -> str:
    usable = {one.name: one for one in frozen.tools if not _objection_to(one, tools[one.name])}
    granted = next((one for one in frozen.tools if one.name == gate.tool), None)
    if granted is None:
        return f"{gate.tool!r} is no tool that this person may use; {_choice_of(usable)}"
    if why := _objection_to(granted, tools[gate.tool]):
        return f"{gate.tool} {why}; {_choice_of(usable)}"
    if gate.tainted and asks_after_foreign(frozen.after_foreign, granted):
        return f"{gate.tool} would need an approval, since others' words were read before"
    if wrong := complaint(gate.arguments, granted.parameters):
        return f"the arguments of {gate.tool} are wrong: {wrong}"
    return ""


def _objection_to(granted: FrozenTool, tool: Tool) -> str:
    """Why a tool cannot be a condition."""
    if granted.name == COMMAND:
        return ""
    if not is_read_only(granted) or granted.reach == "outside":
        return "does more than read"
    if granted.approval or isinstance(tool, AsksFirst | Prepares):
        return "may need an approval, which nobody gives when the task is due"
    return ""


def _choice_of(usable: Mapping[str, FrozenTool]) -> str:
    return f"a condition may be one of: {', '.join(sorted(usable)) or 'none'}"
