"""Server-sent events, read from the bytes of a stream. Pure.

`api.py` feeds received bytes to an `EventReader`, which returns the data of each complete event. Data after the last
blank line is not an event, so an event cut off at the end is dropped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

_LINE: Final = re.compile(rb"\r\n|\n|\r")


class EventReader:
    """Remembers the incomplete line and event."""

    def __init__(self) -> None:
        self._begun = b""
        self._data: list[bytes] = []

    def feed(self, chunk: bytes) -> Iterator[str]:
        """The data of each event that ends in this chunk."""
        *lines, rest = _LINE.split(self._begun + chunk)
        if lines and chunk.endswith(b"\r"):  # perhaps half of a line break, depending on what follows
            rest = lines.pop() + b"\r"
        self._begun = rest
        for line in lines:
            if line:
                self._take(line)
            elif self._data:
                yield b"\n".join(self._data).decode("utf-8", "replace")
                self._data = []

    def _take(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        if name == b"data":
            self._data.append(value.removeprefix(b" "))
