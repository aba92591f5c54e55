"""The HTTP API put together: gate, routers, errors, OpenAPI.

`entrance.py` calls `create_app`. In: a `Switchboard`; out: an ASGI app whose `services` are its parts. Next:
`http/gate.py`, which every request passes first.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from starlette.routing import Route, WebSocketRoute
from starlette.types import Receive, Scope, Send

from switchboard import __version__
from switchboard.app.runtime import Switchboard
from switchboard.domain.json_values import JsonObject
from switchboard.server.connections import Connections, connection_limit
from switchboard.server.fastpath.described import route_with_responses
from switchboard.server.fastpath.direct import Direct, Handler
from switchboard.server.http import (
    accounts,
    agents,
    approvals,
    audit,
    blobs,
    channels,
    dead_letters,
    health,
    hooks,
    ingest,
    ledger,
    mcp_servers,
    memory,
    messages,
    models,
    modules,
    outbox,
    pairing,
    people,
    plans,
    quarantine,
    replays,
    rule_history,
    rules,
    schemas,
    setup,
    status,
    streams,
    tasks,
    teams,
    tokens,
    web_sessions,
)
from switchboard.server.http.errors import response_to
from switchboard.server.http.framework_errors import install_errors
from switchboard.server.http.gate import RequestGate, limits_of
from switchboard.server.http.hosts import Hosts, names_of
from switchboard.server.http.openapi import complete_document
from switchboard.server.http.pages import page_routes
from switchboard.server.mcp.server import McpEndpoint
from switchboard.server.services import Services
from switchboard.server.turns import StrangersTurns
from switchboard.server.web.guest import web_routes
from switchboard.server.ws.endpoint import PATH as GATEWAY
from switchboard.server.ws.endpoint import GatewayEndpoint, without_upgrade
from switchboard.server.ws.protocol import Refusals

_DESCRIPTION: Final = (
    "A self-hosted message switchboard for AI agents. All routes except the public ones require a bearer token. "
    'Errors have the form {"error": {"code", "message", "field"?, "details"?}} with a stable code.'
)
# The last of the rules' routers takes every name for an id, so the others come before it.
_CONNECTORS: Final = (blobs, outbox, accounts, quarantine, hooks)
_BEFORE_RULES: Final = (messages, streams, *_CONNECTORS, ledger, dead_letters, rule_history, replays)
PARTS: Final = (
    *_BEFORE_RULES,
    rules,
    teams,
    agents,
    schemas,
    setup,
    status,
    tokens,
    web_sessions,
    audit,
    health,
    models,
    memory,
    mcp_servers,
    modules,
    pairing,
    channels,
    people,
    tasks,
    approvals,
    plans,
)


class SwitchboardApi(FastAPI):
    """Its OpenAPI adds what FastAPI cannot see: the envelope, which handlers parse, and the gate's token."""

    gate: RequestGate
    admitted: Direct
    """What follows the gate."""
    services: Services

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # The gate comes before the framework's own middleware, which takes a tenth of the time of a message.
        scope["app"] = self
        await self.gate(scope, receive, send)

    def openapi(self) -> JsonObject:
        if self.openapi_schema is None:
            document = get_openapi(
                title=self.title,
                version=self.version,
                description=self.description,
                routes=[*map(route_with_responses, self.routes)],
            )
            self.openapi_schema = complete_document(document)
        return self.openapi_schema


def create_app(switchboard: Switchboard, services: Services | None = None) -> SwitchboardApi:
    """The API and `/mcp` over the given parts, for a server that counts its connections; run its lifespan."""
    services = services or Services(switchboard)
    mcp = McpEndpoint(services)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[dict[str, object]]:
        async with mcp.open():
            loop = asyncio.get_running_loop()
            yield {
                "connections": Connections(connection_limit()),
                "turns": StrangersTurns(loop),
                "refusals": Refusals(loop.time),
            }

    app = SwitchboardApi(
        title="Switchboard",
        version=__version__,
        description=_DESCRIPTION,
        lifespan=lifespan,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        telemetry={"metrics": False, "logs": False},  # we have our own; looking for theirs costs every request
    )
    app.services = services
    _add_routes(app, mcp, GatewayEndpoint(services))
    set_gate(app, services, {"/v1/ingest": ingest.ingest, "/v1/ingest/batch": ingest.ingest_batch, "/mcp": mcp.direct})
    install_errors(app)
    return app


def _add_routes(app: SwitchboardApi, mcp: McpEndpoint, gateway: GatewayEndpoint) -> None:
    for part in (*PARTS, ingest):
        app.router.routes.extend(part.router.routes)
    app.router.routes.extend(page_routes(app.openapi))
    app.router.routes.extend(web_routes(app.services))
    # Only POST: without sessions there is nothing to stream by GET, and nothing to DELETE.
    app.router.routes.append(Route("/mcp", mcp, methods=["POST"], include_in_schema=False))
    app.router.routes.append(WebSocketRoute(GATEWAY, gateway.serve))
    app.router.routes.append(Route(GATEWAY, without_upgrade, methods=["GET"], include_in_schema=False))


def set_gate(app: SwitchboardApi, services: Services, handlers: Mapping[str, Handler]) -> None:
    """Put the gate before `app`, with `handlers` by path; without handlers, all requests go through FastAPI."""
    settings = services.switchboard.runtime.settings
    app.admitted = Direct(partial(FastAPI.__call__, app), handlers, response_to)
    app.gate = RequestGate(app.admitted, services.access, limits_of(settings), Hosts(names_of(settings)))
