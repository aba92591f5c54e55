"""Plans: turns of several steps, and what a router decides. Values only.

`core/planning/` makes, checks and runs them; `Pipeline` and `RouteDecision` are published as JSON Schemas. Not to be
confused with `switchboard.pipeline.MessagePipeline`, which routes messages. Next: `core/planning/machine.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta, Struct

from switchboard.domain.json_values import JsonMapping

PipelineAction = Literal["tool", "specialist", "specialist_with_tools", "router_review"]
"""`tool`: one call. `specialist`: a model writes from the results of other steps; `specialist_with_tools` may also call
tools. `router_review`: the router looks at the results so far, and may add steps."""

RouteAction = Literal["respond", "tool", "specialist", "ask_user", "subagent", "pipeline"]
Verdict = Literal["complete", "extend", "give_up"]

SPECIALISTS: Final[frozenset[PipelineAction]] = frozenset({"specialist", "specialist_with_tools"})
TOOL_CHARS: Final = 4_000
SPECIALIST_CHARS: Final = 8_000
MAX_CHARS: Final = 100_000
MAX_ROUNDS: Final = 10
ROUNDS: Final = 3
TOKEN_BUDGET: Final = 20_000


@dataclass(frozen=True, slots=True)
class PipelineStep:
    """One step of a plan."""

    id: Annotated[str, Meta(min_length=1, max_length=20, pattern="^[a-z0-9][a-z0-9_-]*$", description="Unique.")]
    action: Annotated[PipelineAction, Meta(description="What is done.")]
    target: Annotated[str, Meta(max_length=200, description="The name of a tool, or the task of a specialist.")]
    args: Annotated[JsonMapping, Meta(description="The tool's arguments, or `task` for a specialist; constants.")] = (
        field(default_factory=dict)
    )
    needs: Annotated[tuple[str, ...], Meta(description="Ids of steps that must have ended before.")] = ()
    max_chars: Annotated[
        int,
        Meta(
            ge=1,
            le=MAX_CHARS,
            description="Of a tool: how many characters of its result others see; of a specialist: all of its input.",
        ),
    ] = TOOL_CHARS


class Pipeline(Struct, frozen=True):
    """A plan: its steps form a directed acyclic graph, in which a step starts when everything it needs has ended."""

    steps: Annotated[tuple[PipelineStep, ...], Meta(min_length=1, description="In any order.")]
    max_rounds: Annotated[
        int, Meta(ge=1, le=MAX_ROUNDS, description="Rounds of planning; the first plan is round 1, so 1: no review.")
    ] = ROUNDS
    token_budget: Annotated[
        int, Meta(ge=1, description="Tokens that models may generate in all steps together, reasoning included.")
    ] = TOKEN_BUDGET
    deadline: Annotated[
        Annotated[datetime, Meta(tz=True)] | None,
        Meta(description="When what is known is presented; the time of waiting for people is added."),
    ] = None


class RouteDecision(Struct, frozen=True):
    """What a router decides about a message: one action, or a plan of several steps."""

    action: Annotated[RouteAction, Meta(description="What is done with the message.")]
    target: Annotated[
        str, Meta(description="Of `tool` and `specialist` as in a step; of `subagent` the name of a butler.")
    ] = ""
    args: Annotated[
        JsonMapping, Meta(description="Of `tool` and `specialist` as in a step; of `ask_user` the `question`.")
    ] = msgspec.field(default_factory=dict)
    steps: Annotated[tuple[PipelineStep, ...], Meta(description="Of `pipeline`.")] = ()
    confidence: Annotated[float, Meta(ge=0, le=1, description="How sure the router is, from 0 to 1.")] = 1.0


class Review(Struct, frozen=True):
    """What a router says about a plan's results. `steps` are added; existing ones never change."""

    verdict: Verdict
    steps: tuple[PipelineStep, ...] = ()
