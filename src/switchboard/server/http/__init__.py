"""The HTTP API: `app.py` puts it together, one router module per area, `gate.py` stands before all of them."""

from switchboard.server.http.app import create_app

__all__ = ["create_app"]
