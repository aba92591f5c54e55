"""A port for a server of a test."""

from __future__ import annotations

import secrets
import socket
from contextlib import suppress
from typing import Final

_GIVEN: Final[set[int]] = set()


def free_port() -> int:
    """One that is given to no connection, which could take it before the server does, nor to another caller."""
    while True:
        port = 20_000 + secrets.randbelow(12_000)
        with socket.socket() as one, suppress(OSError):
            one.bind(("127.0.0.1", port))
            if port not in _GIVEN:
                _GIVEN.add(port)
                return port
