"""A remote butler: an MCP server with the tool `route.execute`, that tells Switchboard where it is and that it lives.

Needs `pip install mcp`, and three variables: SWITCHBOARD_URL and SWITCHBOARD_TOKEN (of role agent, for System1/tides)
to report, TIDES_TOKEN for Switchboard to show when it calls.
"""

import asyncio
import os
import socket
import sys
from typing import Any

import httpx2
import uvicorn
from mcp.server.mcpserver import MCPServer
from starlette.types import ASGIApp, Receive, Scope, Send

server = MCPServer("tides", log_level="WARNING")
answers: dict[str, str] = {}  # by idempotency key; what must survive you belongs in a database


@server.tool(name="route.execute")
async def execute(idempotency_key: str, input: dict[str, Any], sender: dict[str, Any]) -> dict[str, Any]:  # noqa: A002
    """Take one delivery; its parts are those of route.v1, and whichever you do not name are left out."""
    if idempotency_key not in answers:  # done once, answered always
        answers[idempotency_key] = f"Low water at 14:20, {sender['identity']}. You asked: {input['prompt']!r}"
    return {"schema_version": "route_response.v1", "status": "ok", "result": {"reply": answers[idempotency_key]}}


def only_switchboard(app: ASGIApp) -> ASGIApp:
    """A request without our token is turned away."""
    shown = (b"authorization", f"Bearer {os.environ['TIDES_TOKEN']}".encode())

    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and shown not in scope["headers"]:
            await send({"type": "http.response.start", "status": 401, "headers": []})
            await send({"type": "http.response.body", "body": b""})
        else:
            await app(scope, receive, send)

    return guarded


async def report(endpoint: str) -> None:
    """Say where we are and that we live, as often as we are asked to."""
    said = {"description": "Knows tides and weather of the bay", "capabilities": ["tides"], "endpoint": endpoint}
    token = {"authorization": f"Bearer {os.environ['SWITCHBOARD_TOKEN']}"}
    async with httpx2.AsyncClient(base_url=os.environ["SWITCHBOARD_URL"], headers=token) as switchboard:
        while True:
            wait = 5.0
            try:
                answer = await switchboard.post("/v1/agents/heartbeat", json=said)
                print(answer.text, flush=True)
                wait = answer.raise_for_status().json()["interval_s"]
            except httpx2.HTTPError as error:
                print(error, flush=True)
            await asyncio.sleep(wait)


def missing() -> list[str]:
    """The variables that are needed and not there."""
    return [name for name in ("SWITCHBOARD_URL", "SWITCHBOARD_TOKEN", "TIDES_TOKEN") if not os.environ.get(name)]


async def main() -> None:
    """Serve and report until killed."""
    listener = socket.create_server(("127.0.0.1", int(os.environ.get("PORT", "0"))))
    endpoint = f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
    app = only_switchboard(server.streamable_http_app(stateless_http=True, json_response=True))
    serving = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
    await asyncio.gather(serving.serve(sockets=[listener]), report(endpoint))


if missing():
    sys.exit(f"tides.py needs these variables too: {', '.join(missing())}; see docs/remote-butlers.md")
asyncio.run(main())
