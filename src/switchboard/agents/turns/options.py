"""The options of members whose engine asks models: prompt, tools, who may use them, and what they may reach.

Each engine adds its own. Next: `equipment.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace
from pydantic import PositiveFloat, PositiveInt, field_validator, model_validator

from switchboard.agents.delivery import EngineOptions, read_options
from switchboard.core.zones import find_zone
from switchboard.domain.routing import Member
from switchboard.ports.tools import QUOTA, AfterForeign


class TurnOptions(EngineOptions):
    """The options common to all members with a model."""

    prompt: str = ""
    prompt_file: Path | None = None
    zone: str = "UTC"
    """The time zone in which the model is told the time."""
    tools: tuple[str, ...] | None = None
    """The tools of this butler; None: all."""
    approve: tuple[str, ...] = ()
    """The tools whose calls a person must approve, in addition to all tools of high risk."""
    approve_hours: PositiveFloat = 48.0
    """Hours that a person has to approve a call or to answer a question."""
    after_foreign: AfterForeign = "outside"
    """The calls that a person must approve once others' words were read."""
    hosts: tuple[str, ...] = ()
    """Hosts from which pages may be fetched without being named by the person."""
    private_hosts: tuple[str, ...] = ()
    """Hosts that may be at private addresses."""
    workspace: Path | None = None
    """The directory of the butler's files; None: its own directory below `data_dir`."""
    workspace_quota: PositiveInt = QUOTA
    """Bytes that the workspace may take on disk."""
    tool_timeout: PositiveFloat = 60.0

    @property
    def tools_named(self) -> Mapping[str, Sequence[str]]:
        """The tools named by options that only this engine has, by option."""
        return {}

    @field_validator("zone")
    @classmethod
    def _known_zone(cls, zone: str) -> str:
        return find_zone(zone).key

    @model_validator(mode="after")
    def _one_prompt(self) -> TurnOptions:
        if self.prompt and self.prompt_file is not None:
            raise ValueError("give either prompt or prompt_file, not both")
        return self


def tool_options_of(member: Member) -> TurnOptions:
    """Those options of a butler that are about tools, whatever its engine is. Raises `EngineFailure`."""
    known = {name: value for name, value in member.options.items() if name in TurnOptions.model_fields}
    return read_options(TurnOptions, replace(member, options=known))
