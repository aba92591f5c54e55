"""The lines of iCalendar objects and vCards (RFC 5545, 6350; vCard 2.1), read and changed without touching any other.

Objects come from others' programs and have things that no library keeps when it writes them again: photos, unknown
properties, folds. So an object is never written from what was parsed: a change replaces the lines of one property.
Called by the modules that keep calendars and contacts. In: the bytes of an object; out: its lines, or changed bytes.
"""

from __future__ import annotations

import quopri
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Final

from msgspec import Struct

from switchboard.domain.errors import InvalidInput

FOLD_AT: Final = 75
"""Bytes of a line that we write, without its end."""

_PHYSICAL: Final = re.compile(rb"[^\r\n]*(?:\r\n|\n|\r|\Z)")
_HEAD: Final = re.compile(r"(?:(?P<group>[A-Za-z0-9-]+)\.)?(?P<name>[A-Za-z0-9-]+)(?=[;:])")
_PARAMETER: Final = re.compile(
    r';(?P<name>[A-Za-z0-9-]+)(?:=(?P<values>(?:"[^"]*"|[^";:,]*)(?:,(?:"[^"]*"|[^";:,]*))*))?'
)
_VALUE: Final = re.compile(r'"([^"]*)"|([^",]+)')
_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)
_TO_ESCAPE: Final = re.compile(r"\r\n|[\n\r,;\\]")


class ContentLine(Struct, frozen=True):
    """One property as it stands: `raw` is all of its bytes, folds and the end of the line included.

    `name` is in upper case, and empty for what is no content line; `group` is that of `item1.TEL`. Parameters have
    names in upper case. `value` is as written: see `unescape_text`.
    """

    raw: bytes
    name: str = ""
    group: str = ""
    parameters: Mapping[str, tuple[str, ...]] = {}
    value: str = ""
    head: str = ""
    """What stands before the colon, without folds."""

    def parameter(self, name: str) -> str:
        """The first value of a parameter; empty if there is none."""
        return next(iter(self.parameters.get(name, ())), "")


class Component(Struct, frozen=True):
    """What stands from BEGIN to END: the lines with the indexes `first` to `last`, and the components among them."""

    name: str
    first: int
    last: int
    inner: tuple[Component, ...] = ()

    def own(self) -> Iterator[int]:
        """The indexes of the lines between BEGIN and END that are in none of the inner components."""
        after = self.first + 1
        for one in self.inner:
            yield from range(after, one.first)
            after = one.last + 1
        yield from range(after, self.last)


class LineChange(Struct, frozen=True):
    """Put `lines` in place of those with the indexes `first` until, but without, `last`; equal: insert them there."""

    first: int
    last: int
    lines: tuple[str, ...]


def content_lines(data: bytes) -> tuple[ContentLine, ...]:
    """All lines, in linear time; joined, their `raw` is `data`. What is no content line has no name."""
    return tuple(map(_line_from, _whole_lines(data)))


def _whole_lines(data: bytes) -> Iterator[list[bytes]]:
    """The physical lines of each line: folded ones, and those that quoted-printable continues."""
    parts: list[bytes] = []
    soft = False
    for part in _PHYSICAL.findall(data):
        if parts and part and not (soft or part[:1] in (b" ", b"\t")):
            yield parts
            parts = []
        if part:
            parts.append(part)
            soft = part.rstrip(b"\r\n").endswith(b"=") and _is_quoted_printable(parts[0])
    if parts:
        yield parts


def _is_quoted_printable(first: bytes) -> bool:
    return b"QUOTED-PRINTABLE" in first[:200].upper()


def _line_from(parts: Sequence[bytes]) -> ContentLine:
    raw = b"".join(parts)
    text = _unfold_parts([part.rstrip(b"\r\n") for part in parts]).decode("utf-8", "replace")
    head = _HEAD.match(text)
    if head is None:
        return ContentLine(raw)
    parameters, at = _parameters_of(text, head.end())
    if text[at : at + 1] != ":":
        return ContentLine(raw)
    return ContentLine(raw, head["name"].upper(), head["group"] or "", parameters, text[at + 1 :], text[:at])


def _unfold_parts(parts: Sequence[bytes]) -> bytes:
    if len(parts) > 1 and _is_quoted_printable(parts[0]):
        return b"".join([*(part.removesuffix(b"=") for part in parts[:-1]), parts[-1]])
    return b"".join([parts[0], *(part[1:] for part in parts[1:])])


def _parameters_of(text: str, at: int) -> tuple[dict[str, tuple[str, ...]], int]:
    """And where they end. A parameter of vCard 2.1 without a value, such as `HOME`, is a TYPE."""
    if text[at] != ";":  # as most lines are
        return {}, at
    found: dict[str, list[str]] = {}
    while match := _PARAMETER.match(text, at):
        name, values, at = match["name"].upper(), match["values"], match.end()
        if values is None:
            name, values = "TYPE", match["name"]
        found.setdefault(name, []).extend(one[0] or one[1] for one in _VALUE.findall(values))
    return {name: tuple(values) for name, values in found.items()}, at


def components_of(lines: Sequence[ContentLine]) -> tuple[Component, ...]:
    """The outermost components. One without an END, or with one that fits no BEGIN, is none; what is in it counts."""
    open_: list[tuple[str, int, list[Component]]] = [("", -1, [])]
    names: Counter[str] = Counter()
    for index, line in enumerate(lines):
        name = line.value.strip().upper()
        if line.name == "BEGIN":
            open_.append((name, index, []))
            names[name] += 1
        elif line.name == "END" and names[name]:
            while open_[-1][0] != name:
                unclosed = open_.pop()
                names[unclosed[0]] -= 1
                open_[-1][2].extend(unclosed[2])
            begun = open_.pop()
            names[name] -= 1
            open_[-1][2].append(Component(name, begun[1], index, tuple(begun[2])))
    return tuple(chain.from_iterable(one[2] for one in open_))


def change_lines(data: bytes, changes: Iterable[LineChange]) -> bytes:
    """The object with these changes; every other byte is as before. The ends of new lines are like those around them.

    Raises InvalidInput for changes of the same lines, and for a new line that would be more than one.
    """
    lines = content_lines(data)
    end = b"\r\n" if not lines or lines[0].raw.endswith(b"\r\n") else b"\n"
    written: list[bytes] = []
    at = 0
    for change in sorted(changes, key=lambda one: (one.first, one.last)):
        if not at <= change.first <= change.last <= len(lines):
            raise InvalidInput("two changes are about the same lines of an object", field="changes")
        written += [line.raw for line in lines[at : change.first]]
        written += [fold_line(one, end) for one in change.lines]
        at = change.last
    written += [line.raw for line in lines[at:]]
    for index, one in enumerate(written[:-1]):
        if not one.endswith((b"\n", b"\r")):  # the last line of the object, which has no end
            written[index] = one + end
    changed = b"".join(written)
    if [line.raw for line in content_lines(changed)] != written:
        raise InvalidInput("other lines of the object would change", field="changes")
    return changed


def fold_line(line: str, end: bytes = b"\r\n") -> bytes:
    """A line in pieces of at most 75 bytes, none ends within a character. Raises InvalidInput for two lines."""
    if "\n" in line or "\r" in line:
        raise InvalidInput("a content line is one line: escape line breaks in its value", field="line")
    pieces: list[str] = []
    size = FOLD_AT + 1
    for character in line:
        width = len(character.encode("utf-8", "replace"))
        if size + width > FOLD_AT:
            pieces.append("")
            size = 1 if len(pieces) > 1 else 0
        pieces[-1] += character
        size += width
    return (end + b" ").join(piece.encode("utf-8", "replace") for piece in pieces) + end


def text_of(line: ContentLine) -> str:
    """The value of a property of text: decoded and unescaped."""
    return unescape_text(decoded_value(line))


def decoded_value(line: ContentLine) -> str:
    """The value with its escapes; what is quoted-printable, as in vCard 2.1, is decoded."""
    flags = {one.upper() for name in ("ENCODING", "TYPE") for one in line.parameters.get(name, ())}
    if "QUOTED-PRINTABLE" not in flags:
        return line.value
    said = quopri.decodestring(line.value.encode("utf-8", "replace"))
    try:
        return said.decode(line.parameter("CHARSET") or "utf-8", "replace")
    except LookupError:
        return said.decode("utf-8", "replace")


def unescape_text(value: str) -> str:
    """A value of type TEXT without its escapes."""
    return _ESCAPE.sub(lambda match: "\n" if match[1] in "nN" else match[1], value)


def escape_text(text: str) -> str:
    """A text as a value of type TEXT."""
    return _TO_ESCAPE.sub(lambda match: "\\n" if match[0][0] in "\r\n" else f"\\{match[0]}", text)


def fields_of(value: str, separator: str = ";") -> tuple[str, ...]:
    """The parts of a structured value, such as N or ADR, unescaped."""
    return tuple(map(unescape_text, split_value(value, separator)))


def split_value(value: str, separator: str = ";") -> list[str]:
    """The parts of a structured value with their escapes; joined, they are the value."""
    parts = [""]
    for piece in re.findall(rf"\\.|[^\\{separator}]+|{separator}|\\", value, re.DOTALL):
        if piece == separator:
            parts.append("")
        else:
            parts[-1] += piece
    return parts
