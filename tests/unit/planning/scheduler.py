"""Random plans, and two ways to run them: the machine, and a scheduler that tries everything at every moment."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import Final

from switchboard.core.planning.guard import guard_of
from switchboard.core.planning.limits import PlanLimits
from switchboard.core.planning.machine import (
    Advance,
    Approved,
    AskApproval,
    EndState,
    Finish,
    Halt,
    HaltReason,
    Park,
    Plan,
    PlanCommand,
    PlanEvent,
    Record,
    StartStep,
    StepEnd,
    StepEnded,
    StepRefused,
    StopStep,
    advance,
    begin,
)
from switchboard.domain.planning import Pipeline, PipelineAction, PipelineStep, Review
from tests.unit.planning.menus import tool

RESERVE: Final[Mapping[PipelineAction, int]] = {
    "specialist": 100,
    "specialist_with_tools": 150,
    "router_review": 50,
}
KEPT: Final = 40
LEAST: Final = 20
GUARD: Final = guard_of(
    (
        *(tool(name, {}) for name in ("fetch", "own")),
        *(tool(name, {}, effect="effectful") for name in ("write", "shell")),
    ),
    own=("own", "write"),
)
"""`fetch` reads from outside, `own` only reads, `write` only has effects, `shell` does both."""
TOOLS: Final = ("fetch", "own", "write", "shell")


@dataclass(frozen=True)
class Course:
    """What becomes of a step: how long it takes, how it ends, what it uses of its reservation, what is decided."""

    takes: float = 1
    state: EndState = "done"
    uses: float = 0.5
    decided_after: float = 1
    approved: bool = True


@dataclass(frozen=True)
class Case:
    """A plan, and all that will happen to it. `adds`: what each review says.

    `together`: all that happens at the same moment is told at once, and else one after the other.
    """

    pipeline: Pipeline
    limits: PlanLimits
    courses: Mapping[str, Course]
    adds: Mapping[str, Review]
    halt: tuple[float, HaltReason] | None = None
    together: bool = False


@dataclass
class Trace:
    """What happened, in its order: when each step began and ended, and the plan after each event."""

    started: dict[str, float] = field(default_factory=dict)
    ended: dict[str, tuple[float, str]] = field(default_factory=dict)
    asked: set[str] = field(default_factory=set)
    commands: list[PlanCommand] = field(default_factory=list)
    plans: list[Plan] = field(default_factory=list)

    @property
    def plan(self) -> Plan:
        """The plan at its end."""
        return self.plans[-1]


# Random plans ---------------------------------------------------------------------------------------------------------


def case(random: Random, most: int = 12) -> Case:
    """A plan of up to `most` steps, those of reviews included."""
    n = random.randint(1, most)
    first = random.randint(max(1, n - 4), n)
    steps = [_step(random, k, k) for k in range(1, first + 1)]
    adds: dict[str, Review] = {}
    reviews = [step.id for step in steps if step.action == "router_review"]
    left = list(range(first + 1, n + 1))
    for review in reviews:
        numbers = [left.pop(0) for _ in range(min(len(left), random.randint(0, 2)))]
        adds[review] = _review(random, numbers, first + 1)
    shuffled = random.sample(steps, len(steps))
    courses = {f"s{k}": _course(random) for k in range(1, n + 1)}
    budget = random.choice((10_000, 10_000, KEPT + 150, KEPT + 400))
    halt: HaltReason = random.choice(("cancelled", "deadline", "attempts"))
    return Case(
        Pipeline(tuple(shuffled), max_rounds=random.randint(1, 3), token_budget=budget),
        PlanLimits(steps=most, at_once=random.randint(1, 5), reserve=RESERVE, kept=KEPT, least=LEAST),
        courses,
        adds,
        (random.randint(0, 15), halt) if random.random() < 0.25 else None,
        random.random() < 0.5,
    )


def _step(random: Random, k: int, among: int) -> PipelineStep:
    actions: tuple[PipelineAction, ...] = ("tool", "tool", "tool", "specialist", "specialist", "router_review")
    action = random.choice((*actions, "specialist_with_tools"))
    needs = random.sample(range(1, among), min(among - 1, random.choice((0, 0, 1, 1, 2, 3))))
    target = random.choice(TOOLS) if action == "tool" else "write"
    return PipelineStep(f"s{k}", action, target, {"n": k}, tuple(f"s{need}" for need in needs))


def _review(random: Random, numbers: list[int], among: int) -> Review:
    if random.random() < 0.1:
        return Review("give_up")
    steps = [replace(_step(random, k, among), id=f"new{k}") for k in numbers]
    if len(steps) > 1 and random.random() < 0.5:
        steps[0], steps[1] = replace(steps[0], needs=(*steps[0].needs, steps[1].id)), steps[1]
    return Review("extend" if steps else "complete", tuple(steps))


def _course(random: Random) -> Course:
    return Course(
        random.randint(1, 4),
        random.choices(("done", "failed"), (4, 1))[0],
        random.random(),
        random.randint(1, 4),
        random.random() < 0.7,
    )


# By the machine -------------------------------------------------------------------------------------------------------


def by_machine(one: Case, start: Callable[[], Advance] | None = None) -> Trace:
    """Run a plan to its end with the machine, whatever happens at the same moment in the order of ids."""
    return _Run(one).to_the_end(start or (lambda: begin(one.pipeline, one.limits, GUARD)))


class _Run:
    def __init__(self, one: Case) -> None:
        self._case = one
        self._trace = Trace()
        self._queue: list[tuple[float, str, str, PlanEvent]] = []
        if one.halt is not None:
            self._push(one.halt[0], "", one.halt[1], Halt(one.halt[1]))

    def to_the_end(self, start: Callable[[], Advance]) -> Trace:
        plan, commands = start()
        self._obey(0, plan, commands)
        while self._queue:
            now = self._queue[0][0]
            plan, commands = advance(plan, *self._next(now))
            self._obey(now, plan, commands)
        return self._trace

    def _next(self, now: float) -> Iterator[PlanEvent]:
        """What happens now, or the first of it."""
        while self._queue and self._queue[0][0] == now:
            _, step_id, _, event = heapq.heappop(self._queue)
            if not isinstance(event, StepEnded):
                yield event
            elif step_id not in self._trace.ended:  # else it was stopped meanwhile
                self._trace.ended[step_id] = (now, event.end.state)
                yield event
            if not self._case.together:
                return

    def _push(self, at: float, step_id: str, what: str, event: PlanEvent) -> None:
        heapq.heappush(self._queue, (at, step_id, what, event))

    def _obey(self, now: float, plan: Plan, commands: tuple[PlanCommand, ...]) -> None:
        self._trace.plans.append(plan)
        self._trace.commands += commands
        for command in commands:
            match command:
                case StartStep(step, tokens):
                    self._trace.started[step.id] = now
                    ended = self._end(step, tokens)
                    self._push(now + self._of(step.id).takes, step.id, ended.end.state, ended)
                case AskApproval(step):
                    self._trace.asked.add(step.id)
                    approved, at = self._of(step.id).approved, now + self._of(step.id).decided_after
                    decision = Approved(step.id) if approved else StepRefused(step.id)
                    self._push(at, step.id, "approved" if approved else "refused", decision)
                case Record(end):
                    self._trace.ended[end.id] = (now, end.state)
                case StopStep(step_id):
                    self._push(now, step_id, "cancelled", StepEnded(StepEnd(step_id, "cancelled")))
                case Park() | Finish():
                    pass

    def _of(self, step_id: str) -> Course:
        return self._case.courses.get(step_id, Course())

    def _end(self, step: PipelineStep, tokens: int) -> StepEnded:
        course = self._of(step.id)
        used = int(tokens * course.uses)
        review = self._case.adds.get(step.id, Review("complete")) if step.action == "router_review" else None
        return StepEnded(StepEnd(step.id, course.state, size=step_size(step), tokens=used), review)


def step_size(step: PipelineStep) -> int:
    """The length of a result."""
    return 10 * len(step.id)


# By trying everything -------------------------------------------------------------------------------------------------


class BruteForce:
    """At every moment, after everything that happens, whatever may be done is looked for from the beginning.

    Where things happen together, it is looked for after all of them. It shares no code with the machine, only the
    rules: they are written out here once more, from the steps' side.
    """

    def __init__(self, one: Case) -> None:
        self.case = one
        self.steps = list(one.pipeline.steps)
        self.order = _sorted(self.steps)
        self.state: dict[str, str] = {}
        self.used: dict[str, int] = {}
        self.reserved: dict[str, int] = {}
        self.approved: set[str] = set()
        self.halted = ""
        self.rounds = 1
        self.now = 0.0
        self.happening: list[tuple[float, str, str]] = []
        self.started: dict[str, float] = {}
        self.ended: dict[str, tuple[float, str]] = {}

    def run(self) -> BruteForce:
        """To the end, moment by moment."""
        if self.case.halt is not None:
            self.happening.append((self.case.halt[0], "", self.case.halt[1]))
        self._try_everything()
        while self.happening:
            self.now = min(self.happening)[0]
            soon = sorted(one for one in self.happening if one[0] == self.now)
            for one in soon if self.case.together else soon[:1]:
                self.happening.remove(one)
                self._happens(one[1], one[2])
            self._try_everything()
        return self

    def _happens(self, name: str, what: str) -> None:
        if name == "":
            if not self.halted and len(self.ended) < len(self.steps):
                self._halt(what)
        elif what == "approved" and self.state.get(name) == "waiting":
            self.approved.add(name)
            del self.state[name]
        elif what == "refused" and self.state.get(name) == "waiting":
            self._end(name, "failed")
        elif what in {"done", "failed", "cancelled"} and self.state.get(name) == "running":
            self._ends_running(name, what)

    def _halt(self, why: str) -> None:
        self.halted = why
        self.happening += [(self.now, name, "cancelled") for name, state in self.state.items() if state == "running"]

    def _ends_running(self, name: str, what: str) -> None:
        reserved = self.reserved.pop(name)
        self.used[name] = 0 if what == "cancelled" else int(reserved * self._course(name).uses)
        self._end(name, what)
        if what == "done" and self._step(name).action == "router_review":
            self._reviewed(self.case.adds.get(name, Review("complete")))

    def _reviewed(self, review: Review) -> None:
        if review.verdict == "give_up":
            self.halted = self.halted or "gave_up"
        elif review.steps and self.rounds < self.case.pipeline.max_rounds:
            self.rounds += 1
            first = len(self.steps) + 1
            names = {step.id: f"s{first + n}" for n, step in enumerate(_sorted(list(review.steps)))}
            added = [
                replace(step, id=names[step.id], needs=tuple(names.get(need, need) for need in step.needs))
                for step in _sorted(list(review.steps))
            ]
            self.steps += added
            self.order += added

    def _end(self, name: str, state: str) -> None:
        self.state[name] = state
        self.ended[name] = (self.now, state)

    def _try_everything(self) -> None:
        while any(self._try(step) for step in self.order):
            pass

    def _try(self, step: PipelineStep) -> bool:
        if self.state.get(step.id, "waiting") != "waiting":
            return False
        if self.halted:
            self._end(step.id, "cancelled" if self.halted == "cancelled" else "skipped")
            return True
        needs = [self.state.get(need, "") for need in step.needs]
        if any(state not in {"done", "failed", "skipped", "cancelled"} for state in needs):
            return False
        if self._cannot(step, needs):
            self._end(step.id, "skipped")
            return True
        return step.id not in self.state and self._try_to_start(step)

    def _cannot(self, step: PipelineStep, needs: list[str]) -> bool:
        if step.action == "tool":
            return needs.count("done") < len(needs)
        if step.action != "router_review" and needs and "done" not in needs:
            return True
        if step.action == "router_review" and self.rounds >= self.case.pipeline.max_rounds and self._is_its_turn(step):
            return True
        return self._unspent() < LEAST

    def _is_its_turn(self, step: PipelineStep) -> bool:
        earlier = self.order[: self.order.index(step)]
        return all(one.action != "router_review" or one.id in self.ended for one in earlier)

    def _try_to_start(self, step: PipelineStep) -> bool:
        if step.action == "router_review" and not self._is_its_turn(step):
            return False
        if self._needs_approval(step):
            self.state[step.id] = "waiting"
            decision = "approved" if self._course(step.id).approved else "refused"
            self.happening.append((self.now + self._course(step.id).decided_after, step.id, decision))
            return True
        wanted = RESERVE.get(step.action, 0)
        free = self._unspent() - sum(self.reserved.values())
        if wanted > free and sum(self.reserved.values()) > 0:
            return False
        if len(self.reserved) >= self.case.limits.at_once:
            return False
        self.state[step.id] = "running"
        self.reserved[step.id] = min(wanted, free) if wanted else 0
        self.started[step.id] = self.now
        self.happening.append((self.now + self._course(step.id).takes, step.id, self._course(step.id).state))
        return True

    def _needs_approval(self, step: PipelineStep) -> bool:
        if step.id in self.approved or step.action != "tool" or step.target not in {"write", "shell"}:
            return False
        ran = [one for one in self.steps if self.state.get(one.id) in {"done", "failed"}]
        outside = {"fetch", "shell"}
        return any(
            one.target in outside if one.action == "tool" else one.action == "specialist_with_tools" for one in ran
        )

    def _unspent(self) -> int:
        return self.case.pipeline.token_budget - KEPT - sum(self.used.values())

    def _course(self, name: str) -> Course:
        return self.case.courses.get(name, Course())

    def _step(self, name: str) -> PipelineStep:
        return next(step for step in self.steps if step.id == name)


def _sorted(steps: list[PipelineStep]) -> list[PipelineStep]:
    """Each after those it needs: again and again the first of which that is true."""
    known, found = {step.id for step in steps}, list[PipelineStep]()
    while len(found) < len(steps):
        names = {step.id for step in found}
        found.append(
            next(step for step in steps if step not in found and all(n in names for n in step.needs if n in known))
        )
    return found
