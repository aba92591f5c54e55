"""`/health` for process supervisors, `/metrics` for Prometheus. Next: `app/metrics.py`."""

from __future__ import annotations

from fastapi import APIRouter, Depends, Response
from fastapi.responses import PlainTextResponse

from switchboard import __version__
from switchboard.domain.errors import Unavailable
from switchboard.domain.json_values import JsonObject
from switchboard.server.contracts.messages import Health
from switchboard.server.http.services import Parts, answer, documented, needs

router = APIRouter(tags=["public"])


@router.get(
    "/health",
    operation_id="get_health",
    summary="Check health",
    responses={200: {"model": Health}, 503: {"model": Health, "description": "The database does not respond."}},
)
async def health(parts: Parts) -> Response:
    """Whether the database can be reached. No token is required."""
    try:
        await parts.switchboard.runtime.database.ping()
    except Unavailable:
        return answer({"status": "unavailable", "version": __version__}, 503)
    return answer({"status": "ok", "version": __version__})


_TEXT: dict[int | str, JsonObject] = {
    200: {"description": "Prometheus text.", "content": {"text/plain": {"schema": {"type": "string"}}}}
}


@router.get(
    "/metrics",
    operation_id="get_metrics",
    summary="Get metrics",
    tags=["operations"],
    response_class=PlainTextResponse,
    responses={**documented(None), **_TEXT},
    dependencies=[Depends(needs("metrics"))],
)
async def metrics(parts: Parts) -> Response:
    """Counters of this process, and gauges of what is stored, in the text format of Prometheus."""
    parts.metrics.polls.set(len(parts.polls))
    text = await parts.metrics.render(parts.switchboard.runtime.database)
    return Response(text, media_type="text/plain; version=0.0.4")
