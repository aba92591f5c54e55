"""A port for a server of a test."""

from __future__ import annotations

import os
import secrets
import socket
from collections import deque
from typing import Final

FIRST: Final = 20_000
MANY: Final = 12_000
"""Ports that are given to no connection, which could take one before the server does."""
_KEPT: Final = 64
"""Of that many, the last ones, a process of tests says that they are its own. By then a server has long begun."""
_HELD: Final = deque[int]()  # descriptors


def free_port() -> int:
    """A port that no other test gets, in this process or another, before its server listens there.

    As a sign that a port is taken, the UDP port of the same number is held: servers of tests use none, every process
    sees it, and it is free again when the process ends, however that is.
    """
    while True:
        port = FIRST + secrets.randbelow(MANY)
        taken = socket.socket(type=socket.SOCK_DGRAM)
        try:
            taken.bind(("127.0.0.1", port))
            with socket.socket() as one:
                one.bind(("127.0.0.1", port))
        except OSError:
            taken.close()
            continue
        _HELD.append(taken.detach())
        if len(_HELD) > _KEPT:
            os.close(_HELD.popleft())
        return port
