"""The client of CalDAV and CardDAV, against servers of others, and behind a proxy that does what servers have done."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack
from functools import partial

import httpx2
import pytest

from switchboard.ports.collection_server import ServerListing, ServerObject, ServerState
from switchboard.transport.dav.client import DavClient, DavRequest, open_dav
from switchboard.transport.dav.discovery import find_collections, offers_scheduling
from switchboard.transport.dav.kinds import CALDAV, DavError, DavLogin
from switchboard.transport.dav.multistatus import multistatus_of
from switchboard.transport.dav.places import name_in, next_of, path_of, place_of, start_of
from switchboard.transport.dav.reading import list_changes, read_objects
from switchboard.transport.dav.writing import create_object, delete_object, replace_object
from tests.cyrus_server import cyrus
from tests.dav_servers import (
    CARDS,
    EVENTS,
    PASSWORD,
    Answered,
    Asked,
    DavProxy,
    DavServer,
    DavThings,
    dav_proxy,
    radicale,
    xandikos,
)

PAGE = Answered(200, {"content-type": "text/html"}, b"<!doctype html><title>Log in</title>")
EMPTY = b'<?xml version="1.0"?><d:multistatus xmlns:d="DAV:"/>'


@pytest.fixture(scope="module", params=[radicale, xandikos, cyrus], ids=["radicale", "xandikos", "cyrus"])
def server(request: pytest.FixtureRequest) -> Iterator[DavServer]:
    with ExitStack() as stack:
        yield stack.enter_context(request.param())


@pytest.fixture(params=[CARDS, EVENTS], ids=["cards", "events"])
def things(request: pytest.FixtureRequest) -> DavThings:
    found: DavThings = request.param
    return found


@pytest.fixture
def proxy(server: DavServer, things: DavThings) -> Iterator[DavProxy]:
    with dav_proxy(things.on(server)) as started:
        yield started


@pytest.fixture
async def client(proxy: DavProxy, things: DavThings) -> AsyncIterator[DavClient]:
    async with open_dav(proxy.login(), things.dav) as made:
        yield made


async def test_collections_are_found_from_any_address(proxy: DavProxy, things: DavThings) -> None:
    for path in ("/", proxy.server.book, proxy.server.book.rstrip("/").replace("@", "%40"), "/nothing/here/"):
        async with open_dav(proxy.login(path), things.dav) as one:
            [book] = await find_collections(one)
            assert path_of(start_of(book.url)) == path_of(start_of(proxy.book)), path
            assert book.writable
            assert book.cursor


async def test_calendars_of_events_are_found_with_colour_and_zone(proxy: DavProxy) -> None:
    async with open_dav(proxy.login(), CALDAV) as one:
        [calendar] = await find_collections(one)
        assert path_of(httpx2.URL(calendar.url)) == path_of(httpx2.URL(proxy.server.calendar)), (
            "a list of tasks is none"
        )
        assert calendar.writable
        if proxy.server.name == "radicale":
            assert (calendar.name, calendar.colour, calendar.zone) == ("Work", "#FF8800", "Europe/Berlin")
        assert await offers_scheduling(one, calendar.url) == (proxy.server.name != "radicale")
        scheduling = {"dav": "1, 2, calendar-access, Calendar-Auto-Schedule", "content-type": "text/html"}
        proxy.before = lambda asked: Answered(200, scheduling) if asked.method == "OPTIONS" else None
        assert await offers_scheduling(one, calendar.url), "PHP calls an empty answer HTML"


async def test_collections_of_somebody_else_are_told_apart(proxy: DavProxy, things: DavThings) -> None:
    def of_bob(_: Asked, answered: Answered) -> Answered:
        """As Nextcloud does it: the collection is in the user's home, and its owner is another principal."""
        body = re.sub(rb"(owner>\s*<[^>]*href>)[^<]+", rb"\1/principals/users/bob/", answered.body)
        return Answered(answered.status, answered.headers, body)

    def invited(_: Asked, answered: Answered) -> Answered:
        """As Sabre does it."""
        body = answered.body.replace(b"<prop>", b'<prop xmlns:cs="http://calendarserver.org/ns/">')
        body = re.sub(rb"(<[^>]*collection ?/>)", rb'\1<cs:shared xmlns:cs="http://calendarserver.org/ns/"/>', body)
        return Answered(answered.status, answered.headers, body)

    async with open_dav(proxy.login(), things.dav) as one:
        [own] = await find_collections(one)
        proxy.after = of_bob
        [others] = await find_collections(one)
        proxy.after = invited
        [shared] = await find_collections(one)
    says_whose = proxy.server.name != "xandikos"
    assert (own.shared, others.shared, shared.shared) == (False, says_whose, True)


async def test_a_wrong_password_and_strange_servers_have_names(proxy: DavProxy, things: DavThings) -> None:
    told: dict[str, ServerState] = {}
    answers = {
        "401": Answered(401),
        "a page": PAGE,
        "another host": Answered(302, {"location": "https://login.example/"}),
        "another port": Answered(302, {"location": "http://127.0.0.1:1/"}),
        "503": Answered(503, {"retry-after": "7"}),
        "text": Answered(200, {"content-type": "text/plain"}, b"hello"),
        "in circles": Answered(307, {"location": "/"}),
    }
    for name, answered in answers.items():
        proxy.before = partial(_say, answered)
        async with open_dav(proxy.login(), things.dav) as one:
            with pytest.raises(DavError) as error:
                await find_collections(one)
        told[name] = error.value.state
        assert PASSWORD not in str(error.value)
        if name == "503":
            assert error.value.retry_after == 7
    async with open_dav(DavLogin("http://127.0.0.1:1/", "ann", "x"), things.dav) as one:
        with pytest.raises(DavError, match=r"127\.0\.0\.1"):
            await find_collections(one)
    assert told == {
        "401": "login",
        "a page": "login_page",
        "another host": "elsewhere",
        "another port": "elsewhere",
        "503": "later",
        "text": "unreadable",
        "in circles": "unreadable",
    }


def _say(answered: Answered, _: Asked) -> Answered:
    return answered


async def test_changes_follow_a_token(proxy: DavProxy, things: DavThings, client: DavClient) -> None:
    server = proxy.server
    for name in (things.name("a b@c"), things.name("ü"), things.name("kept")):
        server.put(name, things.make(name))
    first = await list_changes(client, proxy.book, "")
    assert first.whole
    assert set(first.etags) == {things.name("a b@c"), things.name("ü"), things.name("kept")}
    server.delete(things.name("a b@c"))
    server.put(things.name("ü"), things.make("changed", uid=things.name("ü")))
    later = await list_changes(client, proxy.book, first.cursor)
    assert (set(later.etags), later.gone, later.whole) == ({things.name("ü")}, frozenset({things.name("a b@c")}), False)
    assert await list_changes(client, proxy.book, later.cursor) == ServerListing({}, cursor=later.cursor)


@pytest.mark.parametrize("status", [400, 403, 404, 410, 412, 415, 500, 507])
async def test_a_lost_token_means_that_all_is_listed(
    proxy: DavProxy, things: DavThings, client: DavClient, status: int
) -> None:
    proxy.server.put(things.name("a"), things.make("a"))
    proxy.before = lambda asked: Answered(status) if asked.method == "REPORT" else None
    found = await list_changes(client, proxy.book, "urn:lost")
    assert (found.whole, set(found.etags)) == (True, {things.name("a")})
    assert found.cursor not in ("", "urn:lost")


@pytest.mark.parametrize("answered", [Answered(401), PAGE, Answered(503), Answered(429), None], ids=str)
async def test_a_sync_that_fails_says_nothing_of_deletions(
    proxy: DavProxy, things: DavThings, client: DavClient, answered: Answered | None
) -> None:
    proxy.server.put(things.name("a"), things.make("a"))
    token = (await list_changes(client, proxy.book, "")).cursor
    proxy.asked.clear()
    proxy.after = lambda _, __: answered
    with pytest.raises(DavError) as error:
        await list_changes(client, proxy.book, token)
    assert error.value.state in ("login", "login_page", "later")
    assert [one.method for one in proxy.asked] == ["REPORT"], "the question is not asked again without the token"


async def test_an_answer_that_is_cut_short_goes_on(
    proxy: DavProxy, things: DavThings, client: DavClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = (await list_changes(client, proxy.book, "")).cursor
    proxy.server.put(things.name("a"), things.make("a"))
    proxy.before = lambda asked: _page_of(proxy, asked)
    found = await list_changes(client, proxy.book, token)
    assert set(found.etags) == {things.name("first"), things.name("a")}
    assert found.cursor not in ("", "urn:next", token)

    def stuck(asked: Asked) -> Answered | None:
        return _page_of(proxy, asked, "urn:next") if asked.method == "REPORT" else None

    proxy.before = stuck
    assert (await list_changes(client, proxy.book, token)).whole, "a server that goes on for ever is listed"
    proxy.asked.clear()
    monkeypatch.setattr("switchboard.transport.dav.reading._MOST_CHANGED", 100)
    proxy.before = lambda asked: _large_page_of(proxy) if asked.method == "REPORT" else None
    assert (await list_changes(client, proxy.book, token)).whole
    assert [one.method for one in proxy.asked].count("REPORT") == 3, "not all it says is kept in memory"


def _large_page_of(proxy: DavProxy) -> Answered:
    """New names on each page, and a new token."""
    page = len(proxy.asked)
    named = "".join(f"<d:response><d:href>{proxy.server.book}{page}-{n}</d:href></d:response>" for n in range(40))
    short = f"<d:response><d:href>{proxy.server.book}</d:href><d:status>HTTP/1.1 507 x</d:status></d:response>"
    body = f'<d:multistatus xmlns:d="DAV:">{named}{short}<d:sync-token>urn:{page}</d:sync-token></d:multistatus>'
    return Answered(207, {"content-type": "application/xml"}, body.encode())


def _page_of(proxy: DavProxy, asked: Asked, always: str = "") -> Answered | None:
    """The first page ends with 507; the next token is the real one, for the server."""
    if b"urn:next" in asked.body and not always:
        real = asked.body.replace(b"urn:next", b"")
        return proxy.answer_of_server(
            Asked(asked.method, asked.path, dict(asked.headers) | {"content-length": str(len(real))}, real)
        )
    body = (
        f'<d:multistatus xmlns:d="DAV:"><d:response><d:href>{proxy.server.book}first{proxy.server.suffix}</d:href>'
        f"<d:propstat><d:prop>"
        f"<d:getetag>&quot;1&quot;</d:getetag></d:prop><d:status>HTTP/1.1 200 OK</d:status></d:propstat></d:response>"
        f"<d:response><d:href>{proxy.server.book}</d:href><d:status>HTTP/1.1 507 x</d:status></d:response>"
        f"<d:sync-token>urn:next</d:sync-token></d:multistatus>"
    )
    return Answered(207, {"content-type": "application/xml"}, body.encode())


@pytest.mark.parametrize("spoiled", ["empty", "not XML", "too large"])
async def test_one_object_that_cannot_be_read_spoils_no_other(
    proxy: DavProxy, things: DavThings, client: DavClient, spoiled: str
) -> None:
    names = [things.name(number) for number in range(7)]
    for name in names:
        proxy.server.put(name, things.make(name))

    def spoil(asked: Asked, answered: Answered) -> Answered:
        if asked.method == "GET" and asked.path.endswith(things.name("/3")) and spoiled == "too large":
            return Answered(200, {}, b"x" * 1_000_001)
        if asked.method == "REPORT" and things.name("/3").encode() in asked.body:
            return Answered(207, {}, {"empty": EMPTY, "not XML": b"<a>\x0b", "too large": b" " * 16_000_001}[spoiled])
        return answered

    proxy.after = spoil
    found = await read_objects(client, proxy.book, [*names, things.name("never")])
    assert {one.name for one in found.objects} | set(found.unreadable) == set(names)
    assert set(found.unreadable) == ({things.name("3")} if spoiled == "too large" else set())
    assert found.gone == {things.name("never")}


async def test_an_empty_answer_is_no_empty_collection(proxy: DavProxy, things: DavThings, client: DavClient) -> None:
    proxy.server.put(things.name("a"), things.make("a"))
    proxy.before = lambda asked: Answered(207, {}, EMPTY) if asked.headers.get("depth") == "1" else None
    found = await list_changes(client, proxy.book, "")
    assert (found.whole, found.complete, found.cursor) == (False, False, "")


async def test_a_write_loses_against_another_client_and_says_so(
    proxy: DavProxy, things: DavThings, client: DavClient
) -> None:
    made = await create_object(client, proxy.book, ServerObject(things.name("new"), "", things.make("new")))
    again = await create_object(client, proxy.book, ServerObject(things.name("new"), "", things.make("new")))
    assert again.etag == made.etag, "servers order the lines of an event anew"
    proxy.server.put(things.name("new"), things.make("theirs", uid="new"))
    for write in _writes(client, proxy, things, made):
        with pytest.raises(DavError) as error:
            await write()
        assert error.value.state == "changed"
    assert b"theirs" in proxy.server.objects()[things.name("new")]


def _writes(
    client: DavClient, proxy: DavProxy, things: DavThings, old: ServerObject
) -> tuple[Callable[[], Awaitable[object]], ...]:
    return (
        lambda: create_object(client, proxy.book, ServerObject(things.name("new"), "", things.make("other"))),
        lambda: replace_object(client, proxy.book, old, things.make("ours", uid="new")),
        lambda: delete_object(client, proxy.book, old),
    )


async def test_a_write_whose_answer_is_lost_was_carried_out_once(
    proxy: DavProxy, things: DavThings, client: DavClient
) -> None:
    def cut(asked: Asked, answered: Answered) -> Answered | None:
        return answered if asked.method in ("GET", "PROPFIND") else None

    proxy.after = cut
    made = await create_object(client, proxy.book, ServerObject(things.name("new"), "", things.make("new")))
    changed = await replace_object(client, proxy.book, made, things.make("changed", uid="new"))
    assert b"changed" in proxy.server.objects()[things.name("new")]
    await delete_object(client, proxy.book, changed)
    assert proxy.server.names() == []
    proxy.after = lambda _, __: None
    with pytest.raises(DavError) as error:
        await create_object(client, proxy.book, ServerObject(things.name("new"), "", things.make("new")))
    assert error.value.state == "unknown"


async def test_a_write_that_never_arrived_was_not_carried_out(
    proxy: DavProxy, things: DavThings, client: DavClient
) -> None:
    """What is there has all lines of it, as it only leaves one out."""
    made = await create_object(
        client, proxy.book, ServerObject(things.name("new"), "", things.make("new", "X-MORE:more"))
    )
    proxy.before = lambda asked: Answered(207) if asked.method == "PUT" else None
    with pytest.raises(DavError) as error:
        await replace_object(client, proxy.book, made, things.make("new"))
    assert error.value.state == "later"
    assert b"X-MORE" in proxy.server.objects()[things.name("new")]


@pytest.mark.parametrize("etag", ["", 'W/"1"'])
async def test_without_a_strong_etag_nothing_is_replaced(
    proxy: DavProxy, things: DavThings, client: DavClient, etag: str
) -> None:
    def weaken(_: Asked, answered: Answered) -> Answered:
        kept = {name: value for name, value in answered.headers.items() if name != "etag"}
        return Answered(answered.status, {**kept, **({"etag": etag} if etag else {})}, answered.body)

    proxy.after = weaken
    made = await create_object(client, proxy.book, ServerObject(things.name("new"), "", things.make("new")))
    assert [one.method for one in proxy.asked] == ["PUT", "GET"], "what the server has made of it is read back"
    with pytest.raises(DavError) as error:
        await replace_object(client, proxy.book, made, things.make("changed"))
    assert error.value.state == "unprotected"


@pytest.mark.parametrize(("status", "state"), [(402, "quota"), (507, "quota"), (423, "later"), (401, "login")])
async def test_a_refused_write_says_why(
    proxy: DavProxy, things: DavThings, client: DavClient, status: int, state: ServerState
) -> None:
    proxy.before = lambda _: Answered(status)
    with pytest.raises(DavError) as error:
        await create_object(client, proxy.book, ServerObject(things.name("new"), "", things.make("new")))
    assert error.value.state == state


@pytest.mark.parametrize(
    ("account", "place", "follows"),
    [
        ("https://contacts.icloud.com/", "https://p42-contacts.icloud.com:443/1/", True),
        ("https://ann.co.uk/", "https://dav.ann.co.uk/", True),
        ("https://ann.co.uk/", "https://eve.co.uk/", False),
        ("https://ann.duckdns.org/", "https://eve.duckdns.org/", False),
        ("https://ann.example/", "http://ann.example/", False),
        ("https://ann.example/", "//eve.example/", False),
        ("https://ann.example/", "https://ann.example.eve.test/", False),
        ("https://ann.example/", "https://eve:x@ann.example/", False),
        ("https://ann.example/", "https://ann.example:8443/", True),
        ("https://192.0.2.1/", "https://192.0.2.2/", False),
        ("http://localhost:5232/", "http://localhost:5233/", False),
        ("http://127.0.0.1:5232/", "/ann/", True),
    ],
)
def test_passwords_stay_within_the_site(account: str, place: str, follows: bool) -> None:
    start = start_of(account)
    if follows:
        assert next_of(start, place, start).host
    else:
        with pytest.raises(DavError) as error:
            next_of(start, place, start)
        assert error.value.state == "elsewhere"


def test_addresses_have_one_spelling() -> None:
    spellings = ("https://h.example/a%40b/%C3%BC", "https://h.example/a@b/ü/", "https://h.example/%61@b/ü")
    assert {path_of(start_of(one)) for one in spellings} == {"/a@b/%C3%BC"}
    for name in ("a b", "ü@ü.vcf", "a%2Fb", "a?b#c", "100%.vcf"):
        assert name_in(place_of(start_of("https://h.example/book/"), name)) == name
    with pytest.raises(DavError, match="unencrypted"):
        start_of("http://nas.example/")


@pytest.mark.parametrize(
    "body",
    [
        b'<!DOCTYPE a [<!ENTITY b "c">]><d:multistatus xmlns:d="DAV:">&b;</d:multistatus>',
        b'<?xml version="1.0" encoding="none"?><a/>',
        b"<a>" * 60,
        b"<a/>",
        b"",
    ],
)
def test_what_is_no_multistatus_is_refused(body: bytes) -> None:
    with pytest.raises(DavError) as error:
        multistatus_of(body)
    assert error.value.state == "unreadable"


def test_an_answer_of_tiny_elements_does_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("switchboard.transport.dav.multistatus._MOST_ELEMENTS", 100)
    body = b'<d:multistatus xmlns:d="DAV:">%s</d:multistatus>'
    assert multistatus_of(body % (b"<a/>" * 99)).responses == ()
    with pytest.raises(DavError, match="more than 50 levels or 100 elements"):
        multistatus_of(body % (b"<a/>" * 100))


async def test_what_a_mirror_remembers_of_another_site_gets_no_password() -> None:
    async with open_dav(DavLogin("https://dav.example.org", "ann", PASSWORD), CALDAV) as client:
        with pytest.raises(DavError) as error:
            await client.send(DavRequest("REPORT", httpx2.URL("https://dav.example.com/calendars/ann/")))
        assert error.value.state == "elsewhere"
