"""What the server mounts for the page: its routes, which open the site with the first request.

`server/app.py` adds `web_routes` to its own. Importing this costs nothing; the site needs Jinja2, which is imported in
a thread, so messages are not delayed. Next: `site.py`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.types import Receive, Scope, Send

from switchboard.server.paths import CONSENT_ANSWERS, WEB
from switchboard.server.services import Services

if TYPE_CHECKING:
    from switchboard.server.web.site import Site


def web_routes(services: Services) -> list[BaseRoute]:
    """The routes of the page; `/` leads there, also with the answer of a provider: not all lead further down."""
    return [
        Route("/", _redirect_to_pages, methods=["GET"], include_in_schema=False),
        Route(WEB, _redirect_to_pages, methods=["GET"], include_in_schema=False),
        Mount(WEB, WebGuest(services)),
    ]


async def _redirect_to_pages(request: Request) -> Response:
    found = f"{CONSENT_ANSWERS}?{request.url.query}" if "state" in request.query_params else f"{WEB}/"
    return RedirectResponse(found, headers={"cache-control": "no-store", "referrer-policy": "no-referrer"})


class WebGuest:
    """Passes requests on to the site, which the first one opens; if that fails, the next one tries again."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._opening: asyncio.Task[Site] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        opening = self._opening = self._opening or asyncio.create_task(asyncio.to_thread(_open_site, self._services))
        try:
            site = await asyncio.shield(opening)
        except OSError:  # such as too many open files
            if self._opening is opening:
                self._opening = None
            raise
        await site(scope, receive, send)


def _open_site(services: Services) -> Site:
    from switchboard.server.web.site import Site

    return Site(services)
