"""The executor of a plan: what the machine commands is done, and what came of it is told to the machine.

`engine.py` calls `Executor.run` with a plan that is valid. Steps run side by side, each a step of the journal; nothing
of a plan is kept anywhere else. Next: `core/planning/machine.py`, which decides, and `steps.py`, which does.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from switchboard.agents.loop.asking import OUTSIDE
from switchboard.agents.loop.talk import cancelled
from switchboard.agents.trio.steps import Carrier, call_of
from switchboard.core.planning.guard import Guard
from switchboard.core.planning.machine import (
    Advance,
    Approved,
    Ask,
    Command,
    Ended,
    Event,
    Finish,
    Halt,
    HaltReason,
    Park,
    Plan,
    Record,
    Refused,
    Start,
    Stop,
    advance,
    resume,
)
from switchboard.core.planning.records import recorded_of, tokens_of
from switchboard.core.turns.asking import not_approved
from switchboard.domain.planning import Pipeline, PipelineStep
from switchboard.ports.engine import Decided, Outage, Parked
from switchboard.ports.engine import Stop as Stopping


@dataclass
class Executor:
    """One attempt at a plan. `seconds` says how long it may still work, `stop` whether a person wants it to end."""

    carrier: Carrier
    seconds: Callable[[], float]
    stop: Stopping | None
    _plan: Plan = field(init=False)
    _running: dict[asyncio.Task[Ended], PipelineStep] = field(default_factory=dict, init=False)
    _before: dict[str, int] = field(default_factory=dict, init=False)
    """What steps had used before they were started."""
    _held: dict[str, Parked | Outage] = field(default_factory=dict, init=False)
    """Steps that wait for people, or for their model to come back."""
    _events: deque[Event] = field(default_factory=deque, init=False)
    _over: bool = field(default=False, init=False)
    """Whether the plan was stopped, or its time is up."""

    async def run(self, pipeline: Pipeline, guard: Guard, halted: HaltReason | None = None) -> Plan:
        """The plan when all of its steps have ended. `halted`: why nothing more of it is to be started.

        Raises `Parked` when nothing can go on before people decide, and `Outage` before a model is back.
        """
        start = self.carrier.start
        stopping = asyncio.ensure_future(self.stop.wait()) if self.stop is not None else None
        if self.stop is not None and self.stop.is_set():
            halted = "cancelled"
        elif self.seconds() <= 0:
            halted = halted or "deadline"
        recorded = recorded_of(self.carrier.journal.on_record(), halted)
        try:
            await self._take(resume(pipeline, start.limits, guard, recorded))
            while not self._plan.ended:
                await self._take(advance(self._plan, await self._next(stopping)))
            return self._plan
        finally:
            await cancelled([*self._running, *([stopping] if stopping is not None else [])])

    async def _take(self, found: Advance) -> None:
        self._plan, commands = found
        for command in commands:
            await self._obey(command)

    async def _obey(self, command: Command) -> None:
        match command:
            case Start(step, tokens):
                self._before[step.id] = tokens_of(self.carrier.journal.on_record(), step)
                task = asyncio.ensure_future(self.carrier(self._plan, step, tokens))
                self._running[task] = step
            case Ask(step):
                await self._ask(step)
            case Record(end):
                if end.state != "done":
                    await self.carrier.journal.end(end.id, end.state, {"why": end.why})
            case Stop(step_id):
                await self._stop(step_id, self._plan.halted or "cancelled")
            case Park() | Finish():
                pass  # `_next` finds nothing that runs; `run` sees that it has ended

    async def _ask(self, step: PipelineStep) -> None:
        tool = self.carrier.menu.tool(step.target)
        why = OUTSIDE if tool is None else tool.approval or OUTSIDE
        decided = None if tool is None else await self.carrier.people.decision(call_of(step), why)
        if tool is None:
            self._events.append(Refused(step.id, f"there is no tool {step.target}"))
        elif decided is not None:
            self._events.append(_decision(step, decided))

    async def _stop(self, step_id: str, reason: HaltReason) -> None:
        """What runs ends now. What it did until then is not known, unless its end is on record."""
        step = self._plan.step(step_id)
        await cancelled([task for task, one in self._running.items() if one.id == step_id])
        self._running = {task: one for task, one in self._running.items() if one.id != step_id}
        self._held.pop(step_id, None)
        doubt = "; whether it took effect is not known" if self._plan.guard.acts(step) else ""
        if reason == "cancelled":
            await self.carrier.journal.end(step_id, "cancelled", {"why": f"stopped{doubt}"})
        else:
            await self.carrier.journal.end(step_id, "failed", {"why": f"the time was up{doubt}"})
        self._events.append(self.carrier.ended(step, self._before[step_id]))

    async def _next(self, stopping: asyncio.Future[object] | None) -> Event:
        """What happens next. Raises `Parked` or `Outage` if nothing can."""
        while not self._events:
            if not self._running:
                raise self._waits()
            waits: list[asyncio.Future[Any]] = [*self._running]
            waits += [] if self._over or stopping is None else [stopping]
            left = None if self._over else max(self.seconds(), 0.0)
            done, _ = await asyncio.wait(waits, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            for task in [one for one in self._running if one in done]:
                self._finished(task, self._running.pop(task))
            if not done or stopping in done:
                await self._end("cancelled" if done else "deadline")
        return self._events.popleft()

    async def _end(self, reason: HaltReason) -> None:
        """Nothing more is started, and what runs is stopped; also where a review has given up before."""
        self._over = True
        if self._plan.halted is None:
            self._events.append(Halt(reason))
            return
        for step in list(self._running.values()):
            await self._stop(step.id, reason)

    def _finished(self, task: asyncio.Task[Ended], step: PipelineStep) -> None:
        try:
            self._events.append(task.result())
        except (Parked, Outage) as held:
            self._held[step.id] = held

    def _waits(self) -> Parked | Outage:
        """What the turn waits for: a model first, for people can be asked meanwhile."""
        outages = [one for one in self._held.values() if isinstance(one, Outage)]
        return outages[0] if outages else Parked(())


def _decision(step: PipelineStep, decided: Decided) -> Event:
    why = not_approved(decided)
    return Approved(step.id) if why is None else Refused(step.id, why)
