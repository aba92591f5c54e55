"""A talk with a model: requests, calls and their results, each a step of the journal.

An engine creates a `Talk` from frozen data and calls `run`. `core/turns/loop.py` decides each next act from the records
alone, so a resumed turn takes the same course.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any, Final
from uuid import UUID

import msgspec
import structlog
from msgspec import structs

from switchboard.agents.turns.again import request_name, wait_for_models
from switchboard.agents.turns.asking import people_of
from switchboard.agents.turns.calls import Around, CallTerms, ToolCaller, record_of, record_of_text, urls_of_record
from switchboard.agents.turns.requests import (
    ModelUse,
    failure_of,
    generated_tokens,
    joined,
    may_be_its_fault,
    record_of_request,
)
from switchboard.agents.turns.telling import Telling
from switchboard.core.planning.guard import is_read_only
from switchboard.core.text.outside import outside_json
from switchboard.core.text.storable import storable_text
from switchboard.core.turns.asking import ASK_USER, answer_of, explain_no_answer, not_called
from switchboard.core.turns.entries import entry_call, exchange_of
from switchboard.core.turns.fitting import Moved, Said, fit, shorter
from switchboard.core.turns.frozen import Frozen, FrozenTool
from switchboard.core.turns.images import FrozenImage, left_out
from switchboard.core.turns.limits import may_generate
from switchboard.core.turns.loop import (
    LoopProgress,
    PlannedCall,
    Run,
    SendRequest,
    TurnEnd,
    apply_reply,
    begin,
    carried_out,
    day_spent,
    end_if_at_limit,
    next_step,
)
from switchboard.core.turns.offering import MODULE_TOOLS, answer_asking, offered_tools
from switchboard.core.turns.preparing import tool_of_call
from switchboard.core.turns.render import messages, without_unanswered
from switchboard.core.turns.stop import STOPPED
from switchboard.domain.envelope import Attachment
from switchboard.domain.json_values import JsonMapping, JsonObject
from switchboard.domain.llm import Image, ModelFailure, Reply, Report, Request, ToolCall, ToolResult
from switchboard.ports.engine import (
    Answer,
    Costed,
    Decided,
    EngineFailure,
    Journal,
    OutcomeUnknown,
    Parked,
    Refusal,
    Turn,
    TurnResult,
)
from switchboard.ports.facts import OwnWords
from switchboard.ports.history import Entry, EntryCall
from switchboard.ports.models import Asking
from switchboard.tasks import cancel_tasks, unless
from switchboard.tools.inbox import read_image
from switchboard.tools.results import QUOTA
from switchboard.tools.threads import StopSignal
from switchboard.tools.workspace import RESULTS, FileToWrite, ToolRefusal, write

log = structlog.get_logger(__name__)

GONE: Final = "not available any more"
"""The note for a removed image."""
_AT_ONCE: Final = 4
_LAST_S: Final = 60.0
"""Seconds for a last request after the time of its turn is up."""
_HIGH_RISK: Final = (
    "{name} was not called: its risk is high, so nobody may use it unless the operator grants it by name (the option "
    "`grants` of this butler). Tell the person so; trying again will not help."
)
_UNKNOWN: Final = (
    "outcome unknown: this call was begun and interrupted; it may or may not have taken effect. "
    "Find out before you repeat it."
)


class _HaltError(Exception):
    """The turn must end before its next act."""


class Talk:
    """A running turn."""

    def __init__(self, turn: Turn, journal: Journal, frozen: Frozen, around: Around) -> None:
        self._turn = turn
        self._journal = journal
        self._frozen = frozen
        self._around = around
        self._tools = {tool.name: tool for tool in frozen.callable_tools}
        self._history: tuple[Entry, ...] = tuple(frozen.history)
        """What was said before, as the model is shown it."""
        self._use = ModelUse()
        self._calls: list[EntryCall] = []
        self._unknown: list[str] = []
        self._files: dict[str, Attachment] = {}
        """The files for the answer, by name; a later file replaces an earlier one."""
        self._refused = 0
        """How many requests of this attempt were too long."""
        self._asked_modules: set[str] = set()
        """The modules whose further tools the model has asked for."""
        self._remembered: dict[OwnWords, None] = {}
        """Words of the person that calls have kept, each once."""
        self._written = ""
        """The text of the last recorded answer."""
        self._open: dict[str, tuple[ToolCall, JsonMapping | None]] = {}
        """Calls of the last answer that have begun, by path, with their records, once they exist."""
        self._telling = Telling(turn.on_delta)
        self._caller = ToolCaller(turn, journal, frozen, around)
        self._people = people_of(self._caller)
        self._decisions: dict[str, Decided] = {}
        """People's decisions about calls of the last answer, by path."""

    async def run(self) -> TurnResult:
        """Run from the first unrecorded request to the end, or until stopped."""
        result = await self._unless_stopped()
        if result is None:
            return self._result(Answer(await self._record_stop(), stop_reason="aborted"))
        return result

    async def _unless_stopped(self) -> TurnResult | None:
        """The result; None if the turn was stopped, and then nothing of it runs any more.

        A turn that was stopped earlier replays its records, to collect what was written and done until then.
        """
        stop = self._turn.stop
        if stop is None:
            return await self._through()
        try:
            return await (self._through() if stop.is_set() else unless(stop.wait(), self._through()))
        except _HaltError:
            return None

    def _go_on(self) -> None:
        """Check, before every act, whether to continue. Raises `_HaltError`."""
        if self._turn.stop is not None and self._turn.stop.is_set():
            raise _HaltError

    async def _record_stop(self) -> str:
        """The text written until the stop, taken from the record, since a crash may follow."""
        for made, record in self._open.values():
            if record is None and self._tools[made.name].effect == "effectful":
                self._unknown.append(f"{made.name} was stopped, outcome unknown")
            self._remember(made, record or record_of_text("stopped, outcome unknown"))
        self._open.clear()

        async def said(_: UUID) -> str:
            return storable_text(self._telling.text or self._written).strip() or STOPPED

        text: str = await self._journal.step("stopped", said)
        return text

    async def _through(self) -> TurnResult:
        progress: LoopProgress | TurnResult = await self._begin_progress()
        while isinstance(progress, LoopProgress):
            match next_step(progress, self._frozen.limits):
                case SendRequest() as ask:
                    progress = await self._ask_model(progress, ask)
                case Run(calls):
                    progress = await self._carried_out(progress, calls)
                case TurnEnd(text, stop_reason):
                    progress = self._result(Answer(text, stop_reason=stop_reason))
        return progress

    async def _begin_progress(self) -> LoopProgress:
        """The progress at the start, with images except those removed since."""
        frozen = self._frozen
        found = await images_in(self._around.results, frozen.images)
        gone = [one for one in frozen.images if one not in found]
        return begin(frozen.opening + left_out(gone, GONE), list(found.values()))

    def _result(self, answer: Answer) -> Answer:
        """The result with its cost and the new history entries."""
        self._telling.end(answer.text)
        entries = exchange_of(self._turn, self._frozen, answer.text, self._calls)
        warning = "; ".join((*self._frozen.lacking, *self._unknown))
        return structs.replace(
            answer,
            usage=self._use.usage,
            entries=entries,
            warning=warning,
            attachments=tuple(self._files.values()),
            remembered=tuple(self._remembered),
        )

    # Requests ---------------------------------------------------------------------------------------------------------

    async def _ask_model(self, progress: LoopProgress, ask: SendRequest) -> LoopProgress | TurnResult:
        progress = await self._fit_progress(progress)
        request, left = self._request(progress, ask), self._frozen.limits.seconds - progress.used.seconds
        request = replace(request, deadline=max(left, _LAST_S))
        reserved = 0 if self._frozen.limits.generated is None else request.max_tokens

        async def act(_: UUID) -> Costed:
            self._go_on()
            self._telling.restart(ask.n)
            began, moved = monotonic(), list[Moved]()
            report = await self._report(progress, ask, request, moved)
            self._refused += sum(one.outcome == "context_too_long" for one in report.attempts)
            await self._keep(moved)
            try:
                return record_of_request(report, monotonic() - began, last=not ask.tools, reserved=reserved)
            except ModelFailure as failure:
                raise await self._failure(failure, ask.n) from failure

        record = await self._journal.step(f"request:{ask.n}", act, reserve=reserved)
        return self._apply_reply(progress, record)

    async def _report(self, progress: LoopProgress, ask: SendRequest, request: Request, moved: list[Moved]) -> Report:
        """Ask, and if that fails, once without what was asked before and never answered: that may be the reason."""
        began = monotonic()
        report = await self._around.models.ask(request, self._asking(progress, ask.n, moved))
        history = without_unanswered(self._history)
        reserved = self._frozen.limits.generated is not None and generated_tokens(report, 1)
        if reserved or not may_be_its_fault(report) or history == self._history:
            return report
        before, self._history = self._history, history
        left = max(request.deadline - (monotonic() - began), _LAST_S)
        asking = self._asking(progress, ask.n, moved)
        asking = structs.replace(asking, again=None, name=f"{asking.name} without")
        found = await self._around.models.ask(replace(self._request(progress, ask), deadline=left), asking)
        if found.reply is None:
            self._history = before
        return joined(report, found)

    def _apply_reply(self, progress: LoopProgress, record: JsonMapping) -> LoopProgress | TurnResult:
        limits = self._frozen.limits
        if "refused" in record:
            usage = self._use.usage
            return Refusal(f"the model refused: {record['refused']}", stop_reason="refused", usage=usage)
        if "spent" in record:
            return day_spent(progress)
        if "failed" in record:
            return end_if_at_limit(progress, limits) or progress
        reply = msgspec.convert(record["reply"], Reply)
        self._written = reply.text or self._written
        self._use.book(reply)
        micros = round((reply.usage.cost_usd or 0.0) * 1_000_000)
        return apply_reply(progress, reply, limits, seconds=record["seconds"], micros=micros)

    def _request(self, progress: LoopProgress, ask: SendRequest) -> Request:
        frozen = self._frozen
        return Request(
            messages(self._history, progress.messages, frozen.zone),
            system=frozen.system,
            tools=tuple(tool.offered for tool in offered_tools(frozen, self._asked_modules)),
            no_calls=not ask.tools,
            max_tokens=may_generate(frozen.limits, progress.used, frozen.max_tokens, last=not ask.tools),
            whole=False,
            key=f"{self._turn.request_id}",
        )

    def _asking(self, progress: LoopProgress, n: int, moved: list[Moved]) -> Asking:
        """How to send request `n`. `moved` receives parts that a model with a smaller context must read from files."""
        said = Said(self._history, progress.messages, self._frozen.zone)

        def shortened(request: Request, tokens: int) -> Request:
            found, files = shorter(request, said, tokens, self._folder)
            moved.extend(files)
            return found

        on_share_of = None if self._frozen.by_owner else self._turn.request_id
        reserved = self._frozen.limits.generated is not None
        return Asking(
            self._frozen.models,
            self._around.asker,
            shorter=shortened,
            on_delta=self._telling.hear,
            on_share_of=on_share_of,
            ready=self._journal.flush,  # otherwise a crash might lose two answered requests
            butler=self._turn.member.system_id,
            again=wait_for_models(self._turn, reserved=reserved),
            name=request_name(self._turn, f"{self._around.step}/request:{n}"),
            refused=self._refused,
        )

    async def _fit_progress(self, progress: LoopProgress) -> LoopProgress:
        """The progress, its oldest results replaced by references to files if the context is too small."""
        request = self._request(progress, SendRequest(0, ()))
        fitted, moved = fit(request, progress.messages, self._frozen.window, self._folder)
        await self._keep(moved)
        return structs.replace(progress, messages=fitted)

    @property
    def _folder(self) -> str:
        return f"{RESULTS}/{self._turn.request_id}"

    async def _keep(self, moved: Sequence[Moved]) -> None:
        if moved and self._around.results is not None:
            quota = min(QUOTA, self._around.options.workspace_quota)
            await asyncio.to_thread(_write, self._around.results, moved, self._turn.request_id, quota)

    async def _failure(self, failure: ModelFailure, n: int) -> EngineFailure:
        """What an unanswered request means for the turn."""
        return await failure_of(failure, self._journal, f"outage:{n}", self._around.clock)

    # Calls ------------------------------------------------------------------------------------------------------------

    async def _carried_out(self, progress: LoopProgress, calls: Sequence[PlannedCall]) -> LoopProgress:
        self._decisions = await self._await_decisions(calls, progress.used.requests)
        records: dict[str, JsonMapping] = {}
        seconds = 0.0
        for group in self._groups(calls):
            done = await _together([self._call(call) for call in group])
            records |= {call.path: record for call, record in zip(group, done, strict=True)}
            seconds += max(record["seconds"] for record in done)
        results = [ToolResult(c.made.id or "", records[c.path]["text"], records[c.path]["ok"]) for c in calls]
        self._calls += [self._entry_call_of(call.made, result) for call, result in zip(calls, results, strict=True)]
        for call in calls:
            self._attach(records[call.path])
            self._caller.learn(urls_of_record(records[call.path]))
        self._open.clear()
        return carried_out(progress, results, seconds=seconds)

    async def _await_decisions(self, calls: Sequence[PlannedCall], n: int) -> dict[str, Decided]:
        """The decisions; a turn that must end does not wait for them. Raises `Parked`, `_HaltError`."""
        try:
            return await self._people.decisions(calls, n, self._read())
        except Parked:
            self._go_on()
            raise

    def _read(self) -> list[EntryCall]:
        """The calls whose results the model has read."""
        return self._calls

    def _entry_call_of(self, made: ToolCall, result: ToolResult) -> EntryCall:
        return entry_call(made, result, self._frozen.own or ())

    def _groups(self, calls: Sequence[PlannedCall]) -> list[list[PlannedCall]]:
        """Calls that change nothing may run in parallel; all others wait for those before them."""
        groups: list[list[PlannedCall]] = []
        beside = False
        for call in calls:
            tool = self._tools.get(call.made.name)
            plan = self._people.plan_of(call)
            free = tool is not None and is_read_only(tool_of_call(tool, plan))
            if free and beside:
                groups[-1].append(call)
            else:
                groups.append([call])
            beside = free
        return groups

    async def _call(self, call: PlannedCall) -> JsonMapping:
        """The record of a call; the call counts as open until all calls of its answer have ended."""
        record = await self._record(call)
        self._open[call.path] = call.made, record
        return record

    async def _record(self, call: PlannedCall) -> JsonMapping:
        """The present or future journal record of a call."""
        tool = self._tools.get(call.made.name)
        if tool is None:
            return self._record_without_tool(call.made)
        if call.made.malformed:
            return record_of_text(f"the arguments are not a JSON object: {call.made.malformed[:200]!r}")

        decided, plan = self._decisions.get(call.path), self._people.plan_of(call)
        if plan is not None and plan.refusal:
            return record_of_text(plan.refusal)
        tool = tool_of_call(tool, plan)
        return await self._make_call(tool, call, decided)

    async def _make_call(self, tool: FrozenTool, call: PlannedCall, decided: Decided | None) -> JsonMapping:
        """The record of a call of a tool as it is with these arguments."""
        if decided is not None and (ended := _instead(tool.name, decided)) is not None:
            return ended

        async def act(key: UUID) -> JsonObject:
            self._go_on()
            if (why := await self._people.reason_not_called(tool, call, decided)) is not None:
                return record_of_text(why)
            self._open[call.path] = call.made, None
            return await self._carry_out_call(tool, call, key)

        try:
            # `ask` calls the tool again with the same key, which `queryable` allows.
            record: JsonMapping = await self._journal.step(call.path, act, effect=tool.effect, ask=act)
        except OutcomeUnknown:
            self._unknown.append(f"{call.made.name} was interrupted, outcome unknown ({call.path})")
            log.warning("outcome of a tool unknown", request_id=str(self._turn.request_id), tool=tool.name)
            return record_of_text(_UNKNOWN)
        return record

    def _record_without_tool(self, made: ToolCall) -> JsonMapping:
        """The record of a call that needs no tool, or for which there is none; always the same."""
        if made.name == MODULE_TOOLS and (told := answer_asking(self._frozen.later, made.arguments)):
            self._asked_modules.add(str(made.arguments["module"]))
            return record_of_text(told, ok=True)
        if made.name in self._frozen.withheld:
            return record_of_text(_HIGH_RISK.format(name=made.name))
        return record_of_text(f"there is no tool {made.name!r}; there are: {', '.join(self._tools) or 'none'}")

    async def _carry_out_call(self, tool: FrozenTool, call: PlannedCall, key: UUID) -> JsonObject:
        """Carry out a call and return its result for the model."""
        began = monotonic()
        self._telling.call(tool.name, call.made.arguments)
        approved, wary = call.path in self._decisions, self._people.wary(self._read())
        plan = self._people.plan_of(call)
        terms = CallTerms(key, approved, wary, None if plan is None else plan.prepared)
        outcome = await self._caller.call(tool, call.made.arguments, terms)
        self._telling.end_call(tool.name, ok=outcome.ok)
        return record_of(outcome, began, wary=wary)

    def _remember(self, made: ToolCall, record: JsonMapping) -> None:
        """Add a call and its result to the history."""
        self._attach(record)
        self._calls.append(self._entry_call_of(made, ToolResult(made.id or "", record["text"], record["ok"])))

    def _attach(self, record: JsonMapping) -> None:
        """Add what a call has made to the result: files for the answer, and what is to be remembered."""
        self._remembered |= dict.fromkeys(msgspec.convert(record.get("remembered", ()), tuple[OwnWords, ...]))
        for one in msgspec.convert(record.get("files", ()), tuple[Attachment, ...]):
            name = one.filename or ""
            self._files.pop(name, None)
            self._files[name] = one


async def images_in(kept: Path | None, images: Sequence[FrozenImage]) -> dict[FrozenImage, Image]:
    """The images that still exist, in order."""
    if kept is None:
        return {}
    found = {one: await asyncio.to_thread(read_image, kept, one) for one in images}
    return {one: image for one, image in found.items() if image is not None}


def _write(results: Path, moved: Sequence[Moved], key: UUID, quota: int) -> None:
    """Write moved results to files. One that cannot be kept cannot be read again, which does not end the turn."""
    for one in moved:
        try:
            file = FileToWrite(tuple(one.name.split("/")), one.text.encode("utf-8", "replace"), key)
            write(results, file, StopSignal(), quota)
        except (ToolRefusal, OSError) as error:
            log.warning("a result could not be kept", file=one.name, error=str(error))


def _instead(tool: str, decided: Decided) -> JsonObject | None:
    """The result of a question, or of a call that people did not approve; None if the call is made."""
    if tool != ASK_USER:
        why = not_called(tool, decided)
        return None if why is None else record_of_text(why)
    said = answer_of(decided)
    return (
        record_of_text(explain_no_answer(decided))
        if said is None
        else record_of_text(outside_json({"answer": said}), ok=True)
    )


async def _together(acts: Sequence[Awaitable[Any]]) -> list[Any]:
    """Run these, four at a time, and return the results. The first failure cancels the others and is raised."""
    places = asyncio.Semaphore(_AT_ONCE)

    async def one(act: Awaitable[Any]) -> Any:
        async with places:
            return await act

    tasks = [asyncio.ensure_future(one(act)) for act in acts]
    try:
        return await asyncio.gather(*tasks)
    finally:
        await cancel_tasks(*tasks)
