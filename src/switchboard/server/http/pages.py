"""Pages that need no token: the start page, `/docs`, `/openapi.json`. Made once, and cached.

`app.py` mounts the routes. In: the OpenAPI document, on first request; out: responses that permit no scripts or styles
except the page's own. Next: `docs.py`.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from functools import cache
from hashlib import sha256
from http import HTTPStatus
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from switchboard.domain.json_values import JsonObject
from switchboard.server.http.docs import SCRIPT, STYLE, docs_page

_KEPT: Final = {"cache-control": "public, max-age=300", "x-content-type-options": "nosniff"}


def page_routes(openapi: Callable[[], JsonObject]) -> list[Route]:
    """The routes, none of which is part of the OpenAPI itself."""
    pages: dict[str, Callable[[], Response]] = {
        "/docs": lambda: _html_response(docs_page(openapi())),
        "/docs/": lambda: Response(status_code=HTTPStatus.PERMANENT_REDIRECT, headers={"location": "/docs"}),
        "/openapi.json": lambda: Response(msgspec.json.encode(openapi()), headers=_KEPT, media_type="application/json"),
    }
    return [_route_for(path, cache(make)) for path, make in pages.items()]


def _route_for(path: str, page: Callable[[], Response]) -> Route:
    async def show(_: Request) -> Response:
        return page()

    return Route(path, show, methods=["GET"], include_in_schema=False)


def _html_response(page: str) -> Response:
    return Response(page, headers={**_KEPT, "content-security-policy": _POLICY}, media_type="text/html")


def _digest_of(inline: str) -> str:
    return f"'sha256-{b64encode(sha256(inline.encode()).digest()).decode()}'"


_POLICY: Final = (
    f"default-src 'none'; style-src {_digest_of(STYLE)}; script-src {_digest_of(SCRIPT)}; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
