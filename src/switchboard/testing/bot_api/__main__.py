"""The Bot API server as a process, to try out bots without Telegram, and for bots in other languages.

`python -m switchboard.testing.bot_api` prints where it listens and the token of the bot. Next: `server.py`.
"""

from __future__ import annotations

import sys

from starlette.routing import Route

from switchboard.testing.bot_api.server import TOKEN, BotApi
from switchboard.testing.platform_process import run_platform


class TelegramPlatform:
    """Telegram, for one bot."""

    program = "switchboard.testing.bot_api"
    description = "A Bot API server."

    def make_server(self, port: int, say: Route) -> BotApi:
        """The server."""
        return BotApi(port=port, more=(say,))

    def say(self, server: BotApi, text: str) -> None:
        """In the private chat."""
        server.people.say(text)

    def tell_address(self, server: BotApi) -> str:
        """The URL, and the token of the bot."""
        return f"Bot API at {server.url}, token {TOKEN}"


if __name__ == "__main__":
    sys.exit(run_platform(TelegramPlatform()))
