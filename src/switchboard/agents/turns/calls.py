"""One call of a tool in a turn: what it may reach, and its record.

`talk.py` uses it for the calls that a model requests, `agents/trio` for those of plans. In: the frozen data and the
surroundings of the turn; out: a record for the journal. Next: `tools/calls.py`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import datetime
from pathlib import Path
from time import monotonic
from typing import Final
from uuid import UUID

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from switchboard.agents.turns.memory import MemorySources, TurnMemory
from switchboard.agents.turns.options import TurnOptions
from switchboard.core.passages.own import passages_of
from switchboard.core.text.storable import storable_text
from switchboard.core.turns.frozen import Frozen, FrozenTool
from switchboard.domain.envelope import Passage
from switchboard.domain.json_values import JsonMapping, JsonObject
from switchboard.ports.engine import Approvals, Facts, Journal, Turn
from switchboard.ports.models import Models
from switchboard.ports.tools import Keep, PreparedCall, Tool, ToolOutcome, ToolScope
from switchboard.tools.calls import CallLimits, call_tool

MOST_FOUND: Final = 10
"""Pages that may be fetched in a turn because searches have found them."""


class Around(Struct, frozen=True):
    """The surroundings of a turn: everything it works with that is not frozen."""

    models: Models
    tools: Mapping[str, Tool]
    workspace: Path | None
    results: Path | None
    clock: Callable[[], datetime]
    options: TurnOptions
    approvals: Approvals | None
    granted: Callable[[], Awaitable[frozenset[str]]]
    """The tools that the person may use now."""
    keep: Keep | None = None
    """Stores a file for the answer."""
    facts: Facts | None = None
    """What was learned; None: nothing is learned."""
    memory: MemorySources = MemorySources(None, None)
    """What tools of memory read besides."""
    asker: str = "turn"
    """The purpose of requests to models."""
    step: str = ""
    """The step of a plan that the turn carries out; "": it is a turn of its own."""


class CallTerms(Struct, frozen=True):
    """Of one call: its idempotency key, whether a person has approved it, and whether others' words were read.

    `prepared`: what it was to do when it was prepared; None: it was not.
    """

    key: UUID
    approved: bool
    wary: bool
    prepared: PreparedCall | None = None


class ToolCaller:
    """Calls tools for a turn."""

    def __init__(self, turn: Turn, journal: Journal, frozen: Frozen, around: Around) -> None:
        self.turn = turn
        self.journal = journal
        self.frozen = frozen
        self.around = around
        self._limits = CallLimits(around.options.tool_timeout)
        self._limits_of_effects = CallLimits(around.options.tool_timeout, journal.check)
        """For tools that must not be repeated: before one begins, it is checked that nobody has taken over the turn."""
        self._scope = None if around.workspace is None else self._reach(around.workspace)
        self._found: dict[str, None] = {}
        """Pages that searches have found, and that may be fetched like those that the person wrote."""

    def learn(self, urls: Iterable[str]) -> None:
        """Allow pages that a search has found, at most ten in a turn."""
        for url in urls:
            if len(self._found) < MOST_FOUND:
                self._found[url] = None

    async def call(self, tool: FrozenTool, arguments: JsonMapping, terms: CallTerms) -> ToolOutcome:
        """Carry out a call. A failure of the tool is an outcome, not a failure of the turn."""
        present = self.around.tools.get(tool.name)
        if present is None or self._scope is None:
            return ToolOutcome(f"{tool.name} is no longer there", ok=False)
        key, approved, prepared = terms.key, terms.approved, terms.prepared
        urls = self._scope.urls | {*self._found}
        scope = replace(self._scope, urls=urls, key=key, approved=approved, prepared=prepared, tainted=terms.wary)
        limits = self._limits if tool.effect == "idempotent" else self._limits_of_effects
        return await call_tool(present, arguments, scope, limits)

    def scope(self, *, wary: bool) -> ToolScope | None:
        """What a call may touch without an approval; hosts as they were when the turn began. None if nothing.

        `wary`: others' words were read before.
        """
        if self._scope is None:
            return None
        urls, hosts = self._scope.urls | {*self._found}, frozenset(self.frozen.hosts)
        return replace(self._scope, urls=urls, hosts=hosts, tainted=wary)

    def _reach(self, workspace: Path) -> ToolScope:
        """What a call may touch."""
        facts, task = self.around.facts, self.turn.envelope.control.task
        return ToolScope(
            workspace,
            frozenset(self.frozen.urls),
            frozenset(self.around.options.hosts),
            self.turn.request_id,
            self.turn.request_id,
            frozenset(self.around.options.private_hosts),
            self.around.options.workspace_quota,
            results=self.around.results,
            keep=self.around.keep,
            conversation=f"{self.turn.member.system_id} {self.turn.conversation}",
            readers=self.frozen.readers,
            keeps=self.turn.keeps,
            message=_message_of(self.turn),
            cause=self.turn.envelope.control.cause or "message",
            own_text=task is None or task.own,
            memory=None if facts is None else TurnMemory(self.turn, self.frozen, facts, self.around.memory),
            reader=self.frozen.reader,
            zone=self.frozen.zone,
            by_owner=self.frozen.by_owner,
        )


def _message_of(turn: Turn) -> tuple[Passage, ...]:
    """The message; a task that is due has the person's words if it was made in them."""
    passages, task = passages_of(turn.envelope), turn.envelope.control.task
    return tuple(replace(one, kind="own") for one in passages) if task is not None and task.own else passages


def record_of(outcome: ToolOutcome, began: float, *, wary: bool) -> JsonObject:
    """The journal record of a call; `began` is its start by the monotonic clock.

    `wary`: others' words were read before, so what it found is not allowed to be fetched. A resumed turn knows the
    others from here.
    """
    record = record_of_text(outcome.text, ok=outcome.ok, seconds=monotonic() - began)
    found = () if wary else outcome.urls
    made = {"files": outcome.attachments, "remembered": outcome.remembered, "urls": found}
    return record | {name: msgspec.to_builtins(value) for name, value in made.items() if value}


def urls_of_record(record: JsonMapping) -> list[str]:
    """The pages that may be fetched because of a recorded call."""
    urls = record.get("urls")
    return [one for one in urls if isinstance(one, str)] if isinstance(urls, list | tuple) else []


def record_of_text(text: str, *, ok: bool = False, seconds: float = 0.0) -> JsonObject:
    """The record of a call with this text as its result."""
    return {"text": storable_text(text), "ok": ok, "seconds": seconds}
