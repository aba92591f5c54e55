"""A bound on what JSON becomes in memory: an empty list is two bytes on the wire, and fifty or more when it is decoded.

Called by `core/envelope/read.py` and `server/mcp/server.py` before they decode what strangers sent. In: bytes; out:
nothing, or InvalidInput. Next: `core/envelope/fast.py`.
"""

from __future__ import annotations

import re
from typing import Final

from switchboard.domain.errors import InvalidInput

MAX_CONTAINERS: Final = 20_000
"""Maximum objects and lists together; what platforms send has some hundreds."""

_STRING: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
"""Also one without an end, up to the end: else a search would begin again at each quotation mark within it."""


def check_containers(data: bytes) -> None:
    """Raises InvalidInput with code `too_complex` if there are more objects and lists in `data` than may be."""
    # What is shorter needs no count; in messages, of which most are, it took a seventh of the time of parsing them.
    if len(data) <= MAX_CONTAINERS:
        return
    if _brackets(data) > MAX_CONTAINERS and _brackets(_STRING.sub(b"", data)) > MAX_CONTAINERS:
        raise InvalidInput(f"the JSON has more than {MAX_CONTAINERS} objects and lists", code="too_complex")


def _brackets(data: bytes) -> int:
    return data.count(b"[") + data.count(b"{")
