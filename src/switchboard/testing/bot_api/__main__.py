"""The Bot API server as a process, to try out bots without Telegram, and for bots in other languages.

`python -m switchboard.testing.bot_api` prints where it listens and the token of the bot. Next: `server.py`.
"""

from __future__ import annotations

import sys

from starlette.routing import Route

from switchboard.testing.bot_api.server import TOKEN, BotApi
from switchboard.testing.bot_api.world import ANN
from switchboard.testing.platform_process import run_platform


class TelegramPlatform:
    """Telegram, for one bot."""

    program = "switchboard.testing.bot_api"
    description = "A Bot API server."

    def make_server(self, port: int, *more: Route, limits: bool = False) -> BotApi:
        """The server."""
        return BotApi(port=port, more=more, limits=limits)

    def say(self, server: BotApi, text: str, person: int = 0) -> None:
        """In the private chat."""
        user = {"id": 1000 + person, "is_bot": False, "first_name": f"Person {person}"} if person else ANN
        server.people.say(text, user=user)

    def tell_address(self, server: BotApi) -> str:
        """The URL, and the token of the bot."""
        return f"Bot API at {server.url}, token {TOKEN}"


if __name__ == "__main__":
    sys.exit(run_platform(TelegramPlatform()))
