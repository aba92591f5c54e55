"""The Slack server as a process, to try out apps without Slack, and for apps in other languages.

`python -m switchboard.testing.slack` prints where it listens and the tokens of the app. Next: `server.py`.
"""

from __future__ import annotations

import sys

from starlette.routing import Route

from switchboard.testing.platform_process import run_platform
from switchboard.testing.slack.server import APP_TOKEN, BOT_TOKEN, SlackServer
from switchboard.testing.slack.workspace import ANN


class SlackPlatform:
    """Slack, for one app."""

    program = "switchboard.testing.slack"
    description = "A Slack server: Web API and Socket Mode."

    def make_server(self, port: int, *more: Route, limits: bool = False) -> SlackServer:
        """The server."""
        return SlackServer(port=port, more=more, limits=limits)

    def say(self, server: SlackServer, text: str, person: int = 0) -> None:
        """In the direct chat."""
        user = server.people.person(f"U{1000 + person}", f"Person {person}") if person else ANN
        server.people.say(text, server.people.direct_chat(user), user=user)

    def tell_address(self, server: SlackServer) -> str:
        """The URL of the Web API, and both tokens of the app."""
        return f"Slack at {server.api_url}, tokens {BOT_TOKEN} and {APP_TOKEN}"


if __name__ == "__main__":
    sys.exit(run_platform(SlackPlatform()))
