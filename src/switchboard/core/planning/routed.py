"""The decision about a message as the step `plan:route` records it: JSON with the number of its format. Pure.

`agents/trio/run.py` writes and reads it; so does the code that shows plans. Next: `machine.py`, for decisions that are
plans.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from switchboard.core.planning.ladder import PlanSource
from switchboard.core.text.lenient import mapping
from switchboard.domain.json_values import JsonMapping, JsonObject
from switchboard.domain.planning import Pipeline, RouteAction

FORMAT: Final = 1


class RoutedPlan(Struct, frozen=True):
    """`pipeline`: if there are steps to carry out, even a single tool or specialist. `notes` are for the operator."""

    action: RouteAction
    source: PlanSource
    pipeline: Pipeline | None = None
    target: str = ""
    args: JsonObject = field(default_factory=dict)
    unsure: bool = False
    notes: tuple[str, ...] = ()

    @property
    def warning(self) -> str:
        """The notes as one line."""
        return "; ".join(self.notes)

    def with_more(self, tokens: int, most: int) -> RoutedPlan:
        """For a template: the same with `tokens` more, up to `most` in all."""
        if self.pipeline is None or self.source != "template":
            return self
        budget = min(self.pipeline.token_budget + tokens, most)
        return replace(self, pipeline=replace(self.pipeline, token_budget=budget))

    def record(self) -> JsonObject:
        """The form that the journal keeps."""
        return {"format": FORMAT, **msgspec.to_builtins(self)}


def routed_or_note(record: JsonMapping) -> RoutedPlan:
    """The journal's record; if another release made it, only that it cannot be read."""
    try:
        return read_routed(record)
    except msgspec.ValidationError as error:
        return RoutedPlan("pipeline", "exact", notes=(note_of_error(error),))


def note_of_error(error: msgspec.ValidationError) -> str:
    """What operators are told of a plan that cannot be read."""
    return f"this release cannot read what is on record of the plan: {error}"


def read_routed(record: JsonMapping) -> RoutedPlan:
    """Parse the journal's record. Raises `msgspec.ValidationError` for anything else."""
    found = mapping(record).get("format")
    if not isinstance(found, int) or found > FORMAT:
        raise msgspec.ValidationError(f"its format is {found!r}, and this release knows those up to {FORMAT}")
    return msgspec.convert(_without(record, "format", "usage"), RoutedPlan)


def _without(record: JsonMapping, *names: str) -> Mapping[str, object]:
    return {name: value for name, value in record.items() if name not in names}
