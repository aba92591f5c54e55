"""Splits a long CommonMark text into pieces that a platform accepts. Pure; called by `parts.py`.

A piece ends at the end of a paragraph, failing that of a line, a sentence, or a word; inside a link, inline code or a
grapheme only if that alone exceeds the limit. A code fence that is cut is closed and reopened. Next: `rendering.py`.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Final

from msgspec import Struct

from switchboard.ports.connector import TextUnit

_FENCE: Final = re.compile(r"^ {0,3}(`{3,}(?=[^`\n]*$)|~{3,})(.*)$", re.MULTILINE)
# One alternative per span; no span can match in two ways, so the time is linear.
_ATOM: Final = re.compile(r"!?\[[^\[\]\n]*\]\([^()\s]*\)|https?://[^\s<>]+|`[^`\n]+`|\*\*[^*\n]+\*\*")
_PARAGRAPH: Final = re.compile(r"\n(?:[ \t]*\n)+")
_LINE: Final = re.compile(r"\n")
_SENTENCE: Final = re.compile(r"[.!?…。！？][)\"'”’»]*(?:[^\S\n]+|(?<=[。！？]))")  # noqa: RUF001
_WORD: Final = re.compile(r"\n|[^\S\n]+")
_MOST: Final = 4
"""A better boundary is taken only if it leaves less than three of four parts of the room unused."""
_LONGEST_GRAPHEME: Final = 64
_LONGEST_ATOM: Final = 2048

_ZWJ: Final = "\u200d"
_FLAGS: Final = range(0x1F1E6, 0x1F200)
_EXTENDING: Final = (range(0x1F3FB, 0x1F400), range(0xE0020, 0xE0080))
_VOWELS: Final = range(0x1160, 0x1200)
"""Vowels and finals of Hangul, which join the consonant before them."""


class TextPiece(Struct, frozen=True):
    """A slice of a text; `opening` and `closing` are the fence lines added where a fence was cut."""

    body: str
    opening: str = ""
    closing: str = ""

    @property
    def text(self) -> str:
        """The text to send: without whitespace made superfluous by the cut."""
        body = self.body.removesuffix("\n") if self.closing else self.body.rstrip()
        body = body.removeprefix("\n") if self.opening else _without_blank_lines(body)
        return self.opening + body + self.closing


class _Fence(Struct, frozen=True):
    """From the start of its first line to the end of its last; `inner` may be cut between its lines."""

    start: int
    end: int
    inner: range
    opening: str
    mark: str


def length(text: str, unit: TextUnit) -> int:
    """Length by the platform's measure."""
    return len(text) if unit == "code_points" else sum(_sizes(text, unit))


def split(text: str, limit: int, unit: TextUnit) -> tuple[TextPiece, ...]:
    """Split into pieces whose `text` has at most `limit` units; their concatenated bodies are the text.

    A limit below 4 cannot hold every character and counts as 4.
    """
    limit = max(limit, 4)
    room = _Room(limit, unit, [0, *accumulate(_sizes(text, unit))], tuple(_fences(text)))
    pieces: list[TextPiece] = []
    start, opening = 0, ""
    while start < len(text):
        piece = _next(text, start, opening, room)
        pieces.append(piece)
        start += len(piece.body)
        opening = _reopening_fence(piece, start, room)
    return tuple(pieces)


def is_grapheme_end(text: str, at: int) -> bool:
    """Whether cutting before this position leaves all user-perceived characters intact."""
    if at <= 0 or at >= len(text):
        return True
    before, after = text[at - 1], text[at]
    if _ZWJ in {before, after} or (before == "\r" and after == "\n"):
        return False
    if unicodedata.category(after) in {"Mn", "Me", "Mc"} or any(ord(after) in some for some in _EXTENDING):
        return False
    if ord(after) in _VOWELS:
        return False
    return not (ord(after) in _FLAGS and _flags_before(text, at) % 2)


class _Room(Struct, frozen=True):
    limit: int
    unit: TextUnit
    ends: Sequence[int]
    fences: tuple[_Fence, ...]

    def last(self, start: int, taken: int) -> int:
        """The last position where a piece starting here may end, with this much room already used."""
        return max(bisect_right(self.ends, self.ends[start] + self.limit - taken) - 1, start + 1)


def _sizes(text: str, unit: TextUnit) -> Iterator[int]:
    if unit == "code_points":
        return (1 for _ in text)
    if unit == "utf16":
        return (2 if char > "\uffff" else 1 for char in text)
    return (1 if char < "\x80" else 2 if char < "\u0800" else 3 if char <= "\uffff" else 4 for char in text)


def _without_blank_lines(body: str) -> str:
    """The text without leading blank lines; the indentation of its first line is kept."""
    return re.sub(r"\A(?:[^\S\n]*\n)+", "", body)


def _fences(text: str) -> Iterator[_Fence]:
    opened: re.Match[str] | None = None
    for line in _FENCE.finditer(text):
        if opened is None:
            opened = line
        elif line[1].startswith(opened[1]) and not line[2].strip():
            yield _fence(opened, line.start(), line.end())
            opened = None
    if opened is not None:
        yield _fence(opened, len(text), len(text))


def _fence(opened: re.Match[str], inner_end: int, end: int) -> _Fence:
    # The first line stays with the line after it, and the last with the line that it closes.
    inner = range(opened.end() + 2, max(inner_end, opened.end() + 2))
    return _Fence(opened.start(), end, inner, opened[0].strip() + "\n", "\n" + opened[1])


def _next(text: str, start: int, opening: str, room: _Room) -> TextPiece:
    taken = length(opening, room.unit)
    last = room.last(start, taken)
    if last >= len(text):
        return TextPiece(text[start:], opening)
    end = _boundary(text, start, last, room.fences)
    fence = _cut(end, room)
    if fence is None:
        return TextPiece(text[start:end], opening)
    last = room.last(start, taken + length(fence.mark, room.unit))
    end = _boundary(text, start, last, room.fences)
    return TextPiece(text[start:end], opening, fence.mark if _cut(end, room) else "")


def _reopening_fence(piece: TextPiece, at: int, room: _Room) -> str:
    fence = _cut(at, room) if piece.closing else None
    return fence.opening if fence is not None else ""


def _cut(at: int, room: _Room) -> _Fence | None:
    """The fence to close and reopen if the text is cut here."""
    fence = _around(at, room.fences)
    return fence if fence is not None and at in fence.inner and _fits(fence, room.limit, room.unit) else None


def _fits(fence: _Fence, limit: int, unit: TextUnit) -> bool:
    """Whether the lines of the fence leave room for its content."""
    return length(fence.opening + fence.mark, unit) * 2 <= limit


def _around(at: int, fences: tuple[_Fence, ...]) -> _Fence | None:
    position = bisect_right(fences, at, key=lambda fence: fence.start) - 1
    return fences[position] if position >= 0 and fences[position].start < at < fences[position].end else None


def _boundary(text: str, start: int, last: int, fences: tuple[_Fence, ...]) -> int:
    """Where a piece ends that starts at `start` and may end at `last`."""
    least = start + (last - start) // _MOST
    atoms = [found.span() for found in _ATOM.finditer(text, start, min(len(text), last + _LONGEST_ATOM))]
    # Whitespace at the end of a piece is not sent, so it may exceed the limit.
    fence = _around(last, fences)
    reach = last + (text[last] == "\n" or (text[last] == " " and fence is None))
    for pattern in (_PARAGRAPH, _LINE, _SENTENCE, _WORD):
        wanted = start if pattern is _WORD else least
        for end in reversed([found.end() for found in pattern.finditer(text, start, reach)]):
            if end <= wanted:
                break
            if _can_cut_at(end, pattern, fences) and not _is_inside(end, atoms) and is_grapheme_end(text, end):
                return end
    return _find_forced_cut(text, start, last, atoms)


def _is_inside(end: int, atoms: Sequence[tuple[int, int]]) -> bool:
    """Whether cutting there would split one of these spans, which are sorted and do not overlap."""
    position = bisect_left(atoms, (end, end)) - 1
    return position >= 0 and end < atoms[position][1]


def _can_cut_at(end: int, pattern: re.Pattern[str], fences: tuple[_Fence, ...]) -> bool:
    fence = _around(end, fences)
    return fence is None or (pattern in (_LINE, _WORD) and end in fence.inner)


def _find_forced_cut(text: str, start: int, last: int, atoms: Sequence[tuple[int, int]]) -> int:
    """Without a boundary: before the atom that would be split, otherwise at a grapheme, otherwise at a code point."""
    last = next((at for at, until in atoms if start < at < last < until), last)
    for end in range(last, max(start, last - _LONGEST_GRAPHEME), -1):
        if is_grapheme_end(text, end):
            return end
    return last


def _flags_before(text: str, at: int) -> int:
    count = 0
    while count < at and ord(text[at - 1 - count]) in _FLAGS:
        count += 1
    return count
