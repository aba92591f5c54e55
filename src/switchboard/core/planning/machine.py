"""A plan as a state machine: what to do next, and what the end of a step changes. Pure.

`begin` makes a plan of a valid `Pipeline`; `advance` takes what has happened and returns the plan after it, with what
is to be done now; `resume` makes the same plan of what is on record. Nothing here runs, waits or knows the time. Next:
`outcome.py`, for the result of an ended plan.

The laws, proven in `tests/unit/planning/`:

- A step starts the moment all that it needs has ended, if there is room for it, and never before.
- A tool needs all its needs done; a specialist one of them (if it has any); a review only that they have ended.
- Reviews take place one after the other, in the order of the plan: so the plan after them is told by its records.
- No more steps than the limits allow, at once and in all; tokens that are spent, reserved and kept are within the
  budget, as long as no model uses more than was reserved for it.
- Once something from outside was read, a step with effects is started only with approval; some tools always need it.
- Every plan ends, and each of its steps ends once, after those that it needs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from functools import reduce
from heapq import heappop, heappush
from itertools import takewhile
from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import replace as changed

from switchboard.core.planning.graph import graph_faults, in_order
from switchboard.core.planning.guard import Guard
from switchboard.core.planning.limits import PlanLimits
from switchboard.domain.planning import SPECIALISTS, Pipeline, PipelineStep, Review

EndState = Literal["done", "failed", "skipped", "cancelled"]
"""`skipped`: it could not run, or was not worth it; `cancelled`: it was not to run any more."""
HaltReason = Literal["cancelled", "deadline", "attempts", "gave_up"]
"""A person stopped the plan; its time is up; too many attempts came to nothing; a review gave up."""

NO_TOKENS: Final = "the token budget was used up"
_SAID: Final[Mapping[HaltReason, tuple[EndState, str]]] = {
    "cancelled": ("cancelled", "stopped"),
    "deadline": ("skipped", "the time was up"),
    "attempts": ("skipped", "there were too many attempts"),
    "gave_up": ("skipped", "the review gave up"),
}


class StepEnd(Struct, frozen=True):
    """How a step ended. `size` of its result in characters; `tokens` that its models generated; `why` not `done`."""

    id: str
    state: EndState
    size: int = 0
    tokens: int = 0
    why: str = ""


# What happens ---------------------------------------------------------------------------------------------------------


class StepEnded(Struct, frozen=True):
    """A step that was started has ended; `review` is what a review that is done has said."""

    end: StepEnd
    review: Review | None = None


class Approved(Struct, frozen=True):
    """Somebody has approved a step."""

    id: str


class StepRefused(Struct, frozen=True):
    """Somebody has refused a step, or nobody has decided in time."""

    id: str
    why: str = "not approved"


class Halt(Struct, frozen=True):
    """Start nothing more. Except for `gave_up`, also stop running steps."""

    reason: HaltReason


PlanEvent = StepEnded | Approved | StepRefused | Halt


# What is to be done ---------------------------------------------------------------------------------------------------


class StartStep(Struct, frozen=True):
    """Start a step, whose models may generate this many tokens; its end is reported with `StepEnded`."""

    step: PipelineStep
    tokens: int = 0


class AskApproval(Struct, frozen=True):
    """Ask for approval of a step; it is decided by `Approved` or `StepRefused`."""

    step: PipelineStep


class Record(Struct, frozen=True):
    """Record the end of a step that was never started. The plan knows of it already."""

    end: StepEnd


class StopStep(Struct, frozen=True):
    """Stop a step that runs; its end is reported with `StepEnded` anyway."""

    id: str


class Park(Struct, frozen=True):
    """Nothing can continue until one of these steps is approved or refused."""

    ids: tuple[str, ...]


class Finish(Struct, frozen=True):
    """All steps have ended."""


PlanCommand = StartStep | AskApproval | Record | StopStep | Park | Finish


# The plan -------------------------------------------------------------------------------------------------------------


class Index(Struct, frozen=True):
    """Of the steps of a plan: the place of each, the places of those that need it, and the places of reviews."""

    place: Mapping[str, int]
    users: Mapping[str, Sequence[int]]
    reviews: Sequence[int]

    @classmethod
    def of(cls, steps: Sequence[PipelineStep]) -> Index:
        """The index of these steps."""
        users: dict[str, list[int]] = defaultdict(list)
        for n, step in enumerate(steps):
            for need in step.needs:
                users[need].append(n)
        place = {step.id: n for n, step in enumerate(steps)}
        return cls(place, users, [n for n, step in enumerate(steps) if step.action == "router_review"])

    def concerned(self, *ids: str) -> AbstractSet[int]:
        """The places of the steps to which the end of these may matter; a review may wait for another one, too."""
        return {*self.reviews, *(n for one in ids for n in self.users.get(one, ()))}


class Plan(Struct, frozen=True):
    """How far a plan has come. `steps` of all rounds, each after those that it needs.

    `ends` in the order in which the steps ended; `running` with the tokens reserved for each. `asked` steps wait for
    approval. `begun` steps were started before the plan was resumed, and `lost` tokens were reserved for requests
    whose end nobody saw. `notes` are for the operator.

    `used` and `read_outside` follow from the ends: the tokens of all, and whether a step that has run, however it
    ended, has read something from outside. `ready` are the places in `steps` of those that could start if there were
    room, `index` tells where steps are. Each event looks at few steps because of these four.
    """

    steps: tuple[PipelineStep, ...]
    max_rounds: int
    token_budget: int
    limits: PlanLimits
    guard: Guard
    index: Index
    rounds: int = 1
    ends: Mapping[str, StepEnd] = {}
    running: Mapping[str, int] = {}
    asked: frozenset[str] = frozenset()
    approved: frozenset[str] = frozenset()
    begun: frozenset[str] = frozenset()
    lost: int = 0
    halted: HaltReason | None = None
    notes: tuple[str, ...] = ()
    used: int = 0
    read_outside: bool = False
    ready: tuple[int, ...] = ()

    @property
    def spent(self) -> int:
        """Tokens that are used up."""
        return self.lost + self.used

    def step(self, step_id: str) -> PipelineStep:
        """The step with this id."""
        return self.steps[self.index.place[step_id]]

    @property
    def ended(self) -> bool:
        """Whether all steps have ended."""
        return len(self.ends) == len(self.steps)

    def state(self, step_id: str) -> Literal["pending", "running", "waiting"] | EndState:
        """Where a step is; `waiting` for approval."""
        if step_id in self.ends:
            return self.ends[step_id].state
        return "running" if step_id in self.running else "waiting" if step_id in self.asked else "pending"


Advance = tuple[Plan, tuple[PlanCommand, ...]]


def begin(pipeline: Pipeline, limits: PlanLimits, guard: Guard) -> Advance:
    """The plan of a valid `Pipeline`, and its first commands. Raises `ValueError` for an invalid graph."""
    return _go_on(_plan(pipeline, limits, guard), ())


def advance(plan: Plan, *events: PlanEvent) -> Advance:
    """The plan after events, and the next commands; all events are processed before anything is begun.

    A decision about a step that does not wait for one, and a halt of a plan that has ended or was halted before, change
    nothing. Raises `ValueError` for the end of a step that does not run.
    """
    ends = {event.end.id: event.end for event in events if isinstance(event, StepEnded) and event.review is None}
    only_ends = 0 < len(ends) == len(events) and ends.keys() <= plan.running.keys()
    after = _with_ends(plan, ends) if only_ends else reduce(_happened, events, plan)
    if after is plan:
        return plan, ()
    refused = [Record(after.ends[one]) for one in sorted(plan.asked) if one in after.ends]
    stops = map(StopStep, after.running) if after.halted not in {plan.halted, "gave_up"} else ()
    few = only_ends and _changes_nothing_else(plan, after)
    return _go_on(after, (*refused, *stops), [*ends] if few else None)


def _happened(plan: Plan, event: PlanEvent) -> Plan:
    match event:
        case StepEnded(end, review):
            if end.id not in plan.running:
                raise ValueError(f"step {end.id} does not run, it is {plan.state(end.id)}")
            return _with_end(plan, end, review)
        case Approved(step_id) if step_id in plan.asked:
            return changed(plan, asked=plan.asked - {step_id}, approved=plan.approved | {step_id})
        case StepRefused(step_id, why) if step_id in plan.asked:
            return _with_end(plan, StepEnd(step_id, "failed", why=why))
        case Halt(reason) if plan.halted is None and not plan.ended:
            return changed(plan, halted=reason)
        case _:
            return plan


class Recorded(Struct, frozen=True):
    """What is on record of a plan: the ends of steps, in any order, and what reviews said.

    `begun` steps were started and have not ended; `lost` are the tokens that were reserved for their requests.
    `approved`: steps that somebody has approved.
    """

    ends: Sequence[StepEnded] = ()
    begun: AbstractSet[str] = frozenset()
    approved: AbstractSet[str] = frozenset()
    lost: int = 0
    halted: HaltReason | None = None


def resume(pipeline: Pipeline, limits: PlanLimits, guard: Guard, recorded: Recorded) -> Advance:
    """The plan as it was, and its next commands; a step that had begun is started again, without a new approval."""
    known = {one.end.id: one for one in recorded.ends}
    plan, n = _plan(pipeline, limits, guard), 0
    while n < len(plan.steps):  # reviews add to them
        one = known.get(plan.steps[n].id)
        plan, n = plan if one is None else _with_end(plan, one.end, one.review), n + 1
    halted = plan.halted or recorded.halted
    approved, begun = frozenset(recorded.approved), frozenset(recorded.begun)
    return _go_on(changed(plan, approved=approved, begun=begun, lost=recorded.lost, halted=halted), ())


def _plan(pipeline: Pipeline, limits: PlanLimits, guard: Guard) -> Plan:
    if faults := list(graph_faults(pipeline.steps, limits.steps)):
        raise ValueError("; ".join(faults))
    steps = in_order(pipeline.steps)
    return Plan(steps, pipeline.max_rounds, pipeline.token_budget, limits, guard, Index.of(steps))


def _with_end(plan: Plan, end: StepEnd, review: Review | None = None) -> Plan:
    after = _with_ends(plan, {end.id: end})
    return after if review is None or end.state != "done" else _reviewed(after, review)


def _with_ends(plan: Plan, ends: Mapping[str, StepEnd]) -> Plan:
    ran = (end.id for end in ends.values() if end.state in {"done", "failed"})
    return changed(
        plan,
        ends={**plan.ends, **ends},
        running={step_id: tokens for step_id, tokens in plan.running.items() if step_id not in ends},
        asked=plan.asked - ends.keys(),
        used=plan.used + sum(end.tokens for end in ends.values()),
        read_outside=plan.read_outside or any(plan.guard.reads(plan.step(step_id)) for step_id in ran),
    )


# What a review changes ------------------------------------------------------------------------------------------------


def _reviewed(plan: Plan, review: Review) -> Plan:
    if review.verdict == "give_up":
        return changed(plan, halted=plan.halted or "gave_up")
    if review.verdict == "complete" or not review.steps:
        return plan
    faults = list(graph_faults(review.steps, len(plan.steps) + len(review.steps), plan.steps))
    added = () if faults else _added(plan, in_order(review.steps))
    if len(plan.steps) + len(added) > plan.limits.steps:
        faults.append(f"a plan has at most {plan.limits.steps} steps")
    if faults:
        note = f"what a review wanted to add was left out: {'; '.join(faults)}"
        return changed(plan, notes=(*plan.notes, note))
    if not added:
        return plan
    steps = (*plan.steps, *added)
    return changed(plan, steps=steps, index=Index.of(steps), rounds=plan.rounds + 1)


def _added(plan: Plan, steps: Sequence[PipelineStep]) -> tuple[PipelineStep, ...]:
    """The new steps, numbered after the existing ones; references to existing steps mean the old ones."""
    taken = {step.id for step in plan.steps}
    names: dict[str, str] = {}
    added: list[PipelineStep] = []
    for step in steps:
        needs = tuple(dict.fromkeys(names.get(need, need) for need in step.needs))
        moved = replace(step, needs=needs)
        old = next((one for one in (*plan.steps, *added) if _same(one, moved)), None)
        name = old.id if old is not None else _free(taken)
        taken.add(name)
        names[step.id] = name
        if old is None:
            added.append(replace(moved, id=name))
    return tuple(added)


def _same(one: PipelineStep, other: PipelineStep) -> bool:
    """Whether one would do again what the other does. What a specialist writes depends on what it is given, too."""
    if (one.action, one.target, one.args) != (other.action, other.target, other.args):
        return False
    return one.action == "tool" or set(one.needs) == set(other.needs)


def _free(taken: AbstractSet[str]) -> str:
    return next(name for n in range(len(taken) + 1, 2 * len(taken) + 2) if (name := f"s{n}") not in taken)


# What is to be done next ----------------------------------------------------------------------------------------------


def _changes_nothing_else(before: Plan, after: Plan) -> bool:
    """Whether the ends of steps matter only to steps that need them; otherwise all steps are checked."""
    short = _unspent(after) < after.limits.least
    return not (after.halted or short or after.read_outside != before.read_outside)


def _go_on(plan: Plan, before: tuple[PlanCommand, ...], ended: Sequence[str] | None = None) -> Advance:
    """First what can never run ends, each step after those whose end could concern it; then starts what can.

    `ended`: nothing has happened but that these steps have ended; None: anything may have.
    """
    plan, ends, fresh = _without_hopeless(plan, ended)
    plan, asks = _asked(plan, fresh)
    plan, starts = _started(plan)
    commands: list[PlanCommand] = [*before, *map(Record, ends), *starts, *asks]
    if plan.ended:
        commands.append(Finish())
    elif not plan.running:
        commands.append(Park(tuple(step.id for step in plan.steps if step.id in plan.asked)))
    return plan, tuple(commands)


def _without_hopeless(plan: Plan, ended: Sequence[str] | None) -> tuple[Plan, list[StepEnd], list[int]]:
    """The plan in which what can never run has ended, with these ends; and the places of the steps to be begun now."""
    ready = () if ended is None else plan.ready
    places = [*range(len(plan.steps))] if ended is None else sorted(plan.index.concerned(*ended))
    seen, ends, fresh = {*places}, list[StepEnd](), list[int]()
    while places:
        n = heappop(places)
        step = plan.steps[n]
        if plan.state(step.id) not in {"pending", "waiting"} or n in ready:
            continue
        end = _halted(plan, step) or _hopeless(plan, step)
        if end is not None:
            plan = _with_end(plan, end)
            ends.append(end)
            for later in plan.index.concerned(end.id) - seen:
                seen.add(later)
                heappush(places, later)
        elif step.id not in plan.asked and _may_run(plan, step):
            fresh.append(n)
    now = tuple(sorted((*ready, *fresh))) if fresh else ready
    return plan if now is plan.ready else changed(plan, ready=now), ends, fresh


def _asked(plan: Plan, fresh: Sequence[int]) -> tuple[Plan, list[PlanCommand]]:
    """Ask first, where somebody must approve a step that could begin."""
    known = plan.approved | plan.begun
    steps = {n: plan.steps[n] for n in fresh if plan.steps[n].id not in known}
    asks = {n: step for n, step in steps.items() if plan.guard.asks(step, read_outside=plan.read_outside)}
    if not asks:
        return plan, []
    asked = plan.asked | {step.id for step in asks.values()}
    return changed(plan, asked=asked, ready=tuple(n for n in plan.ready if n not in asks)), [
        *map(AskApproval, asks.values())
    ]


def _started(plan: Plan) -> tuple[Plan, list[PlanCommand]]:
    """Start what is ready, in its order, as far as there is room; first what had begun before."""
    running, unspent = dict(plan.running), _unspent(plan)
    free = unspent - sum(running.values())
    starts, waiting = list[PlanCommand](), list[int]()
    order = sorted(plan.ready, key=lambda n: plan.steps[n].id not in plan.begun) if plan.begun else plan.ready
    for at, n in enumerate(order):
        if len(running) >= plan.limits.at_once:
            waiting += order[at:]
            break
        step = plan.steps[n]
        tokens = _reservation(plan, step, free, alone=free == unspent)
        if tokens is None:
            waiting.append(n)
        else:
            running[step.id], free = tokens, free - tokens
            starts.append(StartStep(step, tokens))
    if not starts:
        return plan, []
    return changed(plan, running=running, ready=tuple(sorted(waiting))), starts


def _halted(plan: Plan, step: PipelineStep) -> StepEnd | None:
    if plan.halted is None:
        return None
    state, why = _SAID[plan.halted]
    if step.id in plan.begun and plan.guard.acts(step):
        why += "; it had begun, and whether it took effect is not known"
    return StepEnd(step.id, state, why=why)


def _hopeless(plan: Plan, step: PipelineStep) -> StepEnd | None:
    """The end of a step that can never run."""
    if not _needs_ended(plan, step):
        return None
    bad = [need for need in step.needs if plan.ends[need].state != "done"]
    if bad and (step.action == "tool" or (step.action in SPECIALISTS and len(bad) == len(step.needs))):
        return StepEnd(step.id, "skipped", why=f"{', '.join(bad)} not done")
    if step.action == "router_review" and plan.rounds >= plan.max_rounds and not _earlier_review(plan, step):
        return StepEnd(step.id, "skipped", why="no round was left")
    if step.action in plan.limits.reserve and _unspent(plan) < plan.limits.least:
        return StepEnd(step.id, "skipped", why=NO_TOKENS)
    return None


def _may_run(plan: Plan, step: PipelineStep) -> bool:
    if not _needs_ended(plan, step):
        return False
    return step.action != "router_review" or not _earlier_review(plan, step)


def _needs_ended(plan: Plan, step: PipelineStep) -> bool:
    return all(map(plan.ends.__contains__, step.needs))


def _earlier_review(plan: Plan, step: PipelineStep) -> bool:
    """Whether a review before this one has not ended."""
    before = takewhile(lambda one: one.id != step.id, plan.steps)
    return any(one.action == "router_review" and one.id not in plan.ends for one in before)


def _unspent(plan: Plan) -> int:
    return plan.token_budget - plan.limits.kept - plan.spent


def _reservation(plan: Plan, step: PipelineStep, free: int, *, alone: bool) -> int | None:
    """The tokens for a step, of those that are free; None: it waits for what others do not use of theirs."""
    wanted = plan.limits.reserve.get(step.action, 0)
    if wanted <= free:
        return wanted
    return free if alone else None
