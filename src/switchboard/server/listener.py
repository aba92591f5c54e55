"""The address of the server: bound before anything else, so that a port in use costs nothing.

`cli/processes/running.py` (and tests) call `bind`. In: host and port; out: a listening socket, for `serve.py`. It
imports little on purpose, as it is imported before the server is.
"""

from __future__ import annotations

import errno
import ipaddress
import socket
from typing import Final

import structlog

from switchboard.domain.errors import ConfigurationError

log = structlog.get_logger(__name__)

BACKLOG: Final = 2048


def bind(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes a free one. Raises ConfigurationError with the address and the remedy."""
    if not _is_loopback(host):
        log.warning(
            "the server is reachable from the network: put TLS in front of it, tokens are sent in plain text", host=host
        )
    try:
        [(family, _, protocol, _, address), *_] = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        # With its protocol named; otherwise asyncio leaves Nagle's algorithm on, and answers in two parts take 40 ms.
        listener = socket.socket(family, socket.SOCK_STREAM, protocol)
    except OSError as error:
        raise ConfigurationError(
            f"{host!r} is not an address to listen on: {error}; set host to an address of this machine"
        ) from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise ConfigurationError(_why_not(host, port, error)) from error
    return listener


def _why_not(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return (
            f"{host}:{port} is in use by another program (perhaps another Switchboard); "
            "stop it, or choose another port: --port, SWITCHBOARD_PORT or port in switchboard.toml"
        )
    return f"cannot listen on {host}:{port}: {error.strerror}; choose another host or port"


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
