"""Calls of a turn that people must decide about, and questions to the person.

`talk.py` asks for the decisions about the calls of one answer, and makes none of these calls before all decisions
exist, so that all results go back together. The questions depend only on frozen data, so a resumed turn asks the same
ones. Next: `core/turns/asking.py` for the wording, `journey/approving.py` for who decides.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final, Literal

import structlog
from msgspec import Struct
from msgspec.structs import replace

from switchboard.agents.turns.calls import ToolCaller
from switchboard.core.arguments import complaint
from switchboard.core.passages.own import passages_of
from switchboard.core.planning.guard import asks_after_foreign
from switchboard.core.planning.places import unknown_url
from switchboard.core.planning.records import APPROVAL
from switchboard.core.turns.asking import ASK_USER, digest_of, line_behind
from switchboard.core.turns.entries import read_outside, told_by_others
from switchboard.core.turns.frozen import Frozen, FrozenTool
from switchboard.core.turns.loop import PlannedCall
from switchboard.core.turns.preparing import CallPlan, path_of_plan, plan_call, plan_on_record, tool_of_call
from switchboard.domain.json_values import JsonMapping, JsonObject
from switchboard.ports.engine import Approvals, Ask, Decided, Journal, Parked, Turn
from switchboard.ports.history import EntryCall
from switchboard.ports.tools import AsksFirst, Prepares, Tool, ToolScope
from switchboard.tools.calls import prepare_call

MOST_WAITING: Final = 20
"""How many requests may wait in one conversation of a butler: nobody reads a list that strangers keep extending."""
_FULL: Final = f"not asked: {MOST_WAITING} requests are already waiting in this conversation"
_NOBODY: Final = "nobody can be asked from here"
_IN_GROUP: Final = "nobody can approve it in a group: an owner of the butler can ask for it alone with it"
OUTSIDE: Final = "external text was read before, and may have requested it"
STRANGE: Final = "it names an address that the person has not written, after external text was read"
_HOUR_S: Final = 3600.0
_TELLS_NOBODY: Final = frozenset({"inside", "query"})
"""What reaches no address in its arguments."""

log = structlog.get_logger(__name__)


class _Reason(Struct, frozen=True):
    """Why a call needs an approval. `told`: only because others' words were read."""

    why: str
    told: bool = False


class People(Struct, frozen=True):
    """`scope` returns the scope of a call before it is approved, given whether others' words were read.

    `granted`: the tools that the person may use now.
    """

    turn: Turn
    journal: Journal
    frozen: Frozen
    present: Mapping[str, Tool]
    scope: Callable[[bool], ToolScope | None]
    hours: float
    approvals: Approvals | None
    granted: Callable[[], Awaitable[frozenset[str]]]

    async def decisions(
        self, calls: Sequence[PlannedCall], n: int, read: Iterable[EntryCall] = ()
    ) -> dict[str, Decided]:
        """The decisions, by path, about those calls of answer `n` that people decide about. Raises `Parked`.

        `read`: the calls whose results the model has already read.
        """
        wary = self.wary(read)
        new = [call for call in calls if not self._made_unasked(call)]
        for call in new:
            await self.prepare(call, wary=wary)
        found = {call.path: found for call in new if (found := self._ask(call, wary=wary)) is not None}
        withheld = {
            path: _unasked_decision(ask.why, _IN_GROUP)
            for path, (ask, reason) in found.items()
            if self._withholds(reason)
        }
        asked = {path: ask for path, (ask, _) in found.items() if path not in withheld}
        if not asked:
            return withheld
        if why := await self._nobody(str(n), len(asked)):
            return withheld | {path: _unasked_decision(ask.why, why) for path, ask in asked.items()}
        for path, ask in asked.items():
            await self.journal.expect(event_of(path), within=self.hours * _HOUR_S, ask=ask)
        return withheld | {path: await self.journal.wait(event_of(path)) for path in asked}

    async def prepare(self, call: PlannedCall, *, wary: bool) -> CallPlan | None:
        """What a call would do, recorded once; None if its tool does not say, or is not called with these arguments."""
        tool = self._tool_of(call)
        if tool is None or not self.may_be_prepared(call.made.name) or call.made.malformed:
            return None
        if complaint(call.made.arguments, tool.parameters):
            return None
        if (plan := self.plan_of(call)) is not None:
            return plan

        async def act(_: object) -> JsonObject:
            return (await self._look_up(call, wary=wary)).record()

        await self.journal.step(path_of_plan(call.path), act)
        return self.plan_of(call)

    def may_be_prepared(self, name: str) -> bool:
        """Whether the effect of a tool depends on its arguments."""
        present: object = self.present.get(name)
        return isinstance(present, Prepares)

    def plan_of(self, call: PlannedCall) -> CallPlan | None:
        """What a call would do, as on record; None: nobody has looked."""
        if not self.may_be_prepared(call.made.name):  # plans have hundreds of calls, each of which asks this
            return None
        return plan_on_record(self.journal.on_record(), call.path)

    async def _look_up(self, call: PlannedCall, *, wary: bool) -> CallPlan:
        """With the key that the call has, so that a tool knows what it has begun itself."""
        present, scope = self.present.get(call.made.name), self.scope(wary)
        if present is None or scope is None:
            return CallPlan(wary, f"{call.made.name} is no longer there")
        scope = replace(scope, key=self.journal.key_of(call.path))
        return plan_call(await prepare_call(present, call.made.arguments, scope), wary=wary)

    def _tool_of(self, call: PlannedCall) -> FrozenTool | None:
        return next((one for one in self.frozen.callable_tools if one.name == call.made.name), None)

    def wary(self, read: Iterable[EntryCall]) -> bool:
        """Whether others' words were read when a call is made; `read` as above."""
        own = self.frozen.own or ()
        return told_by_others(self.frozen) or any(read_outside(one, own) for one in read)

    def _made_unasked(self, call: PlannedCall) -> bool:
        """Whether a call was begun without asking, perhaps by an older release: nobody is asked about it now."""
        records = self.journal.on_record()
        return call.path in records and event_of(call.path) not in records

    def _withholds(self, reason: _Reason | None) -> bool:
        """Whether a call is not made because nobody can approve it where the turn answers."""
        return reason is not None and reason.told and not self.frozen.approvable

    async def decision(self, call: PlannedCall, approval: str) -> Decided | None:
        """The decision about one call that needs an approval; None if people have been asked but not decided yet.

        `approval`: why each call of the tool needs one; empty if this one does only because others' words were read.
        """
        tool = next(one for one in self.frozen.callable_tools if one.name == call.made.name)
        made = call.made
        plan = await self.prepare(call, wary=True)  # unless that is on record: nobody knows here what was read
        if plan is not None and plan.refusal:
            return _unasked_decision("it cannot be made", plan.refusal)
        reason = _Reason(approval) if approval else _Reason(self._quoting(OUTSIDE, made.arguments), told=True)
        ask = self._ask_about(call, tool, reason.why)
        if nobody := _IN_GROUP if self._withholds(reason) else await self._nobody(call.path, 1):
            return _unasked_decision(reason.why, nobody)
        await self.journal.expect(event_of(call.path), within=self.hours * _HOUR_S, ask=ask)
        try:
            return await self.journal.wait(event_of(call.path))
        except Parked:
            return None

    async def decision_now(self, call: PlannedCall, approval: str) -> Decided:
        """The same, where nothing else can be done meanwhile. Raises `Parked` while people have not decided."""
        decided = await self.decision(call, approval)
        return await self.journal.wait(event_of(call.path)) if decided is None else decided

    async def reason_not_called(self, tool: FrozenTool, call: PlannedCall, decided: Decided | None) -> str | None:
        """Why a call that was approved, or prepared, is not made after all; None if it is."""
        present, plan = self.present.get(tool.name), self.plan_of(call)
        if plan is not None:
            plan = await self._look_up(call, wary=plan.wary)
            if plan.refusal:
                return plan.refusal
            if plan.begun:  # what was approved is there in part, or all of it: the call finds out, and finishes it
                return await self._reason_not_finished(tool, decided)
        if decided is None:
            needs = plan is not None and plan.approval and not tool.approval
            return f"{tool.name} was not called: by now it needs an approval. Call it again." if needs else None
        if present is None or self._digest(present.spec.parameters, call, plan) != decided.value.get("digest"):
            return f"{tool.name} was not called: it has changed since approval was asked. Call it again."
        if tool.name not in await self.granted():
            return f"{tool.name} was not called: it was approved, but this person may not use it any more."
        return None

    async def _reason_not_finished(self, tool: FrozenTool, decided: Decided | None) -> str | None:
        """Why a call that an earlier attempt has begun is not finished; None if it is."""
        if decided is None or tool.name in await self.granted():
            return None
        return (
            f"{tool.name} was begun and interrupted, and is not finished: this person may not use it any more. "
            "A part of it may have been done."
        )

    async def _nobody(self, n: str, count: int) -> str | None:
        """Why nobody can be asked; None if people are. Recorded in the journal."""
        approvals = self.approvals

        async def look(_: object) -> str | None:
            if approvals is None or not self.frozen.asks:
                return _NOBODY
            return _FULL if await approvals.count(self.turn) + count > MOST_WAITING else None

        found: str | None = await self.journal.step(f"ask:{n}", look)
        return found

    def _ask(self, call: PlannedCall, *, wary: bool) -> tuple[Ask, _Reason | None] | None:
        """The question to people about a call, and why it is asked; None if it is made, or fails, without asking."""
        made, plan = call.made, self.plan_of(call)
        tool = self._tool_of(call)
        if tool is None or made.malformed or complaint(made.arguments, tool.parameters):
            return None
        if plan is not None and plan.refusal:
            return None
        is_question = tool.name == ASK_USER
        reason = None if is_question else self._reason(tool_of_call(tool, plan), call, wary=wary)
        if not (is_question or reason):
            return None
        return self._ask_about(call, tool, reason.why if reason else ""), reason

    def _ask_about(self, call: PlannedCall, tool: FrozenTool, why: str) -> Ask:
        kind: Literal["call", "question"] = "question" if tool.name == ASK_USER else "call"
        plan, arguments = self.plan_of(call), call.made.arguments
        shown = (plan or CallPlan(wary=False)).shown_with(arguments)
        digest = self._digest(tool.parameters, call, plan)
        if kind == "question":
            return Ask(kind, tool.name, shown, why, digest, self.frozen.readers)
        made = tool_of_call(tool, plan)
        return Ask(kind, tool.name, shown, why, digest, self.frozen.readers, made.effect, made.risk)

    def _reason(self, tool: FrozenTool, call: PlannedCall, *, wary: bool) -> _Reason | None:
        """Why a call needs an approval; None if it does not."""
        if tool.approval:
            return _Reason(tool.approval)
        if wary and (why := self._outside(tool, call.made.arguments)):
            return _Reason(why, told=True)
        first = self._first(call, wary=wary)
        return _Reason(first) if first else None

    def _outside(self, tool: FrozenTool, arguments: JsonMapping) -> str:
        """Why a call needs an approval after others' words were read; "" if it does not."""
        if asks_after_foreign(self.frozen.after_foreign, tool):
            return self._quoting(OUTSIDE, arguments)
        if tool.reach in _TELLS_NOBODY or isinstance(self.present.get(tool.name), AsksFirst):
            return ""  # the latter checks addresses itself
        url = unknown_url(arguments, self.frozen.urls, self.frozen.hosts)
        return "" if url is None else self._quoting(STRANGE, arguments)

    def _quoting(self, why: str, arguments: JsonMapping) -> str:
        """The reason with the line of the message from which the call may come, so that its sender can tell."""
        line = line_behind(arguments, passages_of(self.turn.envelope))
        return f"{why}, perhaps as {line}" if line else why

    def _first(self, call: PlannedCall, *, wary: bool) -> str:
        present: object = self.present.get(call.made.name)
        scope = self.scope(wary)
        if scope is None or not isinstance(present, AsksFirst):
            return ""
        try:
            return present.asks_first(call.made.arguments, scope) or ""
        except Exception:
            log.exception("a tool has failed", tool=call.made.name)
            return "it cannot say whether it needs an approval"

    def _digest(self, schema: Mapping[str, object], call: PlannedCall, plan: CallPlan | None) -> str:
        turn = f"{self.turn.request_id}/{self.turn.member.system_id}/{self.turn.segment}/{call.path}"
        turn = turn if plan is None or not plan.digest else f"{turn}/{plan.digest}"
        return digest_of(call.made.name, schema, call.made.arguments, turn)


def _unasked_decision(why: str, text: str) -> Decided:
    return Decided({"decision": "unasked", "why": why, "text": text})


def people_of(caller: ToolCaller) -> People:
    """The people of a turn."""
    around = caller.around
    hours, approvals, granted = around.options.approve_hours, around.approvals, around.granted

    def scope(wary: bool) -> ToolScope | None:
        return caller.scope(wary=wary)

    return People(caller.turn, caller.journal, caller.frozen, around.tools, scope, hours, approvals, granted)


def event_of(path: str) -> str:
    """The step that waits for the decision about a call."""
    return f"{APPROVAL}{path.removeprefix('tool:')}"
