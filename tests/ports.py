"""A port for a server of a test."""

from __future__ import annotations

import secrets
import socket
from contextlib import suppress


def free_port() -> int:
    """One that is given to no connection, which could take it before the server does."""
    while True:
        port = 20_000 + secrets.randbelow(12_000)
        with socket.socket() as one, suppress(OSError):
            one.bind(("127.0.0.1", port))
            return port
