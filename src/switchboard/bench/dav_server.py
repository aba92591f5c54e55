"""A server of many cards and events, as small as `modules.py` needs it to measure how fast they are read. Run with -m.

In: how many of each; out: the port in the first line. It answers what our client asks when it finds collections, lists
them and reads objects; nothing can be written. What it serves is always the same, but for dates around today.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final
from urllib.parse import unquote
from xml.sax.saxutils import escape

from switchboard.transport.dav.kinds import CALDAV, CARDDAV, DavKind

FIRST: Final = ("Anna", "Ben", "Clara", "David", "Elif", "Felix", "Greta", "Hugo", "Ida", "Jonas")
_STEMS: Final = ("Berg", "Bach", "Feld", "Holz", "Stein", "Wald", "See", "Hof", "Brunn", "Lind")
_ENDS: Final = ("mann", "er", "ner", "hauser", "ig", "meier", "schmidt", "huber", "bauer", "wirth")
TITLES: Final = ("Dentist", "Team meeting", "Lunch", "Choir", "Swimming", "Parents' evening", "Haircut", "Call")
_DAYS: Final = 3_650
"""Over which events are spread, all but the last year of them in the past."""
_HREF: Final = re.compile(rb"<d:href>([^<]*)</d:href>")


def path_of_collection(kind: DavKind) -> str:
    """Where all objects of a kind are."""
    return f"/{kind.name}/all/"


def object_name(kind: DavKind, number: int) -> str:
    """The name of an object in its collection."""
    return f"{number}.{'vcf' if kind is CARDDAV else 'ics'}"


def person_name(number: int) -> tuple[str, str]:
    """Given and family name of a card; with 20,000 cards, two have each."""
    rest = number // len(FIRST)
    stem, end, middle = _STEMS[rest % 10], _ENDS[rest // 10 % 10], _STEMS[rest // 100 % 10].lower()
    return FIRST[number % len(FIRST)], f"{stem}{middle}{end}"


def card_text(number: int) -> str:
    """A card as address books have them, without a picture."""
    given, family = person_name(number)
    lines = (
        f"UID:card-{number}",
        f"FN:{given} {family}",
        f"N:{family};{given};;;",
        f"EMAIL;TYPE=HOME:{given.lower()}.{number}@example.org",
        f"EMAIL;TYPE=WORK:{family.lower()}.{number}@work.example",
        f"TEL;TYPE=CELL:+49 170 {number:07}",
        f"TEL;TYPE=HOME:030 {number:07}",
        f"ORG:{_STEMS[number % 10]} {_ENDS[number // 10 % 10]} AG",
        f"ADR;TYPE=HOME:;;Street {number};Berlin;;10115;Germany",
    )
    return _document_of("VCARD", ["VERSION:3.0", *lines])


def event_text(number: int, count: int, today: datetime) -> str:
    """An event: one in a hundred is every week for a year, and one in a hundred every year."""
    day = today + timedelta(days=365 - _DAYS * (count - number) // count, hours=8 + number % 10)
    rule = {0: ["RRULE:FREQ=WEEKLY;COUNT=52"], 50: ["RRULE:FREQ=YEARLY"]}.get(number % 100, [])
    given, family = person_name(number)
    lines = (
        f"UID:event-{number}",
        "DTSTAMP:20260101T000000Z",
        f"DTSTART;TZID=Europe/Berlin:{day:%Y%m%dT%H%M%S}",
        "DURATION:PT1H",
        f"SUMMARY:{TITLES[number % len(TITLES)]} with {given}",
        f"LOCATION:Street {number}",
        f"ATTENDEE;CN={given} {family}:mailto:{given.lower()}.{number}@example.org",
    )
    event = _document_of("VEVENT", [*lines, *rule]).splitlines()
    return _document_of("VCALENDAR", ["VERSION:2.0", "PRODID:-//bench//EN", *event])


def _document_of(name: str, lines: Iterable[str]) -> str:
    return "\r\n".join([f"BEGIN:{name}", *lines, f"END:{name}", ""])


def objects_of(kind: DavKind, count: int) -> Mapping[str, str]:
    """All of a kind, by their names."""
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    make: Callable[[int], str] = card_text if kind is CARDDAV else (lambda number: event_text(number, count, today))
    return {object_name(kind, number): make(number) for number in range(count)}


class DavAnswers:
    """What is answered about `count` cards and as many events."""

    def __init__(self, count: int) -> None:
        self._objects = {kind: objects_of(kind, count) for kind in (CARDDAV, CALDAV)}

    def answer(self, method: str, path: str, depth: str, body: bytes) -> str:
        """The XML of a multistatus."""
        kind = CALDAV if path.startswith(f"/{CALDAV.name}/") else CARDDAV
        if method == "REPORT":
            found = [unquote(href.decode()) for href in _HREF.findall(body)]
            return _multistatus_of(self._content_response(kind, href) for href in found)
        if path in ("/", f"/.well-known/{CALDAV.name}", f"/.well-known/{CARDDAV.name}"):
            homes = (
                f"<x:{one.home} xmlns:x='{one.namespace}'><d:href>/{one.name}/</d:href></x:{one.home}>"
                for one in self._objects
            )
            return _multistatus_of([_response_for(path, "".join(homes))])
        parts = (
            [_collection_response(kind)]
            if depth == "0" or path == f"/{kind.name}/"
            else [_collection_response(kind), *self._etag_responses(kind)]
        )
        return _multistatus_of(parts)

    def _etag_responses(self, kind: DavKind) -> Iterable[str]:
        return (
            _response_for(f"{path_of_collection(kind)}{name}", _etag_property(name)) for name in self._objects[kind]
        )

    def _content_response(self, kind: DavKind, href: str) -> str:
        name = href.rpartition("/")[2]
        data = f"<x:{kind.data} xmlns:x='{kind.namespace}'>{escape(self._objects[kind][name])}</x:{kind.data}>"
        return _response_for(href, f"{_etag_property(name)}{data}")


def _collection_response(kind: DavKind) -> str:
    types = f"<d:resourcetype><d:collection/><x:{kind.collection} xmlns:x='{kind.namespace}'/></d:resourcetype>"
    return _response_for(path_of_collection(kind), f"{types}<d:displayname>All</d:displayname>")


def _etag_property(name: str) -> str:
    return f'<d:getetag>"{name}"</d:getetag>'


def _response_for(href: str, properties: str) -> str:
    found = f"<d:propstat><d:prop>{properties}</d:prop><d:status>HTTP/1.1 200 OK</d:status></d:propstat>"
    return f"<d:response><d:href>{href}</d:href>{found}</d:response>"


def _multistatus_of(responses: Iterable[str]) -> str:
    return f'<?xml version="1.0"?><d:multistatus xmlns:d="DAV:">{"".join(responses)}</d:multistatus>'


def serve_objects() -> None:
    """Listen on a free port of loopback and print it."""
    answers = DavAnswers(int(sys.argv[1]))

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer_request(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            said = answers.answer(self.command, self.path, self.headers.get("depth", "0"), body).encode()
            self.send_response(207)
            self.send_header("content-type", "application/xml; charset=utf-8")
            self.send_header("content-length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

        do_PROPFIND = do_REPORT = _answer_request  # noqa: N815 - their names are fixed

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        print(server.server_port, flush=True)  # noqa: T201 - the first line is the protocol
        server.serve_forever()


if __name__ == "__main__":
    serve_objects()
