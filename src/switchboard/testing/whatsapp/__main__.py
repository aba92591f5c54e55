"""The WhatsApp server as a process, to try out a business without Meta, and for those in other languages.

`python -m switchboard.testing.whatsapp` prints where it listens, and the token and secret. Next: `server.py`.
"""

from __future__ import annotations

import sys

from starlette.routing import Route

from switchboard.testing.platform_process import run_platform
from switchboard.testing.whatsapp.server import APP_SECRET, TOKEN, WhatsAppServer
from switchboard.testing.whatsapp.webhooks import ANN, NUMBER, CloudPerson


class WhatsAppPlatform:
    """WhatsApp, for one business."""

    program = "switchboard.testing.whatsapp"
    description = "A WhatsApp server: the Graph API of a number, and signed webhooks."

    def make_server(self, port: int, *more: Route, limits: bool = False) -> WhatsAppServer:
        """The server."""
        return WhatsAppServer(port=port, more=more, limits=limits)

    def say(self, server: WhatsAppServer, text: str, person: int = 0) -> None:
        """To the first number."""
        ids = f"US.{1000 + person}", f"1650555{1000 + person}"
        server.people.say(text, CloudPerson(*ids, name=f"Person {person}") if person else ANN)

    def tell_address(self, server: WhatsAppServer) -> str:
        """The URL, the id of the number, the token, and the secret of the app."""
        return f"WhatsApp at {server.url}, number {NUMBER}, token {TOKEN}, app secret {APP_SECRET}"


if __name__ == "__main__":
    sys.exit(run_platform(WhatsAppPlatform()))
