"""`/health` for process supervisors, `/metrics` for Prometheus. Next: `app/metrics.py`."""

from __future__ import annotations

from typing import Final

from fastapi import Response
from fastapi.responses import PlainTextResponse

from switchboard import __version__
from switchboard.app.access import METRICS, Action
from switchboard.domain.errors import Unavailable
from switchboard.server.contracts.operations import Health
from switchboard.server.http.parameters import router_of
from switchboard.server.http.services import Parts, Responses, answer, operation

READ_METRICS: Final = Action("metrics", METRICS)

router = router_of("public")


@router.get(
    "/health",
    operation_id="get_health",
    summary="Check health",
    responses={200: {"model": Health}, 503: {"model": Health, "description": "No message is accepted."}},
)
async def health(parts: Parts) -> Response:
    """Whether the database can be reached, and its clock agrees with ours. No token is required."""
    try:
        parts.switchboard.accept.check_clock()
        await parts.switchboard.runtime.database.ping()
    except Unavailable:
        return answer({"status": "unavailable", "version": __version__}, 503)
    return answer({"status": "ok", "version": __version__})


_TEXT: Responses = {200: {"description": "Prometheus text.", "content": {"text/plain": {"schema": {"type": "string"}}}}}


@router.get(
    "/metrics",
    tags=["operations"],
    response_class=PlainTextResponse,
    **operation("get_metrics", "Get metrics", None, needing=READ_METRICS, more=_TEXT),
)
async def metrics(parts: Parts) -> Response:
    """Counters of this process, and gauges of what is stored, in the text format of Prometheus."""
    parts.metrics.polls.set(len(parts.polls))
    text = await parts.metrics.render(parts.switchboard.runtime.database)
    return Response(text, media_type="text/plain; version=0.0.4")
