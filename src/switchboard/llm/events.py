"""Server-sent events, read from the bytes of a stream. Pure.

`api.py` feeds received bytes to an `EventReader`, which returns the data of each complete event. Some servers omit the
blank line after the last event, so what is left at the end is an event too, if it is whole: whether it is, its reader
must see from the data. `body_kind` tells a stream from an answer in one piece, whatever the content type says.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, Literal

BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_LINE: Final = re.compile(rb"\r\n|\n|\r")


_FIELDS: Final = frozenset({b"data", b"event", b"id", b"retry", b""})
_LONGEST_FIELD: Final = max(map(len, _FIELDS))
BodyKind = Literal["events", "document", "other"]


def body_kind(beginning: bytes) -> BodyKind | None:
    """What a body is that begins like this: a stream of events, or one document; None if that is not known yet."""
    body = beginning.removeprefix(BYTE_ORDER_MARK).lstrip()
    if body.startswith((b"{", b"[")):
        return "document"
    field, colon, _ = body.partition(b":")
    if colon and field in _FIELDS:
        return "events"
    return "other" if colon or len(body) > _LONGEST_FIELD else None


class EventReader:
    """Remembers the incomplete line and event."""

    def __init__(self) -> None:
        self._begun: list[bytes] = []
        """Pieces of the incomplete line, the last of which may end with half of a line break."""
        self._data: list[bytes] = []

    def feed(self, chunk: bytes) -> Iterator[str]:
        """The data of each event that ends in this chunk."""
        halved = bool(self._begun) and self._begun[-1].endswith(b"\r")
        if not chunk or not (halved or _LINE.search(chunk)):
            self._begun += [chunk] if chunk else []
            return
        *lines, rest = _LINE.split(b"".join([*self._begun, chunk]))
        if lines and chunk.endswith(b"\r"):  # perhaps half of a line break, depending on what follows
            rest = lines.pop() + b"\r"
        self._begun = [rest]
        for line in lines:
            if line:
                self._take(line)
            elif self._data:
                yield b"\n".join(self._data).decode("utf-8", "replace")
                self._data = []

    def end(self) -> Iterator[str]:
        """The data behind the last blank line, which may be cut off."""
        yield from self.feed(b"\n\n")

    def _take(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        if name == b"data":
            self._data.append(value.removeprefix(b" "))
