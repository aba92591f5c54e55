"""`/v1/agents/…`: heartbeats of remote butlers, and what operators do about them; the schemas of what they speak.

Who there is stands in `teams.py`. Next: `app/registry.py`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Response
from pydantic import Field, StringConstraints

from switchboard.app.access import Principal
from switchboard.app.registry import Standing
from switchboard.core.remote import response_schema, route_schema
from switchboard.server.http.doors import Parts, answer, documented, needs
from switchboard.server.http.schemas import Body, Line, Word
from switchboard.store.presence import Announcement

router = APIRouter(tags=["agents"])

Beating = Annotated[Principal, Depends(needs("beat"))]
Operator = Annotated[Principal, Depends(needs("agents_edit"))]
Url = Annotated[str, StringConstraints(min_length=1, max_length=2000, pattern=r"^[\x21-\x7e]+$")]


class BeatBody(Body):
    """`butler.heartbeat.v1`: what is left out stays as it was announced before. An operator names the butler."""

    schema_version: Literal["butler.heartbeat.v1"] = "butler.heartbeat.v1"
    system_id: Word | None = None
    description: Annotated[str, StringConstraints(max_length=2000, pattern=r"^[^\x00]*$")] | None = None
    capabilities: Annotated[tuple[Word, ...], Field(max_length=50)] | None = None
    endpoint: Url | None = None
    instance_id: Word | None = None
    version: Word | None = None


class OrderBody(Body):
    """Which butler, and why."""

    system_id: Word
    reason: Line


class MoveBody(OrderBody):
    """Where it is called from now on; null: where its team file says."""

    endpoint: Url | None


@router.post(
    "/v1/agents/heartbeat", summary="Say that a remote butler lives", responses=documented(Standing, 404, 409, 429)
)
async def heartbeat(caller: Beating, parts: Parts, body: BeatBody) -> Response:
    """Come again after `interval_s` seconds."""
    return answer(await parts.registry.beat(caller, body.system_id, announcement(body)))


@router.post("/v1/agents/quarantine", summary="Keep a butler from work", responses=documented(Standing, 404, 409))
async def quarantine(caller: Operator, parts: Parts, body: OrderBody) -> Response:
    """Until it is released: no model may choose it, and what rules send it is a dead letter."""
    return answer(await parts.registry.quarantine(caller, body.system_id, body.reason))


@router.post("/v1/agents/release", summary="Let a butler work again", responses=documented(Standing, 404, 409))
async def release(caller: Operator, parts: Parts, body: OrderBody) -> Response:
    """If it is silent, silence counts as before."""
    return answer(await parts.registry.release(caller, body.system_id, body.reason))


@router.post("/v1/agents/endpoint", summary="Say where a butler is", responses=documented(Standing, 404, 409))
async def move(caller: Operator, parts: Parts, body: MoveBody) -> Response:
    """It goes before the team file, also after a start, until it is null again."""
    return answer(await parts.registry.move(caller, body.system_id, body.endpoint, body.reason))


@router.get("/schemas/route.v1.json", summary="The JSON Schema of route.v1", tags=["public"])
async def route() -> dict[str, Any]:
    """What the tool of a remote butler is given."""
    return route_schema()


@router.get("/schemas/route_response.v1.json", summary="The JSON Schema of route_response.v1", tags=["public"])
async def route_response() -> dict[str, Any]:
    """What the tool of a remote butler answers."""
    return response_schema()


def announcement(body: BeatBody) -> Announcement:
    """The heartbeat of the wire as the register knows it."""
    return Announcement(**body.model_dump(exclude={"schema_version", "system_id"}))
