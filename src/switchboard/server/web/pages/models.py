"""Models: how they are, and what was spent, by day, butler and model. Next: `app/models/spending.py`."""

from __future__ import annotations

import asyncio
from typing import Final

from starlette.responses import Response

from switchboard.app.models.spending import MODELS
from switchboard.server.http.models import SPENDING_SERVICE
from switchboard.server.web.page import WebPage
from switchboard.server.web.reading import PageParts
from switchboard.server.web.visit import Visit

_ROWS: Final = 30


async def show_models(visit: Visit) -> Response:
    """Today, and the last 30 days."""
    spending = visit.services.of(SPENDING_SERVICE)
    read = PageParts().read
    today, days, butlers, models = await asyncio.gather(
        read(spending.models()),
        read(spending.usage("day", None, None, limit=_ROWS, cursor=None)),
        read(spending.usage("butler", None, None, limit=_ROWS, cursor=None)),
        read(spending.usage("model", None, None, limit=_ROWS, cursor=None)),
    )
    return visit.page("models.html", today=today, days=days, butlers=butlers, models=models)


PAGES: Final = (WebPage("/models", show_models, MODELS, "Models"),)
