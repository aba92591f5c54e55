"""Limits the number of connections: strangers' connections never displace others.

`fastpath/heads.py` reports opened and closed connections and those that wait for a turn, `http/gate.py` those that have
shown a token. When all places are taken, the oldest connection without a token is closed, so an operator always gets
in: of those that wait for a turn if they are the most, else of those that have asked for nothing. So a flood of
connections displaces nobody who waits honestly. Next: `http/gate.py`.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Iterable
from typing import Final, Protocol

import structlog

from switchboard.domain.errors import Overloaded

log = structlog.get_logger(__name__)

_MOST_FILES: Final = 65_536
_OTHER_FILES: Final = 256
"""Descriptors for the database, for programs and for files."""
_SAY_EVERY_S: Final = 60.0
_SHOWN_MOST: Final = 10_000


class OpenConnection(Protocol):
    """An open connection of a client."""

    def abort(self) -> None:
        """Close it at once."""


class Connections:
    """The open connections, at most `limit`; a quarter is for operators and clients without a token yet."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._strangers: dict[OpenConnection, None] = {}
        self._waiting: dict[OpenConnection, None] = {}
        """Strangers whose request waits for its turn."""
        self._known: dict[OpenConnection, bool] = {}
        self._shown: set[int] = set()
        """Hashes of tokens that were accepted lately. They open no door: each token is still checked."""
        self._said = -_SAY_EVERY_S

    def __len__(self) -> int:
        return len(self._strangers) + len(self._waiting) + len(self._known)

    def add_connection(self, connection: OpenConnection) -> None:
        """Count a new one; if there are too many, the oldest without a token is closed, which may be this one."""
        self._strangers[connection] = None
        if len(self) <= self.limit:
            return
        line = self._waiting if len(self._waiting) >= len(self._strangers) else self._strangers
        oldest = next(iter(line))
        del line[oldest]
        oldest.abort()
        self._log_refusals()

    def waits(self, connection: OpenConnection) -> None:
        """What a stranger asks for waits for its turn from now on."""
        if connection in self._strangers:
            del self._strangers[connection]
            self._waiting[connection] = None

    def has_turn(self, connection: OpenConnection) -> None:
        """It waits no more; if it shows no token, it is the newest of those that ask for nothing."""
        if connection in self._waiting:
            del self._waiting[connection]
            self._strangers[connection] = None

    def admit_connection(self, connection: OpenConnection, *, operator: bool, shown: str | None = None) -> None:
        """The connection has shown a token, in this Authorization header. Raises Overloaded if too many others have."""
        if not (connection in self._strangers or connection in self._waiting):  # admitted before, or just closed
            return
        if not operator and sum(not own for own in self._known.values()) >= self.limit * 3 // 4:
            self._log_refusals()
            raise Overloaded(f"there are too many connections, the limit is {self.limit}", retry_after=5.0)
        self.remove_connection(connection)
        self._known[connection] = operator
        if shown is not None:
            if len(self._shown) >= _SHOWN_MOST:
                self._shown.clear()
            self._shown.add(hash(shown))

    def forget_token(self, shown: str | None) -> None:
        """What this Authorization header shows is no token any more."""
        self._shown.discard(hash(shown))

    def is_stranger(self, connection: OpenConnection, headers: Iterable[tuple[bytes, bytes]]) -> bool:
        """Whether the connection has not shown a token, and shows none now that was accepted lately."""
        if connection in self._known:
            return False
        return not any(
            name == b"authorization" and hash(value.decode("latin-1")) in self._shown for name, value in headers
        )

    def remove_connection(self, connection: OpenConnection) -> None:
        """The connection is closed."""
        self._strangers.pop(connection, None)
        self._waiting.pop(connection, None)
        self._known.pop(connection, None)

    def _log_refusals(self) -> None:
        if time.monotonic() - self._said >= _SAY_EVERY_S:
            self._said = time.monotonic()
            log.warning("too many connections: the oldest without a token are closed", limit=self.limit)


def connection_limit() -> int:
    """How many connections this process may have, after raising its limit of open files as far as possible."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    files = _MOST_FILES if soft == resource.RLIM_INFINITY else soft
    limit = max(files - _OTHER_FILES, files // 2)
    log.debug("limit of connections", connections=limit, files=files)
    return limit
