"""The options of a member with the engine `trio`, checked. Next: `engine.py`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Final, Self

from pydantic import BaseModel, Field, PositiveFloat, PositiveInt, model_validator

from switchboard.agents.turns.options import TurnOptions
from switchboard.core.planning.limits import PlanLimits
from switchboard.core.planning.templates import Builds
from switchboard.domain.json_values import JsonObject
from switchboard.domain.planning import MAX_CHARS, MAX_ROUNDS, ROUNDS, TOKEN_BUDGET
from switchboard.ports.tools import AfterForeign

_DEFAULT: Final = PlanLimits()
Chars = Annotated[int, Field(ge=200, le=MAX_CHARS)]


class PlanOptions(BaseModel, extra="forbid", frozen=True):
    """Maximum usage of one plan; see `core/planning/limits.py`.

    `token_budget`: generated tokens, `template_budget`: those of a template; `deadline` in seconds; fruitless
    `attempts`; `tries` of a tool that may be repeated; `calls` of tools in the loop of one specialist.
    `specialist_tokens`, `with_tools_tokens` and `review_tokens` are reserved for a step.
    """

    steps: PositiveInt = _DEFAULT.steps
    at_once: PositiveInt = _DEFAULT.at_once
    max_rounds: Annotated[int, Field(ge=1, le=MAX_ROUNDS)] = ROUNDS
    token_budget: PositiveInt = TOKEN_BUDGET
    template_budget: PositiveInt = _DEFAULT.template_budget
    deadline: PositiveFloat = 600.0
    attempts: PositiveInt = 5
    tries: PositiveInt = 3
    calls: Annotated[int, Field(ge=0)] = 6
    tool_chars: Chars = _DEFAULT.tool_chars
    specialist_chars: Chars = _DEFAULT.specialist_chars
    specialist_tokens: PositiveInt = _DEFAULT.reserve["specialist"]
    with_tools_tokens: PositiveInt = _DEFAULT.reserve["specialist_with_tools"]
    review_tokens: PositiveInt = _DEFAULT.reserve["router_review"]
    router_tokens: PositiveInt = _DEFAULT.router_tokens
    thinking_tokens: PositiveInt = _DEFAULT.thinking_tokens
    kept_tokens: Annotated[int, Field(ge=0)] = _DEFAULT.kept
    least_tokens: PositiveInt = _DEFAULT.least
    unsure_below: Annotated[float, Field(ge=0, le=1)] = _DEFAULT.unsure_below

    @model_validator(mode="after")
    def _agree(self) -> Self:
        least, smallest = self.least_tokens, self.limits.smallest_budget
        lowest = {
            "token_budget": (smallest, "kept_tokens and least_tokens together"),
            "template_budget": (smallest, "kept_tokens and least_tokens together"),
            **dict.fromkeys(("specialist_tokens", "with_tools_tokens", "review_tokens"), (least, "least_tokens")),
            "router_tokens": (least, "least_tokens"),
            "thinking_tokens": (self.router_tokens, "router_tokens"),
        }
        wrong = [f"{name} must be at least {n} ({of})" for name, (n, of) in lowest.items() if getattr(self, name) < n]
        if wrong:
            raise ValueError("; ".join(wrong))
        return self

    @property
    def limits(self) -> PlanLimits:
        """The limits in the machine's form."""
        return PlanLimits(
            steps=self.steps,
            at_once=self.at_once,
            tool_chars=self.tool_chars,
            specialist_chars=self.specialist_chars,
            reserve={
                "specialist": self.specialist_tokens,
                "specialist_with_tools": self.with_tools_tokens,
                "router_review": self.review_tokens,
            },
            kept=self.kept_tokens,
            least=self.least_tokens,
            router_tokens=self.router_tokens,
            thinking_tokens=self.thinking_tokens,
            template_budget=self.template_budget,
            unsure_below=self.unsure_below,
        )


class BuildOptions(BaseModel, extra="forbid", frozen=True):
    """How the code in the workspace is built and tested, as the arguments of a tool."""

    tool: str = "execute_command"
    build: JsonObject
    test: JsonObject

    @property
    def builds(self) -> Builds:
        """The same in the form for templates."""
        return Builds(self.tool, self.build, self.test)


class TrioOptions(TurnOptions):
    """The options of a member with this engine."""

    main: str | None = None
    """The model that presents results, and answers without a plan; None: the one in `trio` of the settings."""
    router: str | None = None
    """The model that plans and reviews."""
    specialist: str | None = None
    """The model that writes."""
    plan: PlanOptions = PlanOptions()
    after_foreign: AfterForeign = "all"
    """The calls and steps that a person must approve once others' words were read."""
    own: tuple[str, ...] = ()
    """Tools whose results contain nothing from outside, besides ours that reach nothing outside of the workspace, so
    they do not make later steps need an approval."""
    paths: tuple[str, ...] = ()
    """Paths in the workspace that plans may name, in addition to those that people write."""
    builds: BuildOptions | None = None
    """How code is built and tested; None: not at all."""
    tool_timeout: PositiveFloat = 30.0

    @property
    def tools_named(self) -> Mapping[str, Sequence[str]]:
        """As for all engines with tools."""
        return {"own": self.own, "builds": () if self.builds is None else (self.builds.tool,)}
