"""The XML of WebDAV: bodies of requests, and answers of status 207. Pure.

`client.py` sends and receives it. In: names of properties, bytes from a server; out: bytes, a `Multistatus`. An answer
is read without entities and document types, and not deeper than anything sensible.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers.expat import ExpatError, ParserCreate
from xml.sax.saxutils import escape

from msgspec import Struct

from switchboard.transport.dav.kinds import DavError, DavKind

DAV: Final = "{DAV:}"
_CTAG: Final = "http://calendarserver.org/ns/"
_APPLE: Final = "http://apple.com/ns/ical/"
_DEEPEST: Final = 50
_MOST_ELEMENTS: Final = 1_000_000
"""Of an answer; each takes some hundred bytes of memory, and may be four bytes of XML."""
_STATUS: Final = re.compile(r"HTTP/[\d.]+\s+(\d{3})")


class DavResponse(Struct, frozen=True):
    """What a server says of one resource: a `status` for all of it (0: none is said), and the properties it has."""

    href: str
    status: int
    found: Mapping[str, Element]

    def text(self, name: str) -> str:
        """The text of a property, such as `{DAV:}getetag`; empty without one."""
        element = self.found.get(name)
        return "" if element is None else (element.text or "").strip()

    def hrefs(self, name: str) -> tuple[str, ...]:
        """The addresses in a property."""
        element = self.found.get(name)
        found = () if element is None else element.iter(f"{DAV}href")
        return tuple((one.text or "").strip() for one in found if (one.text or "").strip())

    def names_in(self, name: str) -> frozenset[str]:
        """The names of all elements in a property, such as the types of a resource."""
        element = self.found.get(name)
        found = () if element is None else element.iter()
        return frozenset(str(one.tag) for one in found if one is not element)


class Multistatus(Struct, frozen=True):
    """An answer about several resources; `cursor` is the sync token of a report."""

    responses: tuple[DavResponse, ...]
    cursor: str = ""


def propfind_body(kind: DavKind, names: Iterable[str]) -> bytes:
    """A question for these properties; a name without namespace is one of WebDAV."""
    return _document_of("d:propfind", kind, f"<d:prop>{_named_properties(kind, names)}</d:prop>")


def sync_body(kind: DavKind, token: str) -> bytes:
    """A question for what has changed since a token."""
    inner = f"<d:sync-token>{escape(token)}</d:sync-token><d:sync-level>1</d:sync-level><d:prop><d:getetag/></d:prop>"
    return _document_of("d:sync-collection", kind, inner)


def multiget_body(kind: DavKind, hrefs: Iterable[str]) -> bytes:
    """A question for the contents of these objects."""
    wanted = "".join(f"<d:href>{escape(href)}</d:href>" for href in hrefs)
    return _document_of(f"k:{kind.multiget}", kind, f"<d:prop><d:getetag/><k:{kind.data}/></d:prop>{wanted}")


def _document_of(name: str, kind: DavKind, inner: str) -> bytes:
    spaces = f'xmlns:d="DAV:" xmlns:k="{kind.namespace}" xmlns:c="{_CTAG}" xmlns:a="{_APPLE}"'
    return f'<?xml version="1.0" encoding="utf-8"?>\n<{name} {spaces}>{inner}</{name}>'.encode()


def _named_properties(kind: DavKind, names: Iterable[str]) -> str:
    prefixes = {"DAV:": "d", kind.namespace: "k", _CTAG: "c", _APPLE: "a"}
    return "".join(f"<{prefixes[space]}:{name}/>" for space, name in map(_split_name, names))


def _split_name(name: str) -> tuple[str, str]:
    space, _, local = name.removeprefix("{").rpartition("}")
    return space, local


CTAG: Final = f"{{{_CTAG}}}getctag"
SHARED: Final = f"{{{_CTAG}}}shared"
"""A type of what somebody else shares with the user; what the user shares is a `shared-owner`."""
COLOUR: Final = f"{{{_APPLE}}}calendar-color"


def multistatus_of(data: bytes) -> Multistatus:
    """Read an answer. Raises DavError (`unreadable`) for anything that is none."""
    root = _tree_of(data)
    if root.tag != f"{DAV}multistatus":
        raise DavError("unreadable", "the server answered with XML that is no multistatus")
    responses = [one for element in root.findall(f"{DAV}response") for one in _responses_in(element)]
    return Multistatus(tuple(responses), (root.findtext(f"{DAV}sync-token") or "").strip())


def _tree_of(data: bytes) -> Element:
    builder, depth, number = TreeBuilder(), 0, 0
    parser = ParserCreate(namespace_separator="}")
    parser.buffer_text = True

    def start(name: str, attributes: Mapping[str, str]) -> None:
        nonlocal depth, number
        depth, number = depth + 1, number + 1
        if depth > _DEEPEST or number > _MOST_ELEMENTS:
            limits = f"{_DEEPEST} levels or {_MOST_ELEMENTS:,} elements"
            raise DavError("unreadable", f"the server answered with XML of more than {limits}")
        builder.start(f"{{{name}" if "}" in name else name, dict(attributes))

    def end(name: str) -> None:
        nonlocal depth
        depth -= 1
        builder.end(f"{{{name}" if "}" in name else name)

    def refuse(*_: object) -> None:
        raise DavError("unreadable", "the server answered with XML that has a document type")

    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.CharacterDataHandler = builder.data
    parser.StartDoctypeDeclHandler = parser.EntityDeclHandler = refuse
    try:
        parser.Parse(data, True)
    except (ExpatError, ValueError, LookupError) as error:
        raise DavError("unreadable", f"the server answered with something that is no XML: {error}") from error
    return builder.close()


def _responses_in(element: Element) -> Iterable[DavResponse]:
    """One for each address that it names: RFC 4918 lets a status be that of several."""
    status = _status_in(element)
    found = {
        str(one.tag): one
        for group in element.findall(f"{DAV}propstat")
        if 200 <= (_status_in(group) or 200) < 300
        for one in group.iterfind(f"{DAV}prop/*")
    }
    for href in element.findall(f"{DAV}href"):
        yield DavResponse((href.text or "").strip(), status, found)


def _status_in(element: Element) -> int:
    match = _STATUS.match((element.findtext(f"{DAV}status") or "").strip())
    return int(match[1]) if match else 0
