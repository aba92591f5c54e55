"""Splitting files into single messages.

Called by `cli/importing/sources.py` with an open binary stream. Out: where each entry begins, and its bytes; only one
entry is held at a time, as files may be gigabytes. Next: `core/mail/parse.py` for mails and `core/envelope/read.py` for
envelopes, which say what is wrong with an entry.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import BinaryIO, Final

from switchboard.domain.errors import InvalidInput

MAX_ENTRY: Final = 64 * 1024 * 1024
"""Maximum bytes of an entry. A longer one is cut to MAX_ENTRY + 1 bytes, so that the caller can tell and refuse it."""
_CHUNK: Final = 1024 * 1024
_BOM: Final = b"\xef\xbb\xbf"

# Only lines with a date as asctime() writes it: plenty of mails have a paragraph that begins with "From ".
_SEPARATOR = re.compile(rb"From \S.* ?(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun),? .*\d\d?:\d\d.*")
_LONGEST: Final = 1000
"""Maximum bytes of such a line: searching for a date in a longer one, by an attacker, could take hours."""
_QUOTED_FROM = re.compile(rb">+From ")


def read_mbox(stream: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Each mail of an mbox file: the offset of its `From ` line in bytes, and the mail without that line.

    One level of `>From ` quoting is removed (mboxrd), line ends stay as they are. Raises InvalidInput with code
    not_mbox when the file does not begin with a `From ` line; an empty file holds no mails.
    """
    entry, started, offset, fresh = _Entry(0), False, 0, True
    for line in _pieces(stream):
        separator = fresh and len(line) <= _LONGEST and bool(_SEPARATOR.match(line))
        if separator:
            if started:
                yield entry.mail()
            entry, started = _Entry(offset), True
        elif started:
            entry.add(line[1:] if fresh and _QUOTED_FROM.match(line) else line)
        elif line.strip():
            raise InvalidInput(
                "an mbox file begins with a line such as: From joe@example.org Mon Jan  5 10:00:00 2026",
                code="not_mbox",
            )
        offset, fresh = offset + len(line), line.endswith(b"\n")
    if started:
        yield entry.mail()


def read_jsonl(stream: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Each line that is not blank: its number, from 1, and its bytes without the line end. A leading BOM is dropped."""
    number, entry = 1, _Entry(0)
    for piece in _pieces(stream):
        entry.add(piece)
        if piece.endswith(b"\n"):
            yield from _line(number, entry)
            number, entry = number + 1, _Entry(0)
    yield from _line(number, entry)


def _line(number: int, entry: _Entry) -> Iterator[tuple[int, bytes]]:
    data = entry.data()
    line = (data.removeprefix(_BOM) if number == 1 else data).strip()
    if line:
        yield number, line


def _pieces(stream: BinaryIO) -> Iterator[bytes]:
    """Lines, the long ones in pieces: a file without line ends must not be read at once."""
    return iter(lambda: stream.readline(_CHUNK), b"")


class _Entry:
    """One entry while it is being collected."""

    def __init__(self, offset: int) -> None:
        self._offset = offset
        self._pieces: list[bytes] = []
        self._room = MAX_ENTRY + 1

    def add(self, piece: bytes) -> None:
        if self._room > 0:
            self._pieces.append(piece[: self._room])
            self._room -= len(piece)

    def data(self) -> bytes:
        return b"".join(self._pieces)

    def mail(self) -> tuple[int, bytes]:
        # The blank line before the next `From ` belongs to the file, not to the mail.
        data = self.data()
        for blank in (b"\r\n\r\n", b"\n\n"):
            if data.endswith(blank):
                return self._offset, data[: len(data) - len(blank) // 2]
        return self._offset, data
