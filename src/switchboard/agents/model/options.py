"""The options of a member with the engine `model`, checked. Next: `engine.py`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, field_validator, model_validator

from switchboard.agents.delivery import EngineOptions
from switchboard.core.turns.limits import Limits
from switchboard.ports.tools import QUOTA, Audience

_DEFAULT: Final = Limits()


class LimitOptions(BaseModel):
    """What one turn may use at most; see `core/turns/limits.py`. `cost` is in dollars."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    requests: PositiveInt = _DEFAULT.requests
    tool_calls: Annotated[int, Field(ge=0)] = _DEFAULT.tool_calls
    tokens: PositiveInt = _DEFAULT.tokens
    seconds: PositiveFloat = _DEFAULT.seconds
    repeats: Annotated[int, Field(ge=2)] = _DEFAULT.repeats
    cost: PositiveFloat | None = None

    @property
    def limits(self) -> Limits:
        """The same, as the loop takes it."""
        micros = None if self.cost is None else round(self.cost * 1_000_000)
        return Limits(self.requests, self.tool_calls, self.tokens, self.seconds, self.repeats, micros)


class ModelOptions(EngineOptions):
    """The options of a member with this engine."""

    models: tuple[str, ...] = ()
    """Names of `[[models]]`, in the order in which they are asked; empty: all, in the order of the settings."""
    prompt: str = ""
    prompt_file: Path | None = None
    zone: str = "UTC"
    """The time zone in which the model is told the time."""
    max_tokens: PositiveInt = 4096
    """The most that one answer may have."""
    tools: tuple[str, ...] | None = None
    """The tools that there are for this butler; None: all."""
    approve: tuple[str, ...] = ()
    """The tools of which a person must approve each call; it is so for all of high risk."""
    approve_hours: PositiveFloat = 48.0
    """Hours that a person has for it, and for the answer to a question."""
    grants: dict[Audience, tuple[str, ...]] = Field(default_factory=dict)
    """Who may make the butler use which tools; owners may all, others none, unless it is said here."""
    owners: tuple[str, ...] = ()
    """Who owns the butler: `telegram:5488`, a channel and a sender."""
    hosts: tuple[str, ...] = ()
    """Hosts from which pages may be fetched without being named by the person."""
    private_hosts: tuple[str, ...] = ()
    """Hosts that may be at private addresses."""
    workspace: Path | None = None
    """The directory of the butler's files; None: one of its own below `data_dir`."""
    workspace_quota: PositiveInt = QUOTA
    """Bytes on disk that the workspace may take."""
    tool_timeout: PositiveFloat = 60.0
    limits: LimitOptions = LimitOptions()

    @field_validator("zone")
    @classmethod
    def _known_zone(cls, zone: str) -> str:
        try:
            ZoneInfo(zone)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise ValueError(f"there is no time zone {zone!r}; write one such as Europe/Berlin") from None
        return zone

    @model_validator(mode="after")
    def _one_prompt(self) -> ModelOptions:
        if self.prompt and self.prompt_file is not None:
            raise ValueError("give either prompt or prompt_file, not both")
        return self
