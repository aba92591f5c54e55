"""What the journal knows about a plan, in the form from which the machine resumes. Pure.

The executor calls `recorded_of` when it begins or resumes. In: the steps on record, by path; out: `Recorded`. The path
of a plan's step is its id, and the paths of its own requests and calls begin with it (`s3/request:1`); all other
records of a turn have a colon in their path, which no id has. Next: `machine.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from switchboard.core.planning.machine import HaltReason, Recorded, StepEnd, StepEnded
from switchboard.core.text.lenient import mapping, string
from switchboard.domain.json_values import JsonMapping
from switchboard.domain.planning import PipelineStep, Review
from switchboard.ports.engine import OnRecord
from switchboard.ports.history import EntryCall

START: Final = "plan:start"
ROUTE: Final = "plan:route"
LEAD: Final = "plan:lead"
APPROVAL: Final = "approval:"
PAUSE: Final = "plan:pause:"
"""The turn waits from then on, for people or for a model; with the number of the pause."""
GO_ON: Final = "plan:go_on:"
Records = Mapping[str, OnRecord]


def step_of(path: str) -> str | None:
    """The step of a plan that a record belongs to; None if there is none."""
    name = path.partition("/")[0]
    return None if ":" in name else name


def tokens_of(records: Records, step: PipelineStep) -> int:
    """The tokens that a step has used, or may have, in all attempts, including its own requests and calls."""
    if step.action == "tool":
        return 0
    return sum(one.tokens for path, one in records.items() if step_of(path) == step.id)


def all_tokens(records: Records) -> int:
    """The tokens of the whole turn: planning, steps, and the lead-in to the result."""
    return sum(one.tokens for one in records.values())


def recorded_of(records: Records, halted: HaltReason | None = None) -> Recorded:
    """A plan as the journal has it. Tokens spent on anything but ended steps are lost to its budget."""
    tokens = Counter[str | None]()
    for path, one in records.items():
        tokens[step_of(path)] += one.tokens
    ends = {path: ended_of(path, records, tokens[path]) for path in _paths_of_ended_steps(records)}
    begun = {name for path in records if (name := step_of(path)) is not None and name not in ends}
    approved = frozenset(
        path.removeprefix(APPROVAL)
        for path, one in records.items()
        if path.startswith(APPROVAL) and mapping(mapping(one.result).get("value")).get("decision") == "approved"
    )
    lost = all_tokens(records) - sum(one.end.tokens for one in ends.values())
    return Recorded(tuple(ends.values()), begun=frozenset(begun), approved=approved, lost=lost, halted=halted)


def _paths_of_ended_steps(records: Records) -> Iterator[str]:
    return (path for path, one in records.items() if step_of(path) == path and one.state != "started")


def ended_of(step_id: str, records: Records, tokens: int) -> StepEnded:
    """The end of a recorded step, which used this many tokens."""
    one = records[step_id]
    if one.state == "started":
        raise ValueError(f"step {step_id} has not ended")
    if one.state != "done":
        why = string(mapping(one.result).get("why"))
        return StepEnded(StepEnd(step_id, one.state, tokens=tokens, why=why, calls=_calls_of(step_id, records)))
    result = mapping(one.result)
    review = msgspec.convert(result["review"], Review) if "review" in result else None
    calls = _read_calls(result["calls"]) if "calls" in result else None
    return StepEnded(StepEnd(step_id, "done", len(text_of(result)), tokens, calls=calls), review)


def _read_calls(calls: object) -> tuple[EntryCall, ...]:
    """The calls that a specialist's step has on record, without their results."""
    made = map(mapping, calls if isinstance(calls, list) else ())
    return tuple(map(_call, made))


def _call(made: JsonMapping) -> EntryCall:
    outside = made.get("outside")  # older releases have not noted it
    noted = outside if isinstance(outside, bool) else None
    return EntryCall("", string(made.get("name")), string(made.get("arguments")), "", outside=noted)


def _calls_of(step_id: str, records: Records) -> tuple[EntryCall, ...] | None:
    """The same of a step that has no result: none if no call was begun, else nobody knows what was read."""
    return None if any(path.startswith(f"{step_id}/tool:") for path in records) else ()


def notes_of(records: Records, ids: Iterable[str]) -> tuple[str, ...]:
    """Notes for operators about these steps, a sentence each, beginning with the step's id."""
    found = ((one, mapping(records[one].result).get("notes")) for one in ids if one in records)
    return tuple(f"{one}: {note}" for one, notes in found if isinstance(notes, list) for note in notes)


def text_of(result: JsonMapping) -> str:
    """The result of a step, as others see it."""
    return string(result.get("text"))
