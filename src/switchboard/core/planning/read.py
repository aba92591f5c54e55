"""Reads the form that a model has filled in as a decision or a review, or says everything that is wrong with it. Pure.

`ladder.py` calls it with the object in an answer. Its result is valid: `check.py` has found no fault. Nothing is
guessed: names must match letter for letter, and an unknown key of a step is a fault, because it may be a condition.
Faults use only names that the prompt or the form has. Next: `check.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal, get_args

from msgspec import Struct, structs

from switchboard.core.planning.check import step_faults, steps_faults
from switchboard.core.planning.form import MOST_STEPS, NOTE, REVIEW, ROUTE_DECISION, decision_actions, step_actions
from switchboard.core.planning.guard import is_read_only
from switchboard.core.planning.limits import PlanLimits
from switchboard.core.planning.menu import Menu
from switchboard.core.planning.places import place_of
from switchboard.core.replies import ARGUMENT_KEYS
from switchboard.core.text.lenient import count, items, mapping, string
from switchboard.domain.planning import (
    SPECIALISTS,
    PipelineAction,
    PipelineStep,
    Review,
    RouteAction,
    RouteDecision,
    Verdict,
)

Object = Mapping[str, object]

_ACTIONS: Final[Mapping[str, RouteAction]] = {action: action for action in get_args(RouteAction)}
_STEP_ACTIONS: Final[Mapping[str, PipelineAction]] = {action: action for action in get_args(PipelineAction)}
_VERDICTS: Final[Mapping[str, Verdict]] = {verdict: verdict for verdict in get_args(Verdict)}
_REMARKS: Final = frozenset({"thought", "reason", "reasoning", "description"})
_DECISION_NAMES: Final = ("action", "steps", "target", "args", "confidence")
_REVIEW_NAMES: Final = ("verdict", "steps")
_STEP_NAMES: Final = ("action", "target", "args", "needs")
_IGNORED_OF_STEPS: Final = frozenset({"id", "max_chars"}) | _REMARKS
_IN_ORDER: Final = frozenset({"tool", "specialist"})
_WRAPPERS: Final = frozenset({"thought", "calls"})


class Faulty(Struct, frozen=True):
    """An unusable form, and why: sentences for the model that filled it in."""

    faults: tuple[str, ...]


@dataclass
class _Faults:
    """The faults found so far in a form that was made from this menu."""

    menu: Menu
    found: list[str] = field(default_factory=list)

    def add(self, fault: str) -> None:
        self.found.append(fault)

    def check_keys(self, value: Object, names: Sequence[str], of: str, ignored: frozenset[str] = _REMARKS) -> None:
        for name in value:
            if name not in names and name not in ignored:
                self.add(f"{of} must not have {name[:50]!r}, but only {', '.join(names)}")


def read_decision(value: Object, menu: Menu, limits: PlanLimits) -> RouteDecision | Faulty:
    """The decision in a filled-in form of `route_decision`."""
    faults = _Faults(menu)
    value = _one_decision(_unwrap_call(value, ROUTE_DECISION), faults)
    if faults.found:
        return Faulty(tuple(faults.found))
    faults.check_keys(value, _DECISION_NAMES, "the decision")
    listed = value.get("steps")
    action = _action(string(value.get("action")) or ("pipeline" if listed else ""), faults)
    steps = limits.with_max_chars(_steps(listed, (), menu, faults), _sizes(listed)) if action == "pipeline" else ()
    if listed and action not in {"pipeline", None}:
        faults.add(f"steps are for the action pipeline, not for {action}")
    decision = RouteDecision(
        action=action or "respond",
        target=string(value.get("target")),
        args=_arguments(value.get("args"), faults, "args"),
        steps=steps,
        confidence=_confidence(value.get("confidence"), faults),
    )
    if action == "pipeline" and not faults.found:
        faults.found += _of_form(steps, menu, limits)
        decision = structs.replace(decision, steps=decision.steps if faults.found else _without_unseen(steps, menu))
    elif action in {"tool", "specialist"}:
        single = _drop_note(_single(decision), menu)
        decision = structs.replace(decision, args=single.args)
        faults.found += step_faults(single, menu)
    elif action is not None:
        faults.found += _other_faults(decision, menu)
    return Faulty(tuple(faults.found)) if faults.found else decision


def read_review(value: Object, menu: Menu, limits: PlanLimits, before: Sequence[PipelineStep]) -> Review | Faulty:
    """The review in a filled-in form of `review`; its steps are numbered after those `before`."""
    value, faults = _unwrap_call(value, REVIEW), _Faults(menu)
    faults.check_keys(value, _REVIEW_NAMES, "the review")
    said = string(value.get("verdict"))
    verdict = _VERDICTS.get(said)
    listed = value.get("steps")
    if verdict is None:
        faults.add(f"verdict must be one of {', '.join(_VERDICTS)}, not {said[:50]!r}")
        return Faulty(tuple(faults.found))
    if verdict != "extend":
        if listed:
            faults.add(f"steps are for the verdict extend, not for {verdict}")
        return Faulty(tuple(faults.found)) if faults.found else Review(verdict)
    steps = limits.with_max_chars(_steps(listed, before, menu, faults), _sizes(listed, len(before)))
    if not faults.found and steps:
        faults.found += _of_form(steps, menu, limits, before)
    if faults.found:
        return Faulty(tuple(faults.found))
    return Review("extend" if steps else "complete", _without_unseen(steps, menu, before))


def _of_form(
    steps: Sequence[PipelineStep], menu: Menu, limits: PlanLimits, before: Sequence[PipelineStep] = ()
) -> Iterator[str]:
    if len(steps) > MOST_STEPS:
        yield f"there are {len(steps)} steps; write at most {MOST_STEPS} at a time"
    faults = steps_faults(steps, menu, limits.steps, before)
    yield from faults or (*_blind_changes(steps, menu), *_unseen_results(steps, menu))


def _unseen_results(steps: Sequence[PipelineStep], menu: Menu) -> Iterator[str]:
    """Steps that only read, before a specialist that does not see what they read."""
    last = _last_specialist(steps)
    for step in _find_unused_reads(steps[:last], steps, menu):
        yield f"{step.id}: nobody sees its result, since no specialist needs it; leave it out"


def _without_unseen(
    steps: Sequence[PipelineStep], menu: Menu, before: Sequence[PipelineStep] = ()
) -> tuple[PipelineStep, ...]:
    """The steps without those that only read, behind the last specialist, so that what they read reaches nobody.

    Small models go on with such steps when the plan is complete; they could wait for an approval, or fail.
    """
    gone = {step.id: step for step in _find_unused_reads(steps[_last_specialist(steps) :], steps, menu)}
    kept = [step for step in steps if step.id not in gone]
    ours = {step.id: f"s{n}" for n, step in enumerate(kept, len(before) + 1)}
    return tuple(replace(step, id=ours[step.id], needs=_needs_left(step, gone, ours)) for step in kept)


def _needs_left(step: PipelineStep, gone: Mapping[str, PipelineStep], ours: Mapping[str, str]) -> tuple[str, ...]:
    """What a step needs by its new name; instead of a step that is left out, what that needs. There are no circles."""
    found, left = list[str](), list(step.needs)
    while left:
        need = left.pop(0)
        if need in gone:
            left += gone[need].needs
        else:
            found.append(ours.get(need, need))
    return tuple(dict.fromkeys(found))


def _last_specialist(steps: Sequence[PipelineStep]) -> int:
    """The number of steps up to the last specialist; all, if there is none."""
    return max((n for n, step in enumerate(steps, 1) if step.action in SPECIALISTS), default=len(steps))


def _find_unused_reads(
    some: Sequence[PipelineStep], steps: Sequence[PipelineStep], menu: Menu
) -> Iterator[PipelineStep]:
    """Which of `some` of these steps only read what no specialist sees, in a plan with specialists."""
    named = {step.id: step for step in steps}
    left = [need for step in steps if step.action in SPECIALISTS for need in step.needs]
    seen = set[str]()
    while left:
        need = left.pop()
        if need in named and need not in seen:
            seen.add(need)
            left += named[need].needs
    for step in some if any(step.action in SPECIALISTS for step in steps) else ():
        tool = menu.tool(step.target) if step.action == "tool" else None
        if tool is not None and is_read_only(tool) and step.id not in seen:
            yield step


def _blind_changes(steps: Sequence[PipelineStep], menu: Menu) -> Iterator[str]:
    """Steps that change a file which another step reads: what they write was written before it was read.

    Small models plan edits like this, and would replace a file by the few words that they want in it.
    """
    calls = [(step, tool) for step in steps if step.action == "tool" and (tool := menu.tool(step.target)) is not None]
    read = {path for step, tool in calls if is_read_only(tool) for path in _paths(step)}
    for step, tool in calls:
        if not is_read_only(tool) and len(step.args) > 1 and (seen := read & _paths(step)):
            yield (
                f"{step.id} would change {min(seen)[:100]!r} without having read it, since arguments are constants; "
                "let one specialist_with_tools read and change it"
            )


def _paths(step: PipelineStep) -> set[str]:
    return {value for name, value in step.args.items() if place_of(name) == "path" and isinstance(value, str)}


def _action(name: str, faults: _Faults) -> RouteAction | None:
    if name not in _ACTIONS:
        faults.add(f"action must be one of {', '.join(decision_actions(faults.menu))}, not {name[:50]!r}")
    return _ACTIONS.get(name)


def _unwrap_call(value: Object, tool: str) -> Object:
    """The form itself, if it was wrapped as the only call of its tool, in either form that models use."""
    calls = value.get("calls")
    if isinstance(calls, list) and len(calls) == 1 and set(value) <= _WRAPPERS:
        value = mapping(calls[0])
    named = next((key for key in ("name", "tool") if value.get(key) == tool), None)
    held = next((key for key in ARGUMENT_KEYS if isinstance(value.get(key), Mapping)), None)
    return mapping(value[held]) if named and held and set(value) == {named, held} else value


def _one_decision(value: Object, faults: _Faults) -> Object:
    """The decision; a list of several that are tools and specialists is one to carry them out, each after the one
    before it, and a specialist after all before it.

    Servers that ignore the form let models write such lists. Any other action ends a turn, so it is one alone.
    """
    listed = value.get("calls")
    if not isinstance(listed, list) or not set(value) <= _WRAPPERS:
        return value
    calls = [_unwrap_call(one, ROUTE_DECISION) for one in listed if isinstance(one, Mapping)]
    if len(calls) < len(listed) or not all(string(one.get("action")) in _IN_ORDER for one in calls):
        faults.add("write one decision, not several; only the steps of a pipeline are a list")
        return value
    sure = [one["confidence"] for one in calls if "confidence" in one]
    return {"action": "pipeline", "steps": list(_in_order(calls)), "confidence": _least(sure)}


def _in_order(calls: Sequence[Object]) -> Iterator[Object]:
    for n, one in enumerate(calls):
        needs = range(1, n + 1) if one.get("action") == "specialist" else [n] if n else []
        yield {"needs": list(needs), **{name: found for name, found in one.items() if name != "confidence"}}


def _least(sure: Sequence[object]) -> object:
    """The least of several confidences; of those that are no numbers, the first, for which it is refused."""
    odd = next((one for one in sure if not isinstance(one, int | float)), None)
    numbers = [one for one in sure if isinstance(one, int | float)]
    return odd if odd is not None else min(numbers, default=None)


def _arguments(value: object, faults: _Faults, of: str) -> Object:
    """The arguments: an object, or the JSON of one."""
    found = mapping(value)
    if not found and value not in (None, {}, "", "{}"):
        faults.add(f"{of} must be an object")
    return found


def _confidence(value: object, faults: _Faults) -> float:
    if value is None:
        return 1.0
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1:
        return float(value)
    faults.add("confidence must be a number from 0 to 1")
    return 0.0


def _other_faults(decision: RouteDecision, menu: Menu) -> Iterator[str]:
    if decision.action == "ask_user" and not string(decision.args.get("question")).strip():
        yield "args.question must be the question to the person"
    elif decision.action == "subagent" and decision.target not in menu.subagents:
        yield f"there is no butler or team {decision.target[:100]!r}; there are: {', '.join(menu.subagents) or 'none'}"


def _single(decision: RouteDecision) -> PipelineStep:
    action: Literal["tool", "specialist"] = "tool" if decision.action == "tool" else "specialist"
    return PipelineStep("s1", action, decision.target, decision.args)


def steps_of(decision: RouteDecision, limits: PlanLimits) -> tuple[PipelineStep, ...]:
    """The steps of a decision: those of its plan, or one for a single tool or specialist; none for other actions."""
    return limits.with_max_chars((_single(decision),)) if decision.action in {"tool", "specialist"} else decision.steps


# Steps ----------------------------------------------------------------------------------------------------------------


def _steps(listed: object, before: Sequence[PipelineStep], menu: Menu, faults: _Faults) -> tuple[PipelineStep, ...]:
    if listed is not None and not isinstance(listed, list):
        faults.add("steps must be a list")
    written = listed if isinstance(listed, list) else []
    objects = [one for one in written if isinstance(one, Mapping)]
    if len(objects) < len(written):
        faults.add("each step must be an object")
    names = _names(objects, before, faults)
    steps = (_step(one, f"s{len(before) + n}", names, faults) for n, one in enumerate(objects, 1))
    return tuple(_drop_note(step, menu) for step in steps if step is not None)


def _sizes(listed: object, before: int = 0) -> dict[str, int]:
    """The `max_chars` that steps ask for, by step; one that is no number is no wish."""
    sizes = (one.get("max_chars") for one in items(listed))
    return {f"s{before + n}": count(size) for n, size in enumerate(sizes, 1) if count(size)}


def _names(objects: Sequence[Object], before: Sequence[PipelineStep], faults: _Faults) -> Mapping[str, str]:
    """The valid entries of `needs` for each step: its number, or the id that the model gave it."""
    given = [_id(one.get("id")) for one in objects]
    ours = [f"s{len(before) + n}" for n in range(1, len(objects) + 1)]
    old = {name: step.id for n, step in enumerate(before, 1) for name in (str(n), step.id)}
    numbers = {str(n): one for n, one in enumerate(ours, len(before) + 1)}
    if not any(given):
        return old | numbers | {one: one for one in ours}
    # An id that is also the number of another step would be ambiguous.
    clear = all(numbers.get(one, mine) == mine for one, mine in zip(given, ours, strict=True))
    if not (all(given) and clear and len(set(given)) == len(given) and not set(given) & set(old)):
        faults.add("steps need no id; their position is their number")
    return old | numbers | dict(zip(given, ours, strict=True))


def _id(value: object) -> str:
    return str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""


def _step(one: Object, name: str, names: Mapping[str, str], faults: _Faults) -> PipelineStep | None:
    faults.check_keys(one, _STEP_NAMES, name, _IGNORED_OF_STEPS)
    said, target = string(one.get("action")), string(one.get("target"))
    action = _STEP_ACTIONS.get(said)
    if action is None:
        faults.add(f"{name}: action must be one of {', '.join(step_actions(faults.menu))}, not {said[:50]!r}")
    args = _arguments(one.get("args"), faults, f"{name}.args")
    needs = tuple(_needs(one.get("needs"), name, names, faults))
    if action is None:
        return None
    if action == "router_review":
        return PipelineStep(name, action, "review", {}, needs)
    return PipelineStep(name, action, target, args, needs)


def _needs(value: object, name: str, names: Mapping[str, str], faults: _Faults) -> Iterator[str]:
    listed = value if isinstance(value, list) else [] if value is None else [value]
    for need in listed:
        found = names.get(_id(need))
        if found is None:
            faults.add(f"{name} needs {str(need)[:50]}, which is not there")
        else:
            yield found


def _drop_note(step: PipelineStep, menu: Menu) -> PipelineStep:
    """For a tool without arguments, the step without the argument that only the form has."""
    tool = menu.tool(step.target) if step.action == "tool" else None
    if tool is None or tool.parameters.get("properties") or set(step.args) != {NOTE}:
        return step
    return replace(step, args={})
