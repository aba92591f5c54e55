"""The executor of a plan: carries out the commands of the state machine, and reports the outcomes to it.

`engine.py` calls `Executor.run` with a valid plan. Steps run in parallel, each a step of the journal; nothing of a plan
is stored anywhere else. Next: `core/planning/machine.py`, which decides, and `steps.py`, which does.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import monotonic

from switchboard.agents.trio.steps import Carrier, call_of
from switchboard.core.planning.guard import Guard
from switchboard.core.planning.machine import (
    Advance,
    Approved,
    AskApproval,
    Finish,
    Halt,
    HaltReason,
    Park,
    Plan,
    PlanCommand,
    PlanEvent,
    Record,
    StartStep,
    StepEnded,
    StepRefused,
    StopStep,
    advance,
    resume,
)
from switchboard.core.planning.records import recorded_of, tokens_of
from switchboard.core.turns.asking import not_approved
from switchboard.domain.planning import Pipeline, PipelineStep
from switchboard.ports.engine import Decided, Outage, Parked, Stop
from switchboard.tasks import cancel_tasks


@dataclass
class Executor:
    """One attempt at a plan. `seconds` returns how long it may still work, `stop` whether a person wants it to end."""

    carrier: Carrier
    seconds: Callable[[], float]
    stop: Stop | None
    _plan: Plan = field(init=False)
    _running: dict[str, asyncio.Task[StepEnded]] = field(default_factory=dict, init=False)
    _ended: deque[str] = field(default_factory=deque, init=False)
    """Steps that have ended since the last report to the machine, in order."""
    _woken: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    """Set when a step has ended, or when the plan must end."""
    _before: dict[str, int] = field(default_factory=dict, init=False)
    """Tokens that steps had used before they were started."""
    _since: dict[str, float] = field(default_factory=dict, init=False)
    """When steps were started in this attempt, by the monotonic clock."""
    _held: dict[str, Parked | Outage] = field(default_factory=dict, init=False)
    """Steps that wait for people, or for their model to come back."""
    _events: list[PlanEvent] = field(default_factory=list, init=False)
    _over_told: bool = field(default=False, init=False)
    """Whether the machine was told that the plan must end."""

    async def run(self, pipeline: Pipeline, guard: Guard, halted: HaltReason | None = None) -> Plan:
        """The plan after all its steps have ended. `halted`: why no more steps may be started.

        Raises `Parked` when nothing can continue before people decide, and `Outage` before a model is back.
        """
        start = self.carrier.start
        if self.stop is not None and self.stop.is_set():
            halted = "cancelled"
        elif self.seconds() <= 0:
            halted = halted or "deadline"
        recorded = recorded_of(self.carrier.journal.on_record(), halted)
        over = asyncio.create_task(self._over())
        try:
            await self._take(resume(pipeline, start.limits, guard, recorded))
            while not self._plan.ended:
                await self._take(advance(self._plan, *await self._next(over)))
            return self._plan
        finally:
            await cancel_tasks(*self._running.values(), over)

    async def _over(self) -> HaltReason:
        """Why the plan must end now: a person wants it, or its time is up."""
        try:
            async with asyncio.timeout(self.seconds()):
                await (self.stop or asyncio.Event()).wait()
        except TimeoutError:
            return "deadline"
        else:
            return "cancelled"
        finally:
            self._woken.set()

    async def _carry_out_step(self, step: PipelineStep, tokens: int) -> StepEnded:
        try:
            return await self.carrier(self._plan, step, tokens)
        finally:
            self._ended.append(step.id)
            self._woken.set()

    async def _take(self, found: Advance) -> None:
        self._plan, commands = found
        for command in commands:
            await self._obey(command)

    async def _obey(self, command: PlanCommand) -> None:
        match command:
            case StartStep(step, tokens):
                self._before[step.id] = tokens_of(self.carrier.journal.on_record(), step)
                self._since[step.id] = monotonic()
                self._running[step.id] = asyncio.create_task(self._carry_out_step(step, tokens))
            case AskApproval(step):
                await self._ask(step)
            case Record(end):
                if end.state != "done":
                    await self.carrier.journal.end(end.id, end.state, {"why": end.why})
            case StopStep(step_id):
                await self._stop(step_id, self._plan.halted or "cancelled")
            case Park() | Finish():
                pass  # `_next` finds nothing running, and `run` sees that the plan has ended

    async def _ask(self, step: PipelineStep) -> None:
        tool = self.carrier.menu.tool(step.target)
        decided = None if tool is None else await self.carrier.people.decision(call_of(step), tool.approval)
        if tool is None:
            self._events.append(StepRefused(step.id, f"there is no tool {step.target}"))
        elif decided is not None:
            self._events.append(_decision(step, decided))

    async def _stop(self, step_id: str, reason: HaltReason) -> None:
        """End running steps now. What they did is unknown unless their end is on record."""
        step = self._plan.step(step_id)
        if step_id in self._running:
            await cancel_tasks(self._running.pop(step_id))
        self._held.pop(step_id, None)
        took = monotonic() - self._since[step_id]
        doubt = "; whether it took effect is not known" if self._plan.guard.acts(step) else ""
        if reason == "cancelled":
            await self.carrier.journal.end(step_id, "cancelled", {"why": f"stopped{doubt}", "seconds": took})
        else:
            await self.carrier.journal.end(step_id, "failed", {"why": f"the time was up{doubt}", "seconds": took})
        self._events.append(self.carrier.end_of_step(step, self._before[step_id]))

    async def _next(self, over: asyncio.Task[HaltReason]) -> Sequence[PlanEvent]:
        """Wait for the next event. Raises `Parked` or `Outage` if there can be none."""
        while not self._events:
            if not self._running:
                raise self._waits()
            await self._woken.wait()
            self._woken.clear()
            while self._ended:
                self._collect_result(self._ended.popleft())
            if over.done() and not self._over_told:
                self._over_told = True
                await self._end(over.result())
        events, self._events = self._events, []
        return events

    async def _end(self, reason: HaltReason) -> None:
        """Start nothing more, and stop running steps; also if a review gave up before."""
        if self._plan.halted is None:
            # It goes first: after the end of a review that gave up, it would stop nothing.
            self._events.insert(0, Halt(reason))
            return
        for step_id in list(self._running):
            await self._stop(step_id, reason)

    def _collect_result(self, step_id: str) -> None:
        if (task := self._running.pop(step_id, None)) is None:
            return  # it was stopped
        try:
            self._events.append(task.result())
        except (Parked, Outage) as held:
            self._held[step_id] = held

    def _waits(self) -> Parked | Outage:
        """What the turn waits for: a model first, since people can be asked meanwhile."""
        outages = [one for one in self._held.values() if isinstance(one, Outage)]
        return outages[0] if outages else Parked(())


def _decision(step: PipelineStep, decided: Decided) -> PlanEvent:
    why = not_approved(decided)
    return Approved(step.id) if why is None else StepRefused(step.id, why)
