"""The server of a platform as a process, to try out clients without the platform, and for those in other languages.

Called by `bot_api/__main__.py` and its like. It prints where it listens, and ends with SIGTERM or Ctrl-C. `POST /say`
sends a person's message to the client, and returns what the client replies.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from typing import Any, Final, Protocol

from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from switchboard.domain.errors import ConfigurationError
from switchboard.testing.platform_server import PlatformServer

_ANSWER_S: Final = 60.0


class Platform(Protocol):
    """One platform; `program` is the name of its module."""

    program: str
    description: str

    def make_server(self, port: int, say: Route) -> PlatformServer[Any]:
        """The server, with this route in addition."""
        ...

    def say(self, server: Any, text: str) -> None:
        """Somebody writes to the client."""
        ...

    def tell_address(self, server: Any) -> str:
        """Where it listens, and the tokens that it accepts."""
        ...


def run_platform(platform: Platform, arguments: list[str] | None = None) -> int:
    """Run until told to stop. Returns 0, or 2 if the port is unusable."""
    parser = argparse.ArgumentParser(prog=f"python -m {platform.program}", description=platform.description)
    parser.add_argument("--port", type=int, default=0, help="0 picks a free one (default)")
    try:
        asyncio.run(_serve_platform(platform, parser.parse_args(arguments).port))
    except ConfigurationError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


async def _serve_platform(platform: Platform, port: int) -> None:
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)

    async def say(request: Request) -> PlainTextResponse:
        """The reply to the person's message; 504 if there is none within a minute."""
        before = len(server.texts)
        platform.say(server, (await request.body()).decode(errors="replace").strip())
        try:
            async with asyncio.timeout(_ANSWER_S):
                await server.until(lambda: len(server.texts) > before)
        except TimeoutError:
            return PlainTextResponse("the bot has sent nothing\n", 504)
        return PlainTextResponse("\n".join(server.texts[before:]) + "\n")

    server = platform.make_server(port, Route("/say", say, methods=["POST"]))
    async with server:
        sys.stdout.write(f"{platform.tell_address(server)}\n")
        sys.stdout.flush()
        await stop.wait()
