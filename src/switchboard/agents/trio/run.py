"""One planned turn: decides about the message, carries out the plan, and presents the result by code.

`engine.py` creates a `PlannedTurn` from frozen data. In: the turn and its journal; out: a `TurnResult`. A model writes
at most the lead; `core/planning/outcome.py` decides which text goes out, and reports what was not done. Next:
`executor.py`.
"""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from datetime import datetime
from typing import Any, Final, TypeVar
from uuid import UUID

import msgspec
from msgspec.structs import replace

from switchboard.agents.trio.branch import Branch
from switchboard.agents.trio.executor import Executor
from switchboard.agents.trio.planner import ASKER
from switchboard.agents.trio.port import Planned, Planner
from switchboard.agents.trio.steps import UNBOUNDED, Carrier, call_of, costed_for
from switchboard.agents.turns.asking import people_of
from switchboard.agents.turns.calls import Around, ToolCaller
from switchboard.agents.turns.requests import ModelUse, failure_of
from switchboard.agents.turns.talk import Talk
from switchboard.agents.turns.telling import Telling
from switchboard.core.planning.check import pipeline_faults
from switchboard.core.planning.ladder import SettledDecision, settle
from switchboard.core.planning.limits import Clock
from switchboard.core.planning.machine import HaltReason, Plan
from switchboard.core.planning.outcome import final_step, final_text, not_done, stop_reason
from switchboard.core.planning.read import steps_of
from switchboard.core.planning.records import GO_ON, LEAD, PAUSE, ROUTE, all_tokens, notes_of, step_of, text_of
from switchboard.core.planning.routed import RoutedPlan, read_routed
from switchboard.core.planning.start import Start
from switchboard.core.planning.templates import left_out, templates, wants_build
from switchboard.core.text.lenient import mapping
from switchboard.core.turns.entries import entry_call, exchange_of, own_words_of
from switchboard.core.turns.limits import LoopLimits
from switchboard.core.turns.stop import STOPPED
from switchboard.domain.envelope import Attachment
from switchboard.domain.json_values import JsonMapping
from switchboard.domain.llm import AWAY, ModelFailure, Reply, ToolResult
from switchboard.domain.planning import Pipeline
from switchboard.ports.engine import (
    Answer,
    Costed,
    EngineFailure,
    HandedOn,
    Journal,
    ModelUsage,
    Outage,
    Parked,
    StopReason,
    Turn,
    TurnResult,
)
from switchboard.ports.facts import OwnWords
from switchboard.ports.history import EntryCall
from switchboard.tasks import unless

ANSWER: Final = "plan:answer"
_MOST_URL: Final = 200
_UNSURE: Final = "I am not sure that this was the right way to go about it."

T = TypeVar("T")


class PlannedTurn:
    """A running turn. `attempts`: how many may be fruitless."""

    def __init__(
        self, turn: Turn, journal: Journal, start: Start, around: Around, planner: Planner, attempts: int
    ) -> None:
        self._turn = turn
        self._journal = journal
        self._start = start
        self._planner = planner
        self._attempts = attempts
        builds = start.builds if wants_build(own_words_of(turn.envelope)) else None
        self._templates = templates(start.text, start.menu, start.limits, builds)
        self._caller = ToolCaller(turn, journal, start.frozen, around)

    async def run(self) -> TurnResult:
        """Run to the end, or until people must decide or a model returns; neither counts as time of the plan."""
        try:
            return await self._through()
        except (Parked, Outage):
            n = sum(path.startswith(PAUSE) for path in self._journal.on_record()) + 1
            await self._journal.step(f"{PAUSE}{n}", self._time)
            raise

    async def _through(self) -> TurnResult:
        carrier = await self._carrier()
        routed = await self._until_stopped(self._decide_route(carrier))
        if routed is None:
            return self._result(STOPPED, "aborted")
        match routed.action:
            case "respond":
                return await self._answer_directly()
            case "ask_user":
                return self._result(str(routed.args.get("question", "")), "end", warning=routed.warning)
            case "subagent":
                return self._handed_on(routed)
            case _:
                return await self._run_plan(routed, carrier)

    async def _carrier(self) -> Carrier:
        clock = await self._clock()
        people = people_of(self._caller)
        start, planner = self._start, self._planner
        return Carrier(start, start.menu, self._caller, self._journal, people, planner, self._templates, clock)

    # Time -------------------------------------------------------------------------------------------------------------

    async def _time(self, _: UUID) -> str:
        return self._now().isoformat()

    def _now(self) -> datetime:
        return self._caller.around.clock()

    async def _clock(self) -> Clock:
        """The remaining time, not counting the time that the turn has waited."""
        records = self._journal.on_record()
        pauses = sum(path.startswith(PAUSE) for path in records)
        if pauses and f"{GO_ON}{pauses}" not in records:
            await self._journal.step(f"{GO_ON}{pauses}", self._time)
            records = self._journal.on_record()
        clock = Clock(self._start.deadline)
        for n in range(1, pauses + 1):
            since, until = (datetime.fromisoformat(records[f"{path}{n}"].result) for path in (PAUSE, GO_ON))
            clock = clock.wait(since).go_on(until)
        return clock

    async def _until_stopped(self, act: Coroutine[Any, Any, T]) -> T | None:
        """The outcome; None if a person ends the turn first."""
        stop = self._turn.stop
        return await (act if stop is None else unless(stop.wait(), act))

    # The decision -----------------------------------------------------------------------------------------------------

    async def _decide_route(self, carrier: Carrier) -> RoutedPlan:
        start, spent = self._start, all_tokens(self._journal.on_record())
        tokens = min(2 * start.limits.thinking_tokens, start.token_budget - spent - start.limits.smallest_budget)

        async def act(_: UUID) -> Costed:
            await self._journal.flush()
            if tokens < start.limits.least:
                planned = Planned(self._template(), notes=("the router was not asked: no tokens were left for it",))
            else:
                planned = await self._ask_router(carrier, tokens)
            # A template's budget is for its steps; tokens spent on finding that it is needed come on top.
            planning = spent + sum(one.output_tokens for one in planned.usage)
            routed = _routed_plan_of(planned, start).with_more(planning, start.token_budget)
            if routed.pipeline is not None and (faults := pipeline_faults(routed.pipeline, start.menu, start.limits)):
                raise EngineFailure(f"the plan is not valid: {'; '.join(faults)}", retryable=False)
            return costed_for(routed.record(), planned.usage)

        record: JsonMapping = await self._journal.step(ROUTE, act, reserve=max(tokens, 0))
        return read_routed(record)

    async def _ask_router(self, carrier: Carrier, tokens: int) -> Planned:
        """The router's decision. While the router is unavailable, a template replaces it if that uses another model."""
        start = self._start
        try:
            return await self._planner.plan(carrier.question(ROUTE, tokens, start.menu))
        except ModelFailure as failure:
            if failure.kind in AWAY and start.roles.router == start.roles.specialist:
                raise await failure_of(failure, self._journal, f"outage:{ROUTE}", self._now) from failure
            spent = ModelUsage(start.roles.router, output_tokens=failure.reply.usage.output_tokens)
            return Planned(self._template(), (spent,), (f"the router was not asked: {failure.message}",))

    def _template(self) -> SettledDecision:
        settled = settle((), self._start.menu, self._start.limits, self._templates)
        if not isinstance(settled, SettledDecision):
            raise TypeError("without an answer there is nothing to ask for again")
        return settled

    # Without a plan ---------------------------------------------------------------------------------------------------

    async def _answer_directly(self) -> TurnResult:
        """Let the main model answer from what is known."""
        start = self._start
        left = start.token_budget - all_tokens(self._journal.on_record())
        limits = LoopLimits(3, 1, UNBOUNDED, generated=max(left, start.limits.smallest_budget))
        name = start.roles.main
        frozen = replace(start.frozen, models=(name,), tools=(), limits=limits, window=start.windows[name])
        around = replace(self._caller.around, asker=ASKER, step=ANSWER)
        result = await Talk(self._turn, Branch(self._journal, ANSWER), frozen, around).run()
        return replace(result, usage=self._usage())

    # A plan -----------------------------------------------------------------------------------------------------------

    async def _run_plan(self, routed: RoutedPlan, carrier: Carrier) -> TurnResult:
        if routed.pipeline is None:
            raise EngineFailure("the plan is not on record", retryable=False)
        if routed.pipeline.deadline is not None:
            clock = replace(carrier.clock, deadline=min(carrier.clock.deadline, routed.pipeline.deadline))
            carrier = replace(carrier, clock=clock)

        def seconds() -> float:
            return carrier.clock.remaining_time(self._now()).total_seconds()

        halted: HaltReason | None = "attempts" if self._turn.attempt >= self._attempts else None
        executor = Executor(carrier, seconds, self._turn.stop)
        plan = await executor.run(routed.pipeline, self._start.guard(routed.source), halted)
        return await self._present_plan(plan, routed, carrier)

    def _not_fetched(self, routed: RoutedPlan) -> str:
        urls = left_out(self._start.menu, self._start.limits) if routed.source == "template" else ()
        return (
            f"Not fetched, because there were too many, or too long: {', '.join(url[:_MOST_URL] for url in urls)}"
            if urls
            else ""
        )

    async def _present_plan(self, plan: Plan, routed: RoutedPlan, carrier: Carrier) -> TurnResult:
        final, missing, reason = final_step(plan), not_done(plan), stop_reason(plan)
        if final is None and plan.halted != "cancelled":
            raise EngineFailure(f"nothing of the plan was done. {missing}", retryable=False)
        text = STOPPED if final is None else final_text(plan, self._texts(plan))
        lead = "" if final is None or plan.halted == "cancelled" else await self._lead(text, carrier)
        unsure = _UNSURE if routed.unsure else ""
        parts = filter(None, (lead, text, unsure, missing, self._not_fetched(routed)))
        notes = notes_of(self._journal.on_record(), [step.id for step in plan.steps])
        warning = "; ".join((*routed.notes, *plan.notes, *notes))
        return self._result("\n\n".join(parts), reason, calls=self._calls(plan), warning=warning)

    def _texts(self, plan: Plan) -> dict[str, str]:
        """The results of the steps that are done."""
        records = self._journal.on_record()
        done = [step.id for step in plan.steps if plan.state(step.id) == "done"]
        return {one: text_of(mapping(records[one].result)) for one in done}

    async def _lead(self, text: str, carrier: Carrier) -> str:
        start = self._start
        left = start.token_budget - all_tokens(self._journal.on_record())
        known = LEAD in self._journal.on_record()
        if start.roles.main == start.roles.specialist or (left < start.limits.least and not known):
            return ""
        return await self._until_stopped(carrier.lead(text)) or ""

    # Another butler ---------------------------------------------------------------------------------------------------

    def _handed_on(self, routed: RoutedPlan) -> TurnResult:
        """Another butler answers: nothing was said here, so nothing is kept."""
        reason = f"its router decided so{', but was not sure' if routed.unsure else ''}"
        return HandedOn(routed.target, reason, usage=self._usage(), warning=routed.warning)

    # The result -------------------------------------------------------------------------------------------------------

    def _result(
        self, text: str, reason: StopReason, *, calls: Sequence[EntryCall] = (), warning: str = ""
    ) -> TurnResult:
        Telling(self._turn.on_delta).end(text)
        entries = exchange_of(self._turn, self._start.frozen, text, calls)
        return Answer(
            text,
            stop_reason=reason,
            usage=self._usage(),
            entries=entries,
            warning="; ".join(filter(None, (*self._start.frozen.lacking, warning))),
            attachments=tuple(self._files().values()),
            remembered=self._remembered_words(),
        )

    def _usage(self) -> tuple[ModelUsage, ...]:
        """The recorded usage of models, in all attempts."""
        total = ModelUse()
        for result in (mapping(one.result) for one in self._journal.on_record().values()):
            if "reply" in result:
                total.book(msgspec.convert(result["reply"], Reply))
            if "usage" in result:
                for used in msgspec.convert(result["usage"], tuple[ModelUsage, ...]):
                    total.add(used)
        return total.usage

    def _files(self) -> dict[str, Attachment]:
        """Files made by steps, by name; a later one replaces an earlier one."""
        found: dict[str, Attachment] = {}
        for path, record in self._journal.on_record().items():
            result = mapping(record.result)
            if "files" in result and record.state == "done" and step_of(path) == path:
                for one in msgspec.convert(result["files"], tuple[Attachment, ...]):
                    found.pop(one.filename or "", None)
                    found[one.filename or ""] = one
        return found

    def _remembered_words(self) -> tuple[OwnWords, ...]:
        """Words of the person that steps have kept, each once."""
        results = [mapping(one.result) for one in self._journal.on_record().values() if one.state == "done"]
        kept = (msgspec.convert(result.get("remembered", ()), tuple[OwnWords, ...]) for result in results)
        return tuple(dict.fromkeys(words for each in kept for words in each))

    def _calls(self, plan: Plan) -> list[EntryCall]:
        """The calls of tools, for later turns: without them, models learn to claim work that they did not do."""
        found, records = list[EntryCall](), self._journal.on_record()
        for step in plan.steps:
            end = plan.ends[step.id]
            result = mapping(records[step.id].result) if end.state == "done" else {}
            if step.action == "tool" and end.state in {"done", "failed"}:
                said = ToolResult(step.id, text_of(result) or end.why, end.state == "done")
                found.append(entry_call(call_of(step).made, said, self._start.frozen.own or ()))
            if "calls" in result:
                found += msgspec.convert(result["calls"], tuple[EntryCall, ...])
        return found


def _routed_plan_of(planned: Planned, start: Start) -> RoutedPlan:
    """The decision in the form kept by the journal."""
    settled = planned.settled
    notes = (*planned.notes, *(f"an answer of the router was not taken: {fault}" for fault in settled.faults))
    if isinstance(settled.decision, Pipeline):
        return RoutedPlan("pipeline", settled.source, settled.decision, unsure=settled.unsure, notes=notes)
    decision = settled.decision
    pipeline = None
    if decision.action in {"pipeline", "tool", "specialist"}:
        pipeline = Pipeline(steps_of(decision, start.limits), start.max_rounds, start.token_budget)
    return RoutedPlan(
        decision.action, settled.source, pipeline, decision.target, dict(decision.args), settled.unsure, notes
    )
