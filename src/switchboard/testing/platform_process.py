"""The server of a platform as a process, to try out clients without the platform, and for those in other languages.

Called by `bot_api/__main__.py` and its like. It prints where it listens, and ends with SIGTERM or Ctrl-C. `POST /say`
sends Ann's message to the client, and returns what the client replies; `/say/7` is somebody else, and `?wait=0` returns
at once. `GET /say` returns the texts of all that the client has sent, as JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from typing import Any, Final, Protocol

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from switchboard.domain.errors import ConfigurationError
from switchboard.testing.platform_server import PlatformServer

_ANSWER_S: Final = 60.0


class Platform(Protocol):
    """One platform; `program` is the name of its module."""

    program: str
    description: str

    def make_server(self, port: int, *more: Route, limits: bool = False) -> PlatformServer[Any]:
        """The server, with these routes in addition; `limits`: with the rate limits of the platform."""
        ...

    def say(self, server: Any, text: str, person: int = 0) -> None:
        """The person of this number writes to the client, in a conversation of their own; 0 is Ann."""
        ...

    def tell_address(self, server: Any) -> str:
        """Where it listens, and the tokens that it accepts."""
        ...


def run_platform(platform: Platform, arguments: list[str] | None = None) -> int:
    """Run until told to stop. Returns 0, or 2 if the port is unusable."""
    parser = argparse.ArgumentParser(prog=f"python -m {platform.program}", description=platform.description)
    parser.add_argument("--port", type=int, default=0, help="0 picks a free one (default)")
    parser.add_argument("--limits", action="store_true", help="enforce the rate limits of the platform")
    given = parser.parse_args(arguments)
    try:
        asyncio.run(_serve_platform(platform, given.port, limits=given.limits))
    except ConfigurationError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


async def _serve_platform(platform: Platform, port: int, *, limits: bool) -> None:
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)

    async def say(request: Request) -> Response:
        """The reply to the person's message; 504 if there is none within a minute."""
        before, text = len(server.texts), (await request.body()).decode(errors="replace").strip()
        platform.say(server, text, request.path_params.get("person", 0))
        if request.query_params.get("wait") == "0":
            return PlainTextResponse("", 202)
        try:
            async with asyncio.timeout(_ANSWER_S):
                await server.until(lambda: len(server.texts) > before)
        except TimeoutError:
            return PlainTextResponse("the bot has sent nothing\n", 504)
        return PlainTextResponse("\n".join(server.texts[before:]) + "\n")

    async def list_texts(_: Request) -> Response:
        return JSONResponse(server.texts)

    routes = [Route(path, say, methods=["POST"]) for path in ("/say", "/say/{person:int}")]
    routes.append(Route("/say", list_texts, methods=["GET"]))
    server = platform.make_server(port, *routes, limits=limits)
    async with server:
        sys.stdout.write(f"{platform.tell_address(server)}\n")
        sys.stdout.flush()
        await stop.wait()
