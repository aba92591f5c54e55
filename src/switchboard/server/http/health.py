"""`/health` for whoever starts us, `/metrics` for Prometheus. Next: `app/meters.py`."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Depends, Response

from switchboard import __version__
from switchboard.domain.errors import Unavailable
from switchboard.server.http.doors import Parts, answer, documented, needs
from switchboard.server.http.schemas import Health

router = APIRouter(tags=["public"])


@router.get(
    "/health",
    summary="Is it well",
    responses={200: {"model": Health}, 503: {"model": Health, "description": "The database does not answer."}},
)
async def health(parts: Parts) -> Response:
    """No token needed. Asks the database."""
    try:
        await parts.switchboard.core.database.ping()
    except Unavailable:
        return answer({"status": "unavailable", "version": __version__}, 503)
    return answer({"status": "ok", "version": __version__})


_TEXT: dict[int | str, dict[str, Any]] = {
    200: {"description": "Prometheus text.", "content": {"text/plain": {"schema": {"type": "string"}}}}
}


@router.get(
    "/metrics",
    summary="Metrics",
    tags=["ledger"],
    responses={**documented(None), **_TEXT},
    dependencies=[Depends(needs("metrics"))],
)
async def metrics(parts: Parts) -> Response:
    """Counters of this process, and gauges of the ledger as it is now."""
    parts.meters.polls.set(len(parts.polls))
    text = await parts.meters.render(parts.switchboard.core.database)
    return Response(text, media_type="text/plain; version=0.0.4")
