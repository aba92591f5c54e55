"""Models: how they are, and what was spent, by day, butler and model. Next: `app/models/spending.py`."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from switchboard.app.models.spending import MODELS
from switchboard.server.http.models import SPENDING_SERVICE
from switchboard.server.web.page import WebPage
from switchboard.server.web.visit import Visit

_ROWS: Final = 30


async def show_models(visit: Visit) -> Response:
    """Today, and the last 30 days."""
    spending = visit.services.of(SPENDING_SERVICE)
    days = await spending.usage("day", None, None, limit=_ROWS, cursor=None)
    butlers = await spending.usage("butler", None, None, limit=_ROWS, cursor=None)
    models = await spending.usage("model", None, None, limit=_ROWS, cursor=None)
    return visit.page("models.html", today=await spending.models(), days=days, butlers=butlers, models=models)


PAGES: Final = (WebPage("/models", show_models, MODELS, "Models"),)
