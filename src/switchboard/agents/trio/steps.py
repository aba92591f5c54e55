"""The steps of a plan, each carried out as a step of the journal: tools, specialists and reviews; and the lead.

`executor.py` decides when. In: a step, the plan so far, and its tokens; out: how it ended, already recorded or about to
be. Next: `agents/turns/talk.py`, the loop of a specialist with tools.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from time import monotonic
from typing import Final
from uuid import UUID

import msgspec
from msgspec import Struct, structs

from switchboard.agents.trio.branch import Branch
from switchboard.agents.trio.planner import ASKER
from switchboard.agents.trio.port import Planner, PlanQuestion
from switchboard.agents.turns.again import request_name, wait_for_models
from switchboard.agents.turns.asking import People, event_of
from switchboard.agents.turns.calls import MOST_FOUND, CallTerms, ToolCaller, record_of, urls_of_record
from switchboard.agents.turns.requests import failure_of, record_of_request
from switchboard.agents.turns.talk import Talk
from switchboard.core.planning.form import MOST_TOOLS
from switchboard.core.planning.guard import asks_after_foreign
from switchboard.core.planning.ladder import Templates
from switchboard.core.planning.limits import Clock
from switchboard.core.planning.machine import Plan, StepEnded
from switchboard.core.planning.menu import Menu
from switchboard.core.planning.prompts import FittedRequest, lead_of, lead_request, specialist_request, with_message
from switchboard.core.planning.records import LEAD, ended_of, text_of, tokens_of
from switchboard.core.planning.start import Start
from switchboard.core.text.lenient import mapping
from switchboard.core.turns.asking import not_approved
from switchboard.core.turns.entries import told_by_others
from switchboard.core.turns.frozen import Frozen, FrozenTool
from switchboard.core.turns.limits import LoopLimits
from switchboard.core.turns.loop import PlannedCall
from switchboard.core.turns.preparing import tool_of_call
from switchboard.domain.json_values import JsonObject
from switchboard.domain.llm import AWAY, ModelFailure, Request, ToolCall
from switchboard.domain.planning import SPECIALISTS, PipelineStep
from switchboard.ports.engine import (
    Answer,
    Costed,
    Decided,
    EngineFailure,
    Journal,
    ModelUsage,
    Outage,
    OutcomeUnknown,
    StepFailed,
)
from switchboard.ports.models import Asking
from switchboard.ports.tools import ToolOutcome

_AGAIN_S: Final = 0.5
"""Seconds before a tool is tried again, multiplied by the number of tries so far."""
_MOST_WHY: Final = 300
_LAST_S: Final = 60.0
"""Seconds for a last request after the time of its plan is up."""
_UNKNOWN: Final = "it was begun and interrupted, and whether it took effect is not known"
UNBOUNDED: Final = 10**9
"""Tokens that a loop may read and write; its real bounds are its budget to generate, and the model's context."""


class Carrier(Struct, frozen=True):
    """Carries out the steps of one plan. `menu`: what it may use; `clock`: how long it may still work."""

    start: Start
    menu: Menu
    caller: ToolCaller
    journal: Journal
    people: People
    planner: Planner
    templates: Templates
    clock: Clock

    async def __call__(self, plan: Plan, step: PipelineStep, tokens: int) -> StepEnded:
        """Carry out a step; returns how it ended. Raises `Parked`, and `Outage` while its model is unavailable."""
        before = tokens_of(self.journal.on_record(), step)
        try:
            await self._carry_out(plan, step, tokens)
        except StepFailed:
            pass  # its end is on record
        except OutcomeUnknown:
            await self.journal.end(step.id, "failed", {"why": _UNKNOWN})
        except Outage:
            raise
        except EngineFailure as failure:
            await self.journal.end(step.id, "failed", {"why": _short(str(failure))})
        return self.end_of_step(step, before)

    def end_of_step(self, step: PipelineStep, before: int) -> StepEnded:
        """The end of a recorded step; `before`: the tokens that it had used when it was started."""
        records = self.journal.on_record()
        return ended_of(step.id, records, tokens_of(records, step) - before)

    async def _carry_out(self, plan: Plan, step: PipelineStep, tokens: int) -> None:
        match step.action:
            case "tool":
                await self._tool(plan, step)
            case "specialist":
                await self._specialist(plan, step, tokens)
            case "specialist_with_tools":
                await self._loop(plan, step, tokens)
            case "router_review":
                await self._review(plan, step, tokens)

    @property
    def _seconds(self) -> float:
        """How long the plan may still work; always at least a moment, for work in progress."""
        return max(self.clock.remaining_time(self._now()).total_seconds(), _LAST_S)

    def _now(self) -> datetime:
        return self.caller.around.clock()

    @property
    def _share(self) -> UUID | None:
        """The message whose sender's daily share is used; None: owners are not limited."""
        return None if self.start.frozen.by_owner else self.caller.turn.request_id

    # Tools ------------------------------------------------------------------------------------------------------------

    async def _tool(self, plan: Plan, step: PipelineStep) -> None:
        tool = self.menu.tool(step.target)
        if tool is None:
            raise EngineFailure(f"there is no tool {step.target}")
        wary = plan.read_outside or plan.guard.told
        prepared = await self.people.prepare(call_of(step), wary=wary)
        if prepared is not None and prepared.refusal:
            await self.journal.end(step.id, "failed", {"why": _short(prepared.refusal)})
            return
        approval = "" if prepared is None or tool.approval else prepared.approval
        rule, decided, always = self.menu.after_foreign, self._decision_on(step), tool
        tool = tool_of_call(tool, prepared)
        foreign = wary and asks_after_foreign(rule, tool) and not asks_after_foreign(rule, always)
        if (approval or foreign) and decided is None:
            decided = await self.people.decision_now(call_of(step), approval)
        if decided is not None and (why := not_approved(decided)) is not None:
            await self.journal.end(step.id, "failed", {"why": why})
            return
        self.caller.learn(self._urls_from_searches(plan))

        async def act(key: UUID) -> JsonObject:
            if (why := await self.people.reason_not_called(tool, call_of(step), decided)) is not None:
                raise StepFailed({"why": why})
            began = monotonic()
            terms = CallTerms(key, decided is not None, wary, None if prepared is None else prepared.prepared)
            outcome = await self._call_with_retries(tool, step, terms)
            if not outcome.ok:
                raise StepFailed({"why": _short(outcome.why or outcome.text), "seconds": monotonic() - began})
            return record_of(outcome, began, wary=wary)

        # `ask` calls the tool again with the same key, which `queryable` allows.
        await self.journal.step(step.id, act, effect=tool.effect, ask=act)

    async def _call_with_retries(self, tool: FrozenTool, step: PipelineStep, terms: CallTerms) -> ToolOutcome:
        """Make a call; try a few times if it may be repeated and might succeed."""
        tries = self.start.tries if tool.effect == "idempotent" else 1
        outcome = await self.caller.call(tool, step.args, terms)
        for n in range(1, tries):
            if outcome.ok or not outcome.passing:
                break
            await asyncio.sleep(_AGAIN_S * n)
            outcome = await self.caller.call(tool, step.args, terms)
        return outcome

    def _decision_on(self, step: PipelineStep) -> Decided | None:
        """Somebody's decision about a step; None if nobody was asked."""
        path, records = event_of(step.id), self.journal.on_record()
        value = mapping(records[path].result).get("value") if path in records else None
        return None if value is None else Decided(value)

    # Models -----------------------------------------------------------------------------------------------------------

    async def _specialist(self, plan: Plan, step: PipelineStep, tokens: int) -> None:
        name = self.start.roles.specialist
        around = tokens, self.start.windows[name]
        asked = specialist_request(plan, with_message(step, self.start.text), self._texts(step.needs), around)

        async def act(_: UUID) -> Costed:
            costed = await self._ask_model(name, asked.request, step.id)
            text = costed.result["reply"]["text"].strip()
            if not text:
                raise StepFailed(structs.replace(costed, result={**costed.result, "why": "the model wrote nothing"}))
            return structs.replace(costed, result={**costed.result, "text": text, "notes": _room_notes(asked, step)})

        await self.journal.step(step.id, act, reserve=tokens)

    async def _ask_model(self, name: str, request: Request, path: str) -> Costed:
        """A request to one model. Raises `StepFailed` if it does not answer, `Outage` while it is unavailable."""
        models, began = self.caller.around.models, monotonic()
        if name not in models.names:
            raise StepFailed({"why": f"there is no model {name} any more"})
        sent = replace(request, deadline=self._seconds, whole=False, key=str(self.caller.turn.request_id))
        report = await models.ask(sent, self._asking(name, path))
        try:
            costed = record_of_request(report, monotonic() - began, last=True, reserved=request.max_tokens)
        except ModelFailure as failure:
            if failure.kind != "timeout":
                raise await failure_of(failure, self.journal, f"outage:{path}", self._now) from failure
            spent = failure.reply.usage.output_tokens
            raise StepFailed(Costed({"why": f"{name} took too long"}, tokens_out=spent)) from failure
        if "reply" not in costed.result:
            [(what, why)] = costed.result.items()
            raise StepFailed(structs.replace(costed, result={"why": _short(f"{_SAID[what]}: {why}")}))
        return costed

    def _asking(self, name: str, path: str) -> Asking:
        turn = self.caller.turn
        return Asking(
            (name,),
            ASKER,
            on_share_of=self._share,
            ready=self.journal.flush,  # earlier steps first, or a crash might lose two answered requests
            butler=turn.member.system_id,
            again=wait_for_models(turn, reserved=True),
            name=request_name(turn, path),
        )

    async def _loop(self, plan: Plan, step: PipelineStep, tokens: int) -> None:
        """Run a specialist with tools, with its own branch of the journal."""
        branch = Branch(self.journal, step.id)
        spent = sum(one.tokens for one in branch.on_record().values() if one.state != "started")
        turn = replace(self.caller.turn, stop=None, on_delta=None)
        frozen, asked = self._prepare_loop(plan, step, spent + tokens)
        around = structs.replace(self.caller.around, asker=ASKER, step=step.id)
        result = await Talk(turn, branch, frozen, around).run()

        async def act(_: UUID) -> JsonObject:
            if not isinstance(result, Answer) or result.stop_reason == "error":
                raise StepFailed({"why": "the model gave no answer"})
            files, kept = msgspec.to_builtins((result.attachments, result.remembered))
            calls = [msgspec.to_builtins(call) for entry in result.entries for call in entry.calls]
            notes = [*_room_notes(asked, step), *([result.warning] if result.warning else [])]
            return {"text": result.text, "files": files, "remembered": kept, "calls": calls, "notes": notes}

        await self.journal.step(step.id, act)

    def _prepare_loop(self, plan: Plan, step: PipelineStep, generated: int) -> tuple[Frozen, FittedRequest]:
        """The start of a loop: the task and the tools; only read-only ones once outside content was read."""
        start, outside = self.start, plan.read_outside
        name = start.roles.specialist
        menu, window = self._menu(plan), start.windows[name]
        most = min(generated, window // 4)
        told = with_message(step, start.text)
        asked = specialist_request(plan, told, self._texts(step.needs), (most, window))
        limits = LoopLimits(start.calls + 2, start.calls, UNBOUNDED, self._seconds, generated=generated)
        frozen = structs.replace(
            start.frozen,
            system=asked.request.system,
            opening=asked.request.messages[-1].text,
            models=(name,),
            tools=menu.tools[:MOST_TOOLS],
            later=(),
            limits=limits,
            history=(),
            images=(),
            urls=tuple(sorted({*menu.all_urls} if outside else {*start.frozen.urls, *menu.all_urls})),
            window=window,
            max_tokens=most,
            own=start.own,
            outside=outside or plan.guard.told,
            told=told_by_others(start.frozen),
        )
        return frozen, asked

    def _menu(self, plan: Plan) -> Menu:
        """What a step may use now: with the pages that searches of the plan have found, like those of the message."""
        menu = self.menu.after_outside() if plan.read_outside else self.menu
        found = self._urls_from_searches(plan)
        return structs.replace(menu, urls=tuple(dict.fromkeys((*menu.urls, *found)))) if found else menu

    def _urls_from_searches(self, plan: Plan) -> list[str]:
        """The pages that searches of the plan have found, and that may be fetched, in the order of its steps."""
        searches = {tool.name for tool in self.menu.tools if tool.reach == "query"}
        if not searches:
            return []
        records = self.journal.on_record()
        done = [records[step.id] for step in plan.steps if step.target in searches and step.id in records]
        urls = [url for one in done if one.state == "done" for url in urls_of_record(mapping(one.result))]
        return [*dict.fromkeys(urls)][:MOST_FOUND]

    async def _review(self, plan: Plan, step: PipelineStep, tokens: int) -> None:
        question = self.question(step.id, tokens, self._menu(plan))
        texts = self._texts([one.id for one in plan.steps if one.action in SPECIALISTS])

        async def act(_: UUID) -> Costed:
            await self.journal.flush()
            try:
                reviewed = await self.planner.review(question, plan, texts)
            except ModelFailure as failure:
                spent = failure.reply.usage.output_tokens
                if failure.kind in AWAY and failure.kind != "timeout":
                    raise await failure_of(failure, self.journal, f"outage:{step.id}", self._now) from failure
                raise StepFailed(Costed({"why": _short(failure.message)}, tokens_out=spent)) from failure
            record = {"review": msgspec.to_builtins(reviewed.review), "notes": list(reviewed.notes)}
            return costed_for(record, reviewed.usage)

        await self.journal.step(step.id, act, reserve=tokens)

    def question(self, path: str, tokens: int, menu: Menu) -> PlanQuestion:
        """The input for a planner, in the step with this path."""
        start, turn = self.start, self.caller.turn
        return PlanQuestion(
            *(start.asked, menu, start.limits, self.templates, (start.roles.router,), tokens, self._seconds),
            key=str(turn.request_id),
            on_share_of=self._share,
            butler=turn.member.system_id,
            again=wait_for_models(turn, reserved=True),
            name=request_name(turn, path),
        )

    async def lead(self, final: str) -> str:
        """A few words of introduction by the main model; empty if it is also the specialist's, or does not answer."""
        start = self.start
        asked = lead_request(start.text, final, start.limits.specialist_chars, start.windows[start.roles.main])

        async def act(_: UUID) -> Costed:
            try:
                costed = await self._ask_model(start.roles.main, asked.request, LEAD)
            except StepFailed as failed:
                spent = failed.result.tokens_out if isinstance(failed.result, Costed) else 0
                return Costed({"text": ""}, tokens_out=spent)
            except EngineFailure as failure:
                return Costed({"text": ""}, tokens_out=failure.tokens)
            return structs.replace(costed, result={**costed.result, "text": lead_of(costed.result["reply"]["text"])})

        record: JsonObject = await self.journal.step(LEAD, act, reserve=asked.request.max_tokens)
        return text_of(record)

    def _texts(self, ids: Sequence[str]) -> dict[str, str]:
        """The results of steps, by their id."""
        records = self.journal.on_record()
        done = {one: records[one] for one in ids if one in records and records[one].state == "done"}
        return {one: text_of(mapping(record.result)) for one, record in done.items()}


_SAID: Final = {"spent": "what may be spent in a day is used up", "refused": "the model refused", "failed": "no answer"}


def costed_for(record: JsonObject, usage: Sequence[ModelUsage]) -> Costed:
    """A record with the models' usage for it."""
    known = [one.cost_usd for one in usage if one.cost_usd is not None]
    return Costed(
        {**record, "usage": msgspec.to_builtins(usage)},
        sum(one.input_tokens for one in usage),
        sum(one.output_tokens for one in usage),
        round(sum(known) * 1_000_000) if known else None,
    )


def call_of(step: PipelineStep) -> PlannedCall:
    """A step's call of a tool, as presented to people."""
    return PlannedCall(step.id, ToolCall(step.target, step.args, id=step.id))


def _room_notes(asked: FittedRequest, step: PipelineStep) -> list[str]:
    """A note that a model could not be shown as much as its step allows."""
    if asked.cut_to is None or asked.cut_to >= step.max_chars:
        return []
    return [f"of its input the model was shown {asked.cut_to:,} characters: there was no space for more"]


def _short(why: str) -> str:
    """A reason as one line."""
    return " ".join(why.split())[:_MOST_WHY]
