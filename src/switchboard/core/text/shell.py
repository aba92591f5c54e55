"""Parses what a shell writes to its terminal: output, and a report after each command. Pure.

`sandbox/session.py` feeds it with the bytes of a terminal and asks for the result of a command. A report stands between
characters that no text has, and begins with a mark that is new for each command: whatever programs write is output,
even if it looks like a report.
"""

from __future__ import annotations

import re
from typing import Final

from msgspec import Struct

_REPORT: Final = re.compile(rb"\x1e([0-9a-f]{32})\x1f(\d{1,3})\x1e")
_BEGUN: Final = re.compile(rb"\x1e(?:[0-9a-f]{0,31}|[0-9a-f]{32}(?:\x1f\d{0,3})?)\Z")
_LONGEST: Final = 40
_SPECIAL: Final = re.compile(r"([^\w@%+=:,./~^-])")
_ESCAPES: Final = {"\n": "\\n", "\t": "\\t", "\r": "\\r", "\x1b": "\\E", "'": "\\'", "\\": "\\\\"}


class ShellReport(Struct, frozen=True):
    """How a command ended, and the directory of the shell after it, quoted as the shell does."""

    status: int
    directory: str


def quoted(path: str) -> str:
    """A path as bash's `printf %q` shows it: on one line, and without characters that cannot be seen."""
    if path.isprintable():
        return _SPECIAL.sub(r"\\\1", path)
    return "$'" + "".join(_ESCAPES.get(one, one if one.isprintable() else _octal(one)) for one in path) + "'"


def _octal(character: str) -> str:
    return "".join(f"\\{byte:03o}" for byte in character.encode("utf-8", "surrogateescape"))


class Spoken:
    """The output of a shell, at most `most` bytes of it, and the statuses that it has reported, by their marks."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._waiting = b""
        self._output = bytearray()
        self._marks: set[bytes] = set()
        self._statuses: dict[str, int] = {}
        self.too_much = False

    def expect(self, mark: str) -> None:
        """From here on, what begins with this mark is a report, and never output."""
        self._marks.add(mark.encode())

    def status(self, mark: str) -> int | None:
        """What was first reported under a mark; None if nothing was yet."""
        return self._statuses.get(mark)

    def feed(self, data: bytes) -> None:
        """Process bytes from the terminal."""
        text, done = self._waiting + data, 0
        for found in _REPORT.finditer(text):
            if found[1] in self._marks:
                self._add(text[done : found.start()])
                self._statuses.setdefault(found[1].decode(), int(found[2]))
                done = found.end()
        begun = _BEGUN.search(text, max(done, len(text) - _LONGEST))
        whole = begun.start() if begun else len(text)
        self._add(text[done:whole])
        self._waiting = text[whole:]

    def take(self) -> bytes:
        """Return the output so far, with line ends as in files, and forget it."""
        output = bytes(self._output)
        self._output.clear()
        self.too_much = False
        return output.replace(b"\r\n", b"\n")

    def _add(self, output: bytes) -> None:
        room = self._most - len(self._output)
        self._output += output[:room]
        self.too_much = self.too_much or len(output) > room
