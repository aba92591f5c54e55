"""`/v1/agents/…`: heartbeats of remote butlers, and what operators do about them.

Who there is stands in `teams.py`. Next: `app/remote_agents.py`.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from fastapi import Depends, Response
from pydantic import Field, StringConstraints

from switchboard.app.access import Principal
from switchboard.app.butlers import ButlerService
from switchboard.app.remote_agents import BEAT, EDIT_AGENTS, RemoteAgentService, Standing
from switchboard.server.contracts.base import Body, Line, Word
from switchboard.server.http.parameters import router_of
from switchboard.server.http.services import Parts, answer, needs, operation
from switchboard.server.services import ServiceFactory
from switchboard.store.rules.remote_agents import Announcement

BUTLER_SERVICE: Final = ServiceFactory(lambda s: ButlerService(s.runtime))
REMOTE_AGENT_SERVICE: Final = ServiceFactory(lambda s: RemoteAgentService(s.runtime, s.access))
router = router_of("agents")

Beating = Annotated[Principal, Depends(needs(BEAT))]
Operator = Annotated[Principal, Depends(needs(EDIT_AGENTS))]
Url = Annotated[str, StringConstraints(min_length=1, max_length=2000, pattern=r"^[\x21-\x7e]+$")]


class BeatBody(Body):
    """`butler.heartbeat.v1`. Omitted fields keep their last value. Only an operator sets `system_id`."""

    schema_version: Literal["butler.heartbeat.v1"] = "butler.heartbeat.v1"
    system_id: Word | None = None
    description: Annotated[str, StringConstraints(max_length=2000, pattern=r"^[^\x00]*$")] | None = None
    capabilities: Annotated[list[Word], Field(max_length=50)] | None = None
    endpoint: Url | None = None
    instance_id: Word | None = None
    version: Word | None = None


class OrderBody(Body):
    """Which butler, and why."""

    system_id: Word
    reason: Line


class MoveBody(OrderBody):
    """The new URL of a butler; null: the one in its team file."""

    endpoint: Url | None


@router.post(
    "/v1/agents/heartbeat",
    **operation("send_butler_heartbeat", "Send a remote butler's heartbeat", Standing, 404, 409, 429),
)
async def heartbeat(caller: Beating, parts: Parts, body: BeatBody) -> Response:
    """Send the next one after `interval_s` seconds."""
    return answer(await parts.of(REMOTE_AGENT_SERVICE).beat(caller, body.system_id, announcement(body)))


@router.post("/v1/agents/quarantine", **operation("quarantine_butler", "Quarantine a butler", Standing, 404, 409))
async def quarantine(caller: Operator, parts: Parts, body: OrderBody) -> Response:
    """Until it is released, models do not choose it, and messages that rules send to it become dead letters."""
    return answer(await parts.of(REMOTE_AGENT_SERVICE).quarantine(caller, body.system_id, body.reason))


@router.post("/v1/agents/release", **operation("release_butler", "Release a butler", Standing, 404, 409))
async def release(caller: Operator, parts: Parts, body: OrderBody) -> Response:
    """Missing heartbeats count again as before."""
    return answer(await parts.of(REMOTE_AGENT_SERVICE).release(caller, body.system_id, body.reason))


@router.post("/v1/agents/endpoint", **operation("set_butler_endpoint", "Set a butler's endpoint", Standing, 404, 409))
async def move(caller: Operator, parts: Parts, body: MoveBody) -> Response:
    """It overrides the team file, also after a restart, until it is set to null."""
    return answer(await parts.of(REMOTE_AGENT_SERVICE).move(caller, body.system_id, body.endpoint, body.reason))


def announcement(body: BeatBody) -> Announcement:
    """The heartbeat on the wire in the register's form."""
    said = body.model_dump(exclude={"schema_version", "system_id", "capabilities"})
    return Announcement(**said, capabilities=None if body.capabilities is None else tuple(body.capabilities))
