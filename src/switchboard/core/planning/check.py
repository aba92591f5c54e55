"""What is wrong with a plan before any of it runs: all faults at once, for a model to correct. Pure.

`read.py` checks what models plan, `agents/trio/run.py` every plan before it begins. In: a `Pipeline` and the `Menu`;
out: a sentence for each fault. Next: `machine.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, get_args

import msgspec

from switchboard.core.arguments import complaints
from switchboard.core.planning.form import usable
from switchboard.core.planning.graph import graph_faults
from switchboard.core.planning.limits import PlanLimits
from switchboard.core.planning.menu import SPECIALIST_TASKS, Menu
from switchboard.core.planning.places import place_faults
from switchboard.domain.json_values import JsonMapping
from switchboard.domain.planning import MAX_CHARS, MAX_ROUNDS, SPECIALISTS, Pipeline, PipelineAction, PipelineStep

MOST_ARGS: Final = 8_000
"""Maximum characters of a step's arguments, as JSON."""
_ACTIONS: Final[tuple[str, ...]] = get_args(PipelineAction)


def pipeline_faults(pipeline: Pipeline, menu: Menu, limits: PlanLimits) -> tuple[str, ...]:
    """Everything that is wrong with a plan; empty: it may run."""
    return (*_frame_faults(pipeline, limits), *steps_faults(pipeline.steps, menu, limits.steps))


def steps_faults(
    steps: Sequence[PipelineStep], menu: Menu, most: int, before: Sequence[PipelineStep] = ()
) -> tuple[str, ...]:
    """Everything that is wrong with steps to be added to the steps `before`; `most` steps are allowed in all."""
    each = (f"{step.id[:50]}: {fault}" for step in steps for fault in step_faults(step, menu))
    return (*graph_faults(steps, most, before), *each)


def _frame_faults(pipeline: Pipeline, limits: PlanLimits) -> Iterator[str]:
    if not 1 <= pipeline.max_rounds <= MAX_ROUNDS:
        yield f"max_rounds must be from 1 to {MAX_ROUNDS}, not {pipeline.max_rounds}"
    if pipeline.token_budget < limits.smallest_budget:
        yield f"token_budget must be at least {limits.smallest_budget}, not {pipeline.token_budget}"


def step_faults(step: PipelineStep, menu: Menu) -> Iterator[str]:
    """What is wrong with one step, apart from its place in the plan."""
    if not 1 <= step.max_chars <= MAX_CHARS:
        yield f"max_chars must be from 1 to {MAX_CHARS}, not {step.max_chars}"
    text = _as_json(step.args)
    if text is None:
        yield "args is not JSON, or nested too deeply"
        return
    if len(text) > MOST_ARGS:
        yield f"args has {len(text)} characters; at most {MOST_ARGS} are allowed"
    if step.action == "tool":
        yield from tool_faults(step.target, step.args, menu)
    elif step.action in SPECIALISTS:
        yield from _specialist_faults(step)
    elif step.action != "router_review":
        yield f"action must be one of {', '.join(_ACTIONS)}, not {step.action!r}"


def _as_json(args: JsonMapping) -> str | None:
    """The arguments as the journal keeps them; None: they would not be the same when read again."""
    try:
        text = msgspec.json.encode(dict(args)).decode()
        return text if msgspec.json.decode(text) == args else None
    except (RecursionError, TypeError, ValueError):
        return None


def tool_faults(name: str, arguments: Mapping[str, object], menu: Menu) -> Iterator[str]:
    """What is wrong with a call of a tool; the same rules hold for calls in a specialist's loop."""
    tool = menu.tool(name)
    if tool is None:
        yield f"there is no tool {name[:100]!r}; there are: {', '.join(one.name for one, _ in usable(menu)) or 'none'}"
        return
    yield from complaints(arguments, tool.parameters)
    yield from place_faults(arguments, menu)


def _specialist_faults(step: PipelineStep) -> Iterator[str]:
    if step.target not in SPECIALIST_TASKS:
        yield f"there is no specialist {step.target[:100]!r}; there are: {', '.join(SPECIALIST_TASKS)}"
    task = step.args.get("task")
    if not isinstance(task, str) or not task.strip():
        yield "args.task must say what is to be written"
    if unknown := [name for name in step.args if name != "task"]:
        yield f"args.{unknown[0][:50]} is unknown: a specialist takes only task"
