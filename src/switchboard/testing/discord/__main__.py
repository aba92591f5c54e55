"""The Discord server as a process, to try out bots without Discord, and for bots in other languages.

`python -m switchboard.testing.discord` prints where it listens and the token of the bot. Next: `server.py`.
"""

from __future__ import annotations

import sys

from starlette.routing import Route

from switchboard.testing.discord.server import TOKEN, DiscordServer
from switchboard.testing.discord.world import ANN
from switchboard.testing.platform_process import run_platform


class DiscordPlatform:
    """Discord, for one bot."""

    program = "switchboard.testing.discord"
    description = "A Discord server: REST API and gateway."

    def make_server(self, port: int, *more: Route, limits: bool = False) -> DiscordServer:
        """The server."""
        return DiscordServer(port=port, more=more, limits=limits)

    def say(self, server: DiscordServer, text: str, person: int = 0) -> None:
        """In the direct chat."""
        user = server.people.person(f"{1000 + person}", f"person{person}") if person else ANN
        server.people.say(text, user=user)

    def tell_address(self, server: DiscordServer) -> str:
        """The URL of the REST API, and the token of the bot."""
        return f"Discord at {server.api_url}, token {TOKEN}"


if __name__ == "__main__":
    sys.exit(run_platform(DiscordPlatform()))
