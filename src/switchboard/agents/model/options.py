"""The options of a member with the engine `model`, checked. Next: `engine.py`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Final

from pydantic import BaseModel, Field, PositiveFloat, PositiveInt

from switchboard.agents.turns.options import TurnOptions
from switchboard.core.turns.limits import LoopLimits

_DEFAULT: Final = LoopLimits()


class LimitOptions(BaseModel, extra="forbid", frozen=True):
    """Maximum usage of one turn; see `core/turns/limits.py`. `cost` is in dollars."""

    requests: PositiveInt = _DEFAULT.requests
    tool_calls: Annotated[int, Field(ge=0)] = _DEFAULT.tool_calls
    tokens: PositiveInt = _DEFAULT.tokens
    seconds: PositiveFloat = _DEFAULT.seconds
    repeats: Annotated[int, Field(ge=2)] = _DEFAULT.repeats
    cost: PositiveFloat | None = None

    @property
    def limits(self) -> LoopLimits:
        """The limits in the loop's form."""
        micros = None if self.cost is None else round(self.cost * 1_000_000)
        return LoopLimits(self.requests, self.tool_calls, self.tokens, self.seconds, self.repeats, micros)


class ModelOptions(TurnOptions):
    """The options of a member with this engine."""

    models: tuple[str, ...] = ()
    """Names of `[[models]]`, in the order of asking; empty: all, in the order of the settings."""
    max_tokens: PositiveInt = 4096
    """The maximum for one answer."""
    limits: LimitOptions = LimitOptions()
    own: tuple[str, ...] = ()
    """Tools whose results contain nothing from outside, besides ours that reach nothing outside of the workspace."""

    @property
    def tools_named(self) -> Mapping[str, Sequence[str]]:
        """As for all engines with tools."""
        return {"own": self.own}
