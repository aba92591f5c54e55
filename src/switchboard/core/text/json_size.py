"""A limit on the size of JSON in memory: an empty list is two bytes on the wire, and fifty or more once decoded.

Called by `core/envelope/read.py` and `server/mcp/server.py` before they decode what strangers sent. In: bytes; out:
nothing, or InvalidInput. Next: `core/envelope/fast.py`.
"""

from __future__ import annotations

from typing import Final

from switchboard.domain.errors import InvalidInput

MAX_CONTAINERS: Final = 20_000
"""Maximum number of objects and lists together; platforms send a few hundred."""

_OTHERS: Final = bytes(sorted(set(range(256)) - set(b'"[{')))


def check_containers(data: bytes) -> None:
    """Raises InvalidInput with code `too_complex` if `data` has too many objects and lists."""
    # Shorter texts need no count; for most messages, counting took a seventh of the parsing time.
    if len(data) <= MAX_CONTAINERS:
        return
    if data.count(b"[") + data.count(b"{") > MAX_CONTAINERS and _outside_strings(data) > MAX_CONTAINERS:
        raise InvalidInput(f"the JSON has more than {MAX_CONTAINERS} objects and lists", code="too_complex")


def _outside_strings(data: bytes) -> int:
    """How many there are, or any number above the limit: millions of strings are not examined one by one."""
    bare = data.replace(b"\\\\", b"").replace(b'\\"', b"").translate(None, _OTHERS)
    # Remove empty strings and seams between adjacent strings, so that any two have a bracket between them.
    bare = bare.replace(b'""', b"")
    return sum(map(len, bare.split(b'"', 2 * MAX_CONTAINERS + 4)[::2]))
