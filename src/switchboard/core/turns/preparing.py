"""What a call would do, found out before anybody is asked, and the tool as it is with these arguments. Pure.

`agents/turns/asking.py` has tools prepare calls, `agents/turns/talk.py` and `agents/trio/steps.py` make them. In: what
a tool says of a call; out: what is approved, and how the call is made. Next: `asking.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from switchboard.core.text.storable import storable_text
from switchboard.core.turns.asking import LOOKED_UP
from switchboard.core.turns.frozen import FrozenTool
from switchboard.domain.json_values import JsonMapping, JsonObject
from switchboard.ports.effects import Effect
from switchboard.ports.engine import OnRecord
from switchboard.ports.tools import PreparedCall, Risk, ToolOutcome

PREPARE: Final = "prepare:"
"""Begins the path of the step that prepares a call."""
MOST_SHOWN: Final = 20_000
"""Characters of what is shown: nobody approves more."""
_MOST_WHY: Final = 200
_EFFECTS: Final[tuple[Effect, ...]] = ("idempotent", "queryable", "effectful")
_RISKS: Final[tuple[Risk, ...]] = ("low", "medium", "high")
_TOO_MUCH: Final = "it was not called: what it would do is more than a person can be shown; do it in several calls"


class CallPlan(Struct, frozen=True):
    """What is on record of a prepared call. `wary`: whether others' words were read before.

    `refusal`: why it cannot be made, in a sentence for the model; empty: it can.
    """

    wary: bool
    refusal: str = ""
    prepared: PreparedCall | None = None

    @property
    def approval(self) -> str:
        """Why a person must approve the call, whatever its tool; empty: nobody has to."""
        return "" if self.prepared is None else self.prepared.approval

    @property
    def digest(self) -> str:
        """Of what is approved, as the tool says."""
        return "" if self.prepared is None else self.prepared.digest

    @property
    def begun(self) -> bool:
        """Whether an earlier attempt has begun to carry it out."""
        return self.prepared is not None and self.prepared.begun

    def record(self) -> JsonObject:
        """The form that the journal keeps."""
        built: JsonObject = msgspec.to_builtins(self)
        return built

    def shown_with(self, arguments: JsonMapping) -> JsonMapping:
        """What a person sees who is asked: the arguments, and what was looked up for them."""
        shown = "" if self.prepared is None else self.prepared.shown
        # What a model calls so is not what was looked up, and must not look like it.
        given = {f"{name} " if name == LOOKED_UP else name: value for name, value in arguments.items()}
        return {**given, LOOKED_UP: shown} if shown else given


def plan_call(found: PreparedCall | ToolOutcome, *, wary: bool) -> CallPlan:
    """What a tool has said of a call, in a form that can be stored."""
    if isinstance(found, ToolOutcome):
        return CallPlan(wary, storable_text(found.text) or "it cannot be done")
    if len(found.shown) > MOST_SHOWN:
        return CallPlan(wary, _TOO_MUCH)
    why, shown = storable_text(found.why[:_MOST_WHY]), storable_text(found.shown)
    return CallPlan(wary, "", replace(found, why=why, shown=shown, digest=storable_text(found.digest)))


def path_of_plan(path: str) -> str:
    """The step that prepares the call with this path."""
    return f"{PREPARE}{path.removeprefix('tool:')}"


def plan_on_record(records: Mapping[str, OnRecord], path: str) -> CallPlan | None:
    """What is on record of the call with this path; None: it was not prepared."""
    found = records.get(path_of_plan(path))
    return msgspec.convert(found.result, CallPlan) if found is not None and found.state == "done" else None


def tool_of_call(tool: FrozenTool, plan: CallPlan | None) -> FrozenTool:
    """The tool as it is with these arguments: its effect and risk are at least those that it always has."""
    if plan is None or plan.prepared is None:
        return tool
    effect = max(tool.effect, plan.prepared.effect, key=_EFFECTS.index)
    ordered = tool.ordered or effect != "idempotent"
    risk = max(tool.risk or "low", plan.prepared.risk, key=_RISKS.index)
    return replace(tool, effect=effect, risk=risk, ordered=ordered, approval=tool.approval or plan.approval)
