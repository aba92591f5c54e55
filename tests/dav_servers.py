"""Real servers of address books and calendars for tests, and a proxy before them that misbehaves as it is told.

Radicale and Xandikos run as processes on loopback and keep their files in a temporary directory. A file of tests
imports the fixtures `started`, `proxy` and `client`, and names them in its `__all__`.
"""

from __future__ import annotations

import subprocess
import sys
from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from email import message_from_bytes
from email.message import Message
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Final
from urllib.parse import quote, unquote

import httpx2
import pytest

from switchboard.transport.dav.client import DavClient, open_dav
from switchboard.transport.dav.kinds import CALDAV, CARDDAV, DavKind, DavLogin
from tests.mail_servers import Postbox, once_up, running_smtp
from tests.ports import free_port

USER: Final = "ann@home.example"
GUEST: Final = "ben@work.example"
"""Another one, whom Radicale lets in."""
PASSWORD: Final = "pw-very-secret"
BOOK: Final = """<?xml version="1.0"?><d:mkcol xmlns:d="DAV:" xmlns:k="urn:ietf:params:xml:ns:carddav"><d:set><d:prop>
<d:resourcetype><d:collection/><k:addressbook/></d:resourcetype><d:displayname>Friends</d:displayname>
</d:prop></d:set></d:mkcol>"""
CALENDAR: Final = """<?xml version="1.0"?><k:mkcalendar xmlns:d="DAV:" xmlns:k="urn:ietf:params:xml:ns:caldav"
xmlns:a="http://apple.com/ns/ical/"><d:set><d:prop><d:displayname>{name}</d:displayname>
<a:calendar-color>#FF8800FF</a:calendar-color><k:calendar-timezone>BEGIN:VCALENDAR
VERSION:2.0
BEGIN:VTIMEZONE
TZID:Europe/Berlin
BEGIN:STANDARD
DTSTART:19701025T030000
TZOFFSETFROM:+0200
TZOFFSETTO:+0100
END:STANDARD
END:VTIMEZONE
END:VCALENDAR
</k:calendar-timezone><k:supported-calendar-component-set><k:comp name="{component}"/>
</k:supported-calendar-component-set></d:prop></d:set></k:mkcalendar>"""
ADDRESS: Final = f"""<?xml version="1.0"?><d:propertyupdate xmlns:d="DAV:" xmlns:k="urn:ietf:params:xml:ns:caldav">
<d:set><d:prop><k:calendar-user-address-set><d:href>mailto:{USER}</d:href></k:calendar-user-address-set></d:prop></d:set>
</d:propertyupdate>"""


@dataclass(frozen=True)
class DavServer:
    """A server that runs, with an empty address book at the path `book`, and an empty calendar at `calendar`.

    Other clients write into the address book; see `of_events`.
    """

    name: str
    port: int
    book: str
    calendar: str
    files: str
    """Where its collections are kept as files."""
    suffix: str = ".vcf"
    media_type: str = "text/vcard"
    user: str = USER

    def of_events(self) -> DavServer:
        """The same for the calendar: this is the one that other clients write into."""
        return replace(self, book=self.calendar, suffix=".ics", media_type="text/calendar")

    def ask(self, method: str, name: str = "", content: bytes = b"", **headers: str) -> httpx2.Response:
        """What another client of the user does."""
        path = f"{self.book}{quote(name)}"
        login = b64encode(f"{self.user}:{PASSWORD}".encode()).decode()
        # A client of httpx2 takes longer than a request; Radicale takes long for the first list of many objects.
        connection = HTTPConnection("127.0.0.1", self.port, timeout=300)
        try:
            connection.request(method, path, content, {"authorization": f"Basic {login}", **headers})
            got = connection.getresponse()
            asked = httpx2.Request(method, f"http://127.0.0.1:{self.port}{path}")
            return httpx2.Response(got.status, headers=dict(got.getheaders()), content=got.read(), request=asked)
        finally:
            connection.close()

    def put(self, name: str, data: bytes) -> None:
        """Write an object, whatever is there."""
        self.ask("PUT", name, data, **{"content-type": self.media_type}).raise_for_status()

    def seed(self, objects: Mapping[str, bytes]) -> None:
        """Many objects at once, which the server has read once."""
        self.write_files(objects)
        assert len(self.names()) == len(objects)

    def write_files(self, objects: Mapping[str, bytes]) -> None:
        """Many objects at once, as files: to write one after the other takes a server minutes."""
        folder = Path(f"{self.files}{self.book}")
        for name, data in objects.items():
            (folder / name).write_bytes(data)
        if (folder / ".git").exists():
            git = ["git", "-C", str(folder), "-c", "user.name=ann", "-c", "user.email=ann@home.example"]
            subprocess.run([*git, "add", "-A"], check=True)
            subprocess.run([*git, "commit", "-q", "-m", "many"], check=True)

    def delete(self, name: str) -> None:
        self.ask("DELETE", name).raise_for_status()

    def empty(self) -> None:
        """Delete all objects."""
        for href in self.names():
            self.delete(href)

    def names(self) -> list[str]:
        """The names of the objects."""
        body = b'<d:propfind xmlns:d="DAV:"><d:prop><d:getetag/><d:resourcetype/></d:prop></d:propfind>'
        said = self.ask("PROPFIND", content=body, depth="1", **{"content-type": "application/xml"}).text
        hrefs = [part.partition("</")[0] for part in said.split("href>") if f"{self.suffix}</" in part]
        return [unquote(href.rpartition("/")[2]) for href in hrefs]

    def objects(self) -> dict[str, bytes]:
        """All that is there."""
        return {name: self.ask("GET", name).content for name in self.names()}


@dataclass(frozen=True)
class SendingServer(DavServer):
    """A server that itself sends invitations to what is written into a calendar (RFC 6638)."""

    postbox: Postbox = field(default_factory=Postbox)

    @property
    def mails(self) -> list[Message]:
        """What it has sent, the oldest first. Mails are handed over before a write is answered."""
        return [message_from_bytes(one) for one in self.postbox.mails]


@contextmanager
def radicale() -> Iterator[DavServer]:
    """It asks for a password, and has a home for every user."""
    with TemporaryDirectory() as home:
        users = Path(home, "users")
        users.write_text(f"{USER}:{PASSWORD}\n{GUEST}:{PASSWORD}\n", encoding="ascii")
        port = free_port()
        options = {
            "server-hosts": f"127.0.0.1:{port}",
            "auth-type": "htpasswd",
            "auth-htpasswd-filename": str(users),
            "auth-htpasswd-encryption": "plain",
            "auth-delay": "0",
            "storage-filesystem-folder": home,
            "logging-level": "critical",
        }
        flags = [f"--{name}={value}" for name, value in options.items()]
        with _running([sys.executable, "-m", "radicale", "--config", "", *flags], port):
            server = DavServer("radicale", port, f"/{USER}/friends/", f"/{USER}/work/", f"{home}/collection-root")
            server.ask("MKCOL", content=BOOK.encode()).raise_for_status()
            for path, name, component in (("work", "Work", "VEVENT"), ("shopping", "Shopping", "VTODO")):
                body = CALENDAR.format(name=name, component=component).encode()
                replace(server, book=f"/{USER}/{path}/").ask("MKCALENDAR", content=body).raise_for_status()
            yield server


@contextmanager
def xandikos(*options: str) -> Iterator[DavServer]:
    """It knows one user, and asks for no password. It says that it sends invitations, whatever its options."""
    with TemporaryDirectory() as home:
        port = free_port()
        places = ["-d", f"{home}/d", "--state-dir", f"{home}/s", "-l", "127.0.0.1", "-p", str(port)]
        command = [str(Path(sys.executable).with_name("xandikos")), "serve", "--defaults", "--no-detect-systemd"]
        with _running([*command, *places, *options], port):
            yield DavServer("xandikos", port, "/user/contacts/addressbook/", "/user/calendars/calendar/", f"{home}/d")


def give_address(server: DavServer) -> None:
    """Tell Xandikos the address of its user."""
    user = replace(server, book="/user/")
    told = user.ask("PROPPATCH", content=ADDRESS.encode(), **{"content-type": "application/xml"}).text
    assert "200 OK" in told, told


@contextmanager
def sending_xandikos() -> Iterator[SendingServer]:
    """The same with an SMTP server, and a user that has an address: without one of them, nobody is invited."""
    with running_smtp() as (postbox, smtp):
        sends = ["--imip-send=smtp", "--smtp-host=127.0.0.1", f"--smtp-port={smtp}", "--smtp-from=dav@home.example"]
        with xandikos(*sends) as server:
            give_address(server)
            yield SendingServer(server.name, server.port, server.book, server.calendar, server.files, postbox=postbox)


@contextmanager
def _running(command: list[str], port: int) -> Iterator[None]:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        once_up(process, port)
        yield
    finally:
        process.kill()
        process.wait()


@dataclass(frozen=True)
class Asked:
    """A request as it came to the proxy."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True)
class Answered:
    """An answer, of the server or of a test."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


Before = Callable[[Asked], Answered | None]
"""Answers in place of the server, if it answers."""
After = Callable[[Asked, Answered], Answered | None]
"""Changes the server's answer; None: the connection is cut, though the server has done what it was asked."""


class DavProxy:
    """Passes everything on, but for what `before` and `after` do."""

    def __init__(self, port: int, server: DavServer) -> None:
        self.port = port
        self.server = server
        self.before: Before = lambda _: None
        self.after: After = lambda _, answered: answered
        self.asked: list[Asked] = []

    def login(self, path: str = "/") -> DavLogin:
        """The account behind this proxy."""
        return DavLogin(f"http://127.0.0.1:{self.port}{path}", USER, PASSWORD)

    @property
    def book(self) -> str:
        """The address of the collection that other clients write into."""
        return f"http://127.0.0.1:{self.port}{self.server.book}"

    def behave(self) -> None:
        """Pass on everything, from now on."""
        self.before, self.after = lambda _: None, lambda _, answered: answered
        self.asked.clear()

    def answer(self, asked: Asked) -> Answered | None:
        """What is answered; None: nothing, and the connection ends."""
        self.asked.append(asked)
        if (instead := self.before(asked)) is not None:
            return instead
        return self.after(asked, self.answer_of_server(asked))

    def answer_of_server(self, asked: Asked) -> Answered:
        """What the server says, whatever it is told to be."""
        upstream = HTTPConnection("127.0.0.1", self.server.port, timeout=300)
        try:
            upstream.request(asked.method, asked.path, asked.body or None, dict(asked.headers))
            got = upstream.getresponse()
            kept = {name.lower(): ", ".join(got.headers.get_all(name, [])) for name in got.headers}
            return Answered(got.status, kept, got.read())
        finally:
            upstream.close()


@contextmanager
def dav_proxy(server: DavServer) -> Iterator[DavProxy]:
    """A proxy before a server, on a port of its own."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            headers = {name.lower(): value for name, value in self.headers.items() if name.lower() != "connection"}
            answered = made.answer(Asked(self.command, self.path, headers, body))
            if answered is None:
                self.close_connection = True
                return
            self.send_response(answered.status)
            for name, value in answered.headers.items():
                if name not in ("transfer-encoding", "content-length", "connection", "server", "date"):
                    self.send_header(name, value)
            self.send_header("Content-Length", str(len(answered.body)))
            self.end_headers()
            self.wfile.write(answered.body)

        do_GET = do_PUT = do_DELETE = do_PROPFIND = do_REPORT = do_OPTIONS = _serve  # noqa: N815 - their names are fixed

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        http.daemon_threads = True
        made = DavProxy(http.server_port, server)
        thread = Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield made
        finally:
            http.shutdown()
            thread.join()


def card(name: str, *more: str, uid: str = "") -> bytes:
    """A small vCard."""
    lines = ["BEGIN:VCARD", "VERSION:3.0", f"UID:{uid or name}", f"FN:{name}", f"N:{name};;;;", *more, "END:VCARD", ""]
    return "\r\n".join(lines).encode()


def event(title: str, *more: str, uid: str = "", start: str = "20270301T090000Z") -> bytes:
    """A small event."""
    lines = ["BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:-//tests//EN", "BEGIN:VEVENT", f"UID:{uid or title}"]
    lines += ["DTSTAMP:20270101T000000Z", f"DTSTART:{start}", "DURATION:PT1H", f"SUMMARY:{title}", *more]
    return "\r\n".join([*lines, "END:VEVENT", "END:VCALENDAR", ""]).encode()


@dataclass(frozen=True)
class DavThings:
    """What a kind of collection holds, and how another client writes one of them."""

    dav: DavKind
    suffix: str
    make: Callable[..., bytes]

    def name(self, number: object) -> str:
        """The name of an object."""
        return f"{number}{self.suffix}"

    def on(self, server: DavServer) -> DavServer:
        """The server whose collection of this kind other clients write into; it is emptied."""
        found = server.of_events() if self.dav is CALDAV else server
        found.empty()
        return found


CARDS: Final = DavThings(CARDDAV, ".vcf", card)
EVENTS: Final = DavThings(CALDAV, ".ics", event)


@pytest.fixture(scope="module", params=[radicale, xandikos], ids=["radicale", "xandikos"])
def started(request: pytest.FixtureRequest) -> Iterator[DavProxy]:
    """Each of the servers, behind a proxy, for all tests of a file."""
    with ExitStack() as stack:
        server = stack.enter_context(request.param())
        yield stack.enter_context(dav_proxy(server))


@pytest.fixture
def proxy(started: DavProxy) -> DavProxy:
    """The same, with an empty address book, for one test."""
    started.behave()
    started.server.empty()
    return started


@pytest.fixture
async def client(proxy: DavProxy) -> AsyncIterator[DavClient]:
    """A client of the address book."""
    async with open_dav(proxy.login(), CARDDAV) as made:
        yield made
