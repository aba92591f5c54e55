"""How much waits for the visitor: the part of every page that says so, alone. Next: `app/status.py`."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from switchboard.app.approvals.service import APPROVALS
from switchboard.server.web.page import WebPage
from switchboard.server.web.visit import Visit


async def show_waiting(visit: Visit) -> Response:
    """For pages that are open; `visit` has it."""
    return visit.page("waiting.html")


PAGES: Final = (WebPage("/waiting", show_waiting, APPROVALS),)
