"""A remote butler as somebody else would write one: a process of its own, the official SDK, one tool.

`python -m tests.remote_butler PORT DIRECTORY TOKEN stateless|stateful` says `ready PORT` and does what the text of a
message says. Each call is written to DIRECTORY/calls.jsonl, each thing that is really done to DIRECTORY/done.jsonl:
under an idempotency key that stands there it only answers again.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import uvicorn
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings
from mcp.server.mcpserver import MCPServer
from pydantic import AnyHttpUrl

from switchboard.server.listener import bind

Response = dict[str, Any]


class _Tokens:
    def __init__(self, token: str) -> None:
        self._token = token

    async def verify_token(self, token: str) -> AccessToken | None:
        return AccessToken(token=token, client_id="switchboard", scopes=[]) if token == self._token else None


def _lines(file: Path) -> list[Any]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def _append(file: Path, value: object) -> None:
    with file.open("a") as out:
        out.write(json.dumps(value) + "\n")


def _ok(**result: Any) -> Response:
    return {"schema_version": "route_response.v1", "status": "ok", "result": result}


def _odd(words: list[str]) -> Response | None:
    """What is said without anything being done."""
    match words:
        case ["decline"]:
            return _ok(no_reply=True, reason="only noise")
        case ["refuse"]:
            return _ok(refuse="not mine")
        case ["fail", failure, *again]:
            error = {"class": failure, "message": "as you wish", "retryable": again == ["again"]}
            return {"schema_version": "route_response.v1", "status": "error", "error": error}
        case ["wrong"]:
            return {"schema_version": "route_response.v1", "status": "ok"}
        case ["other"]:
            return _ok(reply="x") | {"request_context": {"request_id": "0198c0de-0000-7000-8000-000000000001"}}
    return None


async def _act(directory: Path, key: str, words: list[str]) -> Response:
    odd = _odd(words)
    if odd is not None:
        return odd
    if words == ["raise"]:
        raise ValueError("out of order")
    if words == ["hang"] or (words == ["once"] and not (directory / "mended").exists()):
        await asyncio.Event().wait()
    if key not in _lines(directory / "done.jsonl"):
        _append(directory / "done.jsonl", key)
    return _ok(reply="x" * 2_000_000 if words == ["long"] else f"heard: {' '.join(words)}")


def _server(directory: Path, token: str, url: str) -> MCPServer:
    auth = AuthSettings(issuer_url=AnyHttpUrl(url), resource_server_url=None)
    server = MCPServer("remote", version="1", log_level="ERROR", auth=auth, token_verifier=_Tokens(token))

    @server.tool(name="route.execute")
    async def execute(
        idempotency_key: str,
        request_context: dict[str, Any],
        input: dict[str, Any],  # noqa: A002 - the name in route.v1
        subrequest: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Take one delivery."""
        call = {"key": idempotency_key, "request_context": request_context, "input": input, "subrequest": subrequest}
        _append(directory / "calls.jsonl", call)
        return await _act(directory, idempotency_key, input["prompt"].split())

    @server.tool(name="chatter")
    async def chatter() -> str:
        """No route_response.v1."""
        return "nice weather"

    @server.tool(name="as.text")
    async def as_text(input: dict[str, Any]) -> str:  # noqa: A002 - the name in route.v1
        """A route_response.v1 as text."""
        return json.dumps(_ok(reply=f"text: {input['prompt']}"))

    return server


def main(arguments: Sequence[str]) -> None:
    """Serve until killed."""
    port, place, token, kind = arguments
    directory = Path(place)
    listener = bind("127.0.0.1", int(port))
    at = listener.getsockname()[1]
    server = _server(directory, token, f"http://127.0.0.1:{at}/mcp")
    app = server.streamable_http_app(stateless_http=kind == "stateless", json_response=kind == "stateless")
    sys.stdout.write(f"ready {at}\n")
    sys.stdout.flush()
    uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False)).run(sockets=[listener])


if __name__ == "__main__":
    main(sys.argv[1:])
