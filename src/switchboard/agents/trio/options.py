"""The options of a member with the engine `trio`, checked. Next: `engine.py`."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt

from switchboard.agents.loop.options import TurnOptions
from switchboard.core.planning.limits import PlanLimits
from switchboard.core.planning.templates import Builds
from switchboard.domain.json_values import JsonObject
from switchboard.domain.planning import MAX_ROUNDS, ROUNDS, TOKEN_BUDGET

_DEFAULT: Final = PlanLimits()


class PlanOptions(BaseModel):
    """What one plan may use at most; see `core/planning/limits.py`.

    `token_budget` of generated tokens; seconds until the `deadline`; `attempts` that come to nothing; `tries` of a tool
    that may be repeated; `calls` of tools in the loop of one specialist.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    steps: PositiveInt = _DEFAULT.steps
    at_once: PositiveInt = _DEFAULT.at_once
    max_rounds: Annotated[int, Field(ge=1, le=MAX_ROUNDS)] = ROUNDS
    token_budget: Annotated[int, Field(ge=_DEFAULT.smallest_budget)] = TOKEN_BUDGET
    deadline: PositiveFloat = 600.0
    attempts: PositiveInt = 5
    tries: PositiveInt = 3
    calls: Annotated[int, Field(ge=0)] = 6

    @property
    def limits(self) -> PlanLimits:
        """The same, as the machine takes it."""
        return PlanLimits(self.steps, self.at_once)


class BuildOptions(BaseModel):
    """How the code in the workspace is built and tested: the arguments of a tool."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    tool: str = "execute_command"
    build: JsonObject
    test: JsonObject

    @property
    def builds(self) -> Builds:
        """The same, as templates take it."""
        return Builds(self.tool, self.build, self.test)


class TrioOptions(TurnOptions):
    """The options of a member with this engine."""

    main: str | None = None
    """The model that presents results, and answers what needs no plan; None: as `trio` of the settings says."""
    router: str | None = None
    """The model that plans and reviews."""
    specialist: str | None = None
    """The model that writes."""
    plan: PlanOptions = PlanOptions()
    own: tuple[str, ...] = ()
    """Tools whose results hold nothing from outside: what they return makes no later step need an approval."""
    paths: tuple[str, ...] = ()
    """Paths in the workspace that plans may name besides those that people write."""
    builds: BuildOptions | None = None
    """How code is built and tested; None: it is not."""
    tool_timeout: PositiveFloat = 30.0
