"""What an address book knows of somebody, read from a vCard of any version and changed without losing anything. Pure.

The sync of contacts reads cards, and the tools change them. In: the bytes of a card; out: a `Card`, or changed bytes.
Sources: RFC 6350 (version 4), RFC 2426 (3), versit's vCard 2.1, and what Apple, Google and Nextcloud write. Next:
`core/text/content_lines.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final, Literal

from msgspec import Struct

from switchboard.core.text.content_lines import (
    Component,
    ContentLine,
    LineChange,
    change_lines,
    components_of,
    content_lines,
    decoded_value,
    escape_text,
    fields_of,
    split_value,
    text_of,
)
from switchboard.domain.errors import InvalidInput

WayKind = Literal["email", "phone", "address", "handle"]
FieldName = Literal[
    "name", "given", "family", "nickname", "organisation", "title", "birthday", "note", "email", "phone", "address"
]

_LONGEST: Final = 4_000
"""Characters of a value that are read; a note may be longer, and stays whole on the server."""
_MOST_LINES: Final = 5_000
"""Properties of a card. One of a picture has one for it, however many lines it is folded into."""
_MOST_ENDS: Final = 50_000
"""Ends of lines in a card: to read so many takes a third of a second."""
_MOST_LISTED: Final = 200
"""Nicknames, or categories."""
_WAYS: Final[dict[str, WayKind]] = {
    "EMAIL": "email",
    "TEL": "phone",
    "ADR": "address",
    "IMPP": "handle",
    "X-SOCIALPROFILE": "handle",
}
_SINGLE: Final[dict[FieldName, str]] = {
    "name": "FN",
    "nickname": "NICKNAME",
    "organisation": "ORG",
    "title": "TITLE",
    "birthday": "BDAY",
    "note": "NOTE",
}
REPEATED: Final[dict[FieldName, str]] = {"email": "EMAIL", "phone": "TEL", "address": "ADR"}
"""Fields of which a card may have several."""
_PARTS_OF_NAME: Final[dict[FieldName, int]] = {"family": 0, "given": 1}
_NO_LABEL: Final = frozenset({"INTERNET", "PREF", "VOICE", "QUOTED-PRINTABLE", "BASE64"})
_APPLE_LABEL: Final = re.compile(r"_\$!<(.*)>!\$_")
_DATE: Final = re.compile(r"(\d{4}|--)-?(\d{2})-?(\d{2})(?:T.*)?")
_CODING: Final = re.compile(r"(?i);(?:ENCODING=)?QUOTED-PRINTABLE|;CHARSET=[^;:]*")
_NO_YEAR: Final = "1604"
"""What Apple writes for a birthday without a year."""


class CardWay(Struct, frozen=True):
    """How somebody can be reached. `line`: the index of the content line that says so. `label`: such as `home`."""

    kind: WayKind
    value: str
    line: int
    label: str = ""
    preferred: bool = False


class Card(Struct, frozen=True):
    """One entry of an address book. `name` is never empty; `nameless`: the card has none, and it is made from the rest.

    `birthday` is a date, `--MM-DD` without its year, or as it was written. A `group` has `members`, by their UIDs.
    """

    uid: str
    name: str
    version: str
    nameless: bool = False
    given: str = ""
    family: str = ""
    nicknames: tuple[str, ...] = ()
    organisation: str = ""
    title: str = ""
    birthday: str = ""
    note: str = ""
    categories: tuple[str, ...] = ()
    ways: tuple[CardWay, ...] = ()
    group: bool = False
    members: tuple[str, ...] = ()


class CardChange(Struct, frozen=True):
    """Change one field. `old` is the value to replace or remove, where a card may have several; `new` empty: remove."""

    field: FieldName
    new: str
    old: str = ""


def card_of(data: bytes) -> Card:
    """The first card in an object. Raises InvalidInput if there is none, or too much in it; whatever it cannot read,
    it leaves out.
    """
    lines = _bounded_lines(data)
    own = [(index, lines[index]) for index in _card_in(lines).own()]
    said = _Said(tuple(own))
    family, given = (*fields_of(said.value("N")), "")[:2]
    ways = tuple(_ways_of(own))
    organisation = ", ".join(filter(None, fields_of(said.value("ORG"))))
    others = (" ".join(filter(None, (given, family))), organisation, *(way.value for way in ways), said.text("UID"))
    name = said.text("FN").strip()
    return Card(
        said.text("UID"),
        name or next(filter(None, others), "(no name)"),
        said.text("VERSION") or "2.1",
        nameless=not name,
        given=given,
        family=family,
        nicknames=said.list("NICKNAME"),
        organisation=organisation,
        title=said.text("TITLE"),
        birthday=_birthday_of(said.first("BDAY")),
        note=said.text("NOTE")[:_LONGEST],
        categories=said.list("CATEGORIES"),
        ways=ways,
        group="group" in (said.text("KIND").lower(), said.text("X-ADDRESSBOOKSERVER-KIND").lower()),
        members=tuple(map(_uid_in, said.all("MEMBER", "X-ADDRESSBOOKSERVER-MEMBER"))),
    )


def _bounded_lines(data: bytes) -> tuple[ContentLine, ...]:
    if data.count(b"\n") + data.count(b"\r") - data.count(b"\r\n") <= _MOST_ENDS:
        lines = content_lines(data)
        if len(lines) <= _MOST_LINES:
            return lines
    raise InvalidInput(f"this card has more than {_MOST_LINES:,} lines", field="card")


class _Said(Struct, frozen=True):
    """The lines of one card, by their names."""

    lines: tuple[tuple[int, ContentLine], ...]

    def first(self, name: str) -> ContentLine:
        return next((line for _, line in self.lines if line.name == name), ContentLine(b""))

    def value(self, name: str) -> str:
        return decoded_value(self.first(name))[:_LONGEST]

    def text(self, name: str) -> str:
        return text_of(self.first(name))

    def all(self, *names: str) -> tuple[str, ...]:
        return tuple(line.value for _, line in self.lines if line.name in names)

    def list(self, name: str) -> tuple[str, ...]:
        found = (part.strip() for value in self.all(name) for part in fields_of(value[:_LONGEST], ",") if part.strip())
        return tuple(islice(found, _MOST_LISTED))


def _card_in(lines: Sequence[ContentLine]) -> Component:
    for found in components_of(lines):
        if found.name == "VCARD":
            return found
    raise InvalidInput("this is no vCard: it has no BEGIN:VCARD with an END:VCARD", field="card")


def _ways_of(own: Sequence[tuple[int, ContentLine]]) -> Iterable[CardWay]:
    labels = {line.group.lower(): text_of(line) for _, line in own if line.name == "X-ABLABEL" and line.group}
    for index, line in own:
        if (kind := _WAYS.get(line.name)) and (value := _way_value(kind, line)):
            types = [part.upper() for one in line.parameters.get("TYPE", ()) for part in one.split(",")]
            own_label = next((one.lower() for one in types if one not in _NO_LABEL), "")
            label = _APPLE_LABEL.sub(r"\1", labels.get(line.group.lower(), "")) if line.group else ""
            preferred = "PREF" in types or line.parameter("PREF") == "1"
            yield CardWay(kind, value[:_LONGEST], index, (label or own_label).lower(), preferred)


def _way_value(kind: WayKind, line: ContentLine) -> str:
    if kind == "address":
        return ", ".join(part.strip() for part in fields_of(line.value) if part.strip())
    value = text_of(line).strip()
    scheme = {"email": "mailto:", "phone": "tel:"}.get(kind, "")
    if scheme and value.lower().startswith(scheme):
        return value[len(scheme) :]
    if kind == "handle" and ":" not in value:
        return f"{(line.parameter('TYPE') or line.parameter('X-SERVICE-TYPE')).lower()}:{value}" if value else ""
    return value


def _birthday_of(line: ContentLine) -> str:
    match = _DATE.fullmatch(line.value.strip())
    if match is None:
        return text_of(line)[:100]
    year, month, day = match.groups()
    unknown = year == "--" or line.parameter("X-APPLE-OMIT-YEAR") == year or year == _NO_YEAR
    return f"{'-' if unknown else year}-{month}-{day}"


def _uid_in(value: str) -> str:
    return value.strip().removeprefix("urn:uuid:")


# Changes ------------------------------------------------------------------------------------------------------------


def change_card(data: bytes, changes: Iterable[CardChange]) -> bytes:
    """The card with these changes; only their lines differ, and the labels of removed ones go with them.

    Raises InvalidInput for a value to replace that the card does not have, and for a card without its name.
    """
    for change in changes:
        data = _change_field(data, change)
    return data


def _change_field(data: bytes, change: CardChange) -> bytes:
    lines = content_lines(data)
    card = _card_in(lines)
    if change.field == "name" and not change.new.strip():
        raise InvalidInput("a contact has a name", field="name")
    if change.field in _PARTS_OF_NAME:
        return _change_part(data, lines, card, change)
    index = _line_to_change(lines, card, change)
    if index is None:
        name = (_SINGLE | REPEATED)[change.field]
        line = f"{name}{_charset_for(lines, card, change.new)}:{_written_value(change.field, change.new)}"
        return change_lines(data, [LineChange(card.last, card.last, (line,))] if change.new else [])
    if not change.new:
        return change_lines(data, _removal_of(lines, card, index))
    line = _line_with(lines[index], _written_value(change.field, change.new), _charset_for(lines, card, change.new))
    return change_lines(data, [LineChange(index, index + 1, (line,))])


def _line_to_change(lines: Sequence[ContentLine], card: Component, change: CardChange) -> int | None:
    """The line that has the old value; None: none is replaced."""
    if name := _SINGLE.get(change.field):
        return next((index for index in card.own() if lines[index].name == name), None)
    if not change.old:
        return None
    own = [(index, lines[index]) for index in card.own()]
    for way in _ways_of(own):
        if way.kind == change.field and way.value == change.old:
            return way.line
    raise InvalidInput(f"this contact has no {change.field} {change.old!r}", field="old")


def _change_part(data: bytes, lines: Sequence[ContentLine], card: Component, change: CardChange) -> bytes:
    index = next((one for one in card.own() if lines[one].name == "N"), None)
    parts = [*split_value("" if index is None else decoded_value(lines[index])), "", "", "", ""]
    parts = parts[: max(5, len(parts) - 4)]
    parts[_PARTS_OF_NAME[change.field]] = escape_text(change.new)
    value = ";".join(parts)
    charset = _charset_for(lines, card, value)
    if index is None:
        return change_lines(data, [LineChange(card.last, card.last, (f"N{charset}:{value}",))])
    return change_lines(data, [LineChange(index, index + 1, (_line_with(lines[index], value, charset),))])


def _written_value(field: FieldName, new: str) -> str:
    """An organisation and an address are structured: what is new is their name, or the street."""
    if field == "address":
        return f";;{escape_text(new)};;;;"
    return escape_text(new)


def _charset_for(lines: Sequence[ContentLine], card: Component, value: str) -> str:
    """The parameter that version 2.1 needs for anything but ASCII."""
    version = next((lines[index].value.strip() for index in card.own() if lines[index].name == "VERSION"), "2.1")
    return ";CHARSET=UTF-8" if version == "2.1" and not value.isascii() else ""


def _line_with(line: ContentLine, value: str, charset: str) -> str:
    """The same property with another value: what stands before it stays, but for how the old value was encoded."""
    scheme = re.match(r"(?i)(?:tel|mailto):", line.value)
    return f"{_CODING.sub('', line.head)}{charset}:{'' if scheme is None else scheme[0]}{value}"


def _removal_of(lines: Sequence[ContentLine], card: Component, index: int) -> list[LineChange]:
    """The line goes, and with it the label that its group has for it alone."""
    group = lines[index].group.lower()
    same = [one for one in card.own() if group and one != index and lines[one].group.lower() == group]
    gone = [index, *same] if all(lines[one].name.startswith("X-AB") for one in same) else [index]
    return [LineChange(one, one + 1, ()) for one in gone]
