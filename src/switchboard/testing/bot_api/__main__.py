"""The Bot API server as a process, to try out bots without Telegram, and for bots in other languages.

`python -m switchboard.testing.bot_api` prints where it listens and the token of the bot, and ends with SIGTERM or
Ctrl-C. `POST /say` sends a person's message to the bot, and returns what the bot replies. Next: `server.py`.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from typing import Final

from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from switchboard.domain.errors import ConfigurationError
from switchboard.testing.bot_api.server import TOKEN, BotApi

_ANSWER_S: Final = 60.0


def main(arguments: list[str] | None = None) -> int:
    """Run until told to stop. Returns 0, or 2 if the port is unusable."""
    parser = argparse.ArgumentParser(prog="python -m switchboard.testing.bot_api", description="A Bot API server.")
    parser.add_argument("--port", type=int, default=0, help="0 picks a free one (default)")
    try:
        asyncio.run(_serve(parser.parse_args(arguments).port))
    except ConfigurationError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


async def _serve(port: int) -> None:
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)

    async def say(request: Request) -> PlainTextResponse:
        """The bot's reply to the person's message; 504 if there is none within a minute."""
        before = len(api.texts)
        api.people.say((await request.body()).decode(errors="replace").strip())
        try:
            async with asyncio.timeout(_ANSWER_S):
                await api.until(lambda: len(api.texts) > before)
        except TimeoutError:
            return PlainTextResponse("the bot has sent nothing\n", 504)
        return PlainTextResponse("\n".join(api.texts[before:]) + "\n")

    async with BotApi(port=port, more=(Route("/say", say, methods=["POST"]),)) as api:
        sys.stdout.write(f"Bot API at {api.url}, token {TOKEN}\n")
        sys.stdout.flush()
        await stop.wait()


if __name__ == "__main__":
    sys.exit(main())
