"""Parses what a shell writes to its terminal: output, and a report after each command. Pure.

`sandbox/session.py` feeds it with the bytes of a terminal and asks for the result of a command. A report is written by
the shell's prompt, between characters that no text has, and begins with a token that the programs inside do not know:
whatever they write is output, even if it looks like a report. A report has the number of the command, because an
interrupted shell may report once more than it was asked to.
"""

from __future__ import annotations

import re
from typing import Final

from msgspec import Struct

_BEGIN: Final = b"\x1e"
_BETWEEN: Final = b"\x1f"
_LONGEST: Final = 20_000
"""Maximum bytes of a report: a directory has at most 4,096, each quoted as up to four."""


class ShellReport(Struct, frozen=True):
    """How a command ended, and the directory of the shell after it, quoted as the shell does."""

    status: int
    directory: str


def prompt(token: str) -> str:
    """What the shell does before it asks for a command, whose number is in `__number`; `__status` keeps its status."""
    said = '"$__number" "$__status" "$PWD"'
    return f"__status=$?; printf '\\036{token}\\037%d\\037%d\\037%q\\036' {said} >/dev/tty"


class Spoken:
    """The output between two reports, at most `most` bytes of it."""

    def __init__(self, token: str, most: int) -> None:
        head = re.escape(_BEGIN + token.encode() + _BETWEEN)
        self._report = re.compile(head + rb"(\d{1,9})\x1f(\d{1,3})\x1f([^\x1e]*)\x1e")
        self._head = _BEGIN + token.encode() + _BETWEEN
        self._most = most
        self._waiting = b""
        self._output = bytearray()
        self._expected: int | None = 0
        self.report: ShellReport | None = None
        self.too_much = False

    def feed(self, data: bytes) -> None:
        """Process bytes from the terminal. After a report everything is output again."""
        text = self._waiting + data
        while found := self._report.search(text):
            self._add(text[: found.start()])
            if self._expected in {None, int(found[1])}:
                self.report = ShellReport(int(found[2]), found[3].decode("utf-8", "replace"))
            text = text[found.end() :]
        whole = len(text) - self._unfinished(text)
        self._add(text[:whole])
        self._waiting = text[whole:]

    def begin(self, number: int) -> None:
        """Begin the next command.

        Output before this point, even by background processes, belongs to the previous one.
        """
        self.report, self._expected = None, number

    def expect_any(self) -> None:
        """From here on, accept any report of the shell, whatever its number."""
        self._expected = None

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

    def _unfinished(self, text: bytes) -> int:
        """How many bytes at the end may be the beginning of a report."""
        at = text.rfind(self._head)
        if at >= 0:
            return len(text) - at if len(text) - at <= _LONGEST else 0
        return next((n for n in range(min(len(self._head), len(text)), 0, -1) if text.endswith(self._head[:n])), 0)
