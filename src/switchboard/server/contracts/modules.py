"""The shapes of requests and answers about modules and calls of tools. Next: `app/calls.py`."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field, StringConstraints

from switchboard.domain.json_values import JsonObject
from switchboard.domain.modules import ShownModule
from switchboard.server.contracts.base import Body, Id, ResponseBody, SystemRef, Word

ToolName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
KEY: Final = "switchboard/idempotency_key"
"""Key in `_meta` of a call over MCP, as we send it to MCP servers."""
MAX_KEY: Final = 200
CallKey = Annotated[str, StringConstraints(min_length=1, max_length=MAX_KEY, pattern=r"^[^\x00]+$")]
Wait = Annotated[float, Field(ge=0, le=50, allow_inf_nan=False)]


class ModuleList(ResponseBody):
    """By name."""

    modules: list[ShownModule]


class CallBody(Body):
    """A call of a butler's tool.

    `system_id`: the butler; an agent's token has its own. `person`: whom it is for, which only operators say.
    `idempotency_key`: with the same one, the same call is made once, and its result returned again.
    """

    system_id: SystemRef | None = None
    tool: ToolName
    arguments: JsonObject = Field(default_factory=dict)
    person: Word | None = None
    idempotency_key: CallKey | None = None


class WhichCall(Body):
    """A call that was made before. `wait_s`: how long to wait for its end."""

    call_id: Id
    wait_s: Wait = 0.0
