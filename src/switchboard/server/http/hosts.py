"""Checks the names by which the server is called, against web pages that rebind their own name to it.

`gate.py` calls `Hosts.check` with the Host header of every request, and `mcp/tools.py` takes the names as well. In a
DNS rebinding attack, a name of the attacker's resolves to our address; an address itself or `localhost` cannot do harm.
"""

from __future__ import annotations

import socket
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from switchboard.app.settings import Settings
from switchboard.domain.errors import SwitchboardError

ANY: Final = "*"
_KNOWN_MOST: Final = 1000


class UnknownHost(SwitchboardError):
    """The Host header names a different server."""

    status = 421
    code = "unknown_host"


def names_of(settings: Settings) -> frozenset[str]:
    """The names of this server in lower case; `*` matches any."""
    called = urlsplit(settings.classify.mcp_url or "").hostname or ""
    public = urlsplit(settings.public_url or "").hostname or ""
    names = {"localhost", settings.host, socket.gethostname(), called, public, *settings.public_names}
    return frozenset(name.lower() for name in names if name)


class Hosts:
    """The names. Accepted headers are cached, as every message pays for the check."""

    def __init__(self, names: frozenset[str]) -> None:
        self._names = names
        self._good: set[bytes] = set()

    def check(self, header: bytes) -> None:
        """Raise UnknownHost unless the header names us or is an address; any port is accepted."""
        if header in self._good:
            return
        name = _name_in(header.decode("latin-1"))
        if not (name in self._names or ANY in self._names or name.endswith(".localhost") or _is_address(name)):
            raise UnknownHost(
                f"this server is not known as {name[:100]!r}; if it should be, add the name to the setting public_names"
            )
        if len(self._good) < _KNOWN_MOST:
            self._good.add(header)


def _name_in(host: str) -> str:
    """The name without its port, and without the trailing dot of the DNS root."""
    name = host[1:].partition("]")[0] if host.startswith("[") else host.rpartition(":")[0] or host
    return name.lower().removesuffix(".")


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
