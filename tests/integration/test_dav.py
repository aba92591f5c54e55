"""The client of CalDAV and CardDAV, against servers of others, and behind a proxy that does what servers have done."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

import httpx2
import pytest

from switchboard.transport.dav.client import DavClient, open_dav
from switchboard.transport.dav.discovery import find_collections, offers_scheduling
from switchboard.transport.dav.kinds import CALDAV, CARDDAV, DavError, DavLogin, DavState
from switchboard.transport.dav.multistatus import multistatus_of
from switchboard.transport.dav.places import name_in, next_of, path_of, place_of, start_of
from switchboard.transport.dav.reading import DavListing, DavObject, list_changes, read_objects
from switchboard.transport.dav.writing import create_object, delete_object, replace_object
from tests.dav_servers import PASSWORD, Answered, Asked, DavProxy, card, client, proxy, started

__all__ = ["client", "proxy", "started"]

PAGE = Answered(200, {"content-type": "text/html"}, b"<!doctype html><title>Log in</title>")
EMPTY = b'<?xml version="1.0"?><d:multistatus xmlns:d="DAV:"/>'


async def test_collections_are_found_from_any_address(proxy: DavProxy) -> None:
    for path in ("/", proxy.server.book, proxy.server.book.rstrip("/").replace("@", "%40"), "/nothing/here/"):
        async with open_dav(proxy.login(path), CARDDAV) as one:
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
        assert await offers_scheduling(one, calendar.url) == (proxy.server.name == "xandikos")
        scheduling = {"dav": "1, 2, calendar-access, Calendar-Auto-Schedule", "content-type": "text/html"}
        proxy.before = lambda asked: Answered(200, scheduling) if asked.method == "OPTIONS" else None
        assert await offers_scheduling(one, calendar.url), "PHP calls an empty answer HTML"


async def test_a_wrong_password_and_strange_servers_have_names(proxy: DavProxy) -> None:
    told: dict[str, DavState] = {}
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
        async with open_dav(proxy.login(), CARDDAV) as one:
            with pytest.raises(DavError) as error:
                await find_collections(one)
        told[name] = error.value.state
        assert PASSWORD not in str(error.value)
        if name == "503":
            assert error.value.retry_after == 7
    async with open_dav(DavLogin("http://127.0.0.1:1/", "ann", "x"), CARDDAV) as one:
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


async def test_changes_follow_a_token(proxy: DavProxy, client: DavClient) -> None:
    server = proxy.server
    for name in ("a b@c.vcf", "ü.vcf", "kept.vcf"):
        server.put(name, card(name))
    first = await list_changes(client, proxy.book, "")
    assert first.whole
    assert set(first.etags) == {"a b@c.vcf", "ü.vcf", "kept.vcf"}
    server.delete("a b@c.vcf")
    server.put("ü.vcf", card("changed", uid="ü.vcf"))
    later = await list_changes(client, proxy.book, first.cursor)
    assert (set(later.etags), later.gone, later.whole) == ({"ü.vcf"}, frozenset({"a b@c.vcf"}), False)
    assert await list_changes(client, proxy.book, later.cursor) == DavListing({}, cursor=later.cursor)


@pytest.mark.parametrize("status", [400, 403, 404, 410, 412, 415, 500, 507])
async def test_a_lost_token_means_that_all_is_listed(proxy: DavProxy, client: DavClient, status: int) -> None:
    proxy.server.put("a.vcf", card("a"))
    proxy.before = lambda asked: Answered(status) if asked.method == "REPORT" else None
    found = await list_changes(client, proxy.book, "urn:lost")
    assert (found.whole, set(found.etags)) == (True, {"a.vcf"})
    assert found.cursor not in ("", "urn:lost")


@pytest.mark.parametrize("answered", [Answered(401), PAGE, Answered(503), Answered(429), None], ids=str)
async def test_a_sync_that_fails_says_nothing_of_deletions(
    proxy: DavProxy, client: DavClient, answered: Answered | None
) -> None:
    proxy.server.put("a.vcf", card("a"))
    token = (await list_changes(client, proxy.book, "")).cursor
    proxy.asked.clear()
    proxy.after = lambda _, __: answered
    with pytest.raises(DavError) as error:
        await list_changes(client, proxy.book, token)
    assert error.value.state in ("login", "login_page", "later")
    assert [one.method for one in proxy.asked] == ["REPORT"], "the question is not asked again without the token"


async def test_an_answer_that_is_cut_short_goes_on(proxy: DavProxy, client: DavClient) -> None:
    token = (await list_changes(client, proxy.book, "")).cursor
    proxy.server.put("a.vcf", card("a"))
    proxy.before = lambda asked: _page_of(proxy, asked)
    found = await list_changes(client, proxy.book, token)
    assert set(found.etags) == {"first.vcf", "a.vcf"}
    assert found.cursor not in ("", "urn:next", token)

    def stuck(asked: Asked) -> Answered | None:
        return _page_of(proxy, asked, "urn:next") if asked.method == "REPORT" else None

    proxy.before = stuck
    assert (await list_changes(client, proxy.book, token)).whole, "a server that goes on for ever is listed"


def _page_of(proxy: DavProxy, asked: Asked, always: str = "") -> Answered | None:
    """The first page ends with 507; the next token is the real one, for the server."""
    if b"urn:next" in asked.body and not always:
        real = asked.body.replace(b"urn:next", b"")
        return proxy.answer_of_server(
            Asked(asked.method, asked.path, dict(asked.headers) | {"content-length": str(len(real))}, real)
        )
    body = (
        f'<d:multistatus xmlns:d="DAV:"><d:response><d:href>{proxy.server.book}first.vcf</d:href><d:propstat><d:prop>'
        f"<d:getetag>&quot;1&quot;</d:getetag></d:prop><d:status>HTTP/1.1 200 OK</d:status></d:propstat></d:response>"
        f"<d:response><d:href>{proxy.server.book}</d:href><d:status>HTTP/1.1 507 x</d:status></d:response>"
        f"<d:sync-token>urn:next</d:sync-token></d:multistatus>"
    )
    return Answered(207, {"content-type": "application/xml"}, body.encode())


@pytest.mark.parametrize("spoiled", ["empty", "not XML", "too large"])
async def test_one_object_that_cannot_be_read_spoils_no_other(proxy: DavProxy, client: DavClient, spoiled: str) -> None:
    names = [f"{number}.vcf" for number in range(7)]
    for name in names:
        proxy.server.put(name, card(name))

    def spoil(asked: Asked, answered: Answered) -> Answered:
        if asked.method == "GET" and asked.path.endswith("/3.vcf") and spoiled == "too large":
            return Answered(200, {}, b"x" * 1_000_001)
        if asked.method == "REPORT" and b"/3.vcf" in asked.body:
            return Answered(207, {}, {"empty": EMPTY, "not XML": b"<a>\x0b", "too large": b" " * 16_000_001}[spoiled])
        return answered

    proxy.after = spoil
    found = await read_objects(client, proxy.book, [*names, "never.vcf"])
    assert {one.name for one in found.objects} | set(found.unreadable) == set(names)
    assert set(found.unreadable) == ({"3.vcf"} if spoiled == "too large" else set())
    assert found.gone == {"never.vcf"}


async def test_an_empty_answer_is_no_empty_collection(proxy: DavProxy, client: DavClient) -> None:
    proxy.server.put("a.vcf", card("a"))
    proxy.before = lambda asked: Answered(207, {}, EMPTY) if asked.headers.get("depth") == "1" else None
    found = await list_changes(client, proxy.book, "")
    assert (found.whole, found.complete, found.cursor) == (False, False, "")


async def test_a_write_loses_against_another_client_and_says_so(proxy: DavProxy, client: DavClient) -> None:
    made = await create_object(client, proxy.book, DavObject("new.vcf", "", card("new")))
    assert await create_object(client, proxy.book, DavObject("new.vcf", "", card("new"))) == made
    proxy.server.put("new.vcf", card("theirs", uid="new"))
    for write in _writes(client, proxy, made):
        with pytest.raises(DavError) as error:
            await write()
        assert error.value.state == "changed"
    assert b"theirs" in proxy.server.objects()["new.vcf"]


def _writes(client: DavClient, proxy: DavProxy, old: DavObject) -> tuple[Callable[[], Awaitable[object]], ...]:
    return (
        lambda: create_object(client, proxy.book, DavObject("new.vcf", "", card("other"))),
        lambda: replace_object(client, proxy.book, old, card("ours", uid="new")),
        lambda: delete_object(client, proxy.book, old),
    )


async def test_a_write_whose_answer_is_lost_was_carried_out_once(proxy: DavProxy, client: DavClient) -> None:
    def cut(asked: Asked, answered: Answered) -> Answered | None:
        return answered if asked.method in ("GET", "PROPFIND") else None

    proxy.after = cut
    made = await create_object(client, proxy.book, DavObject("new.vcf", "", card("new")))
    changed = await replace_object(client, proxy.book, made, card("changed", uid="new"))
    assert b"changed" in proxy.server.objects()["new.vcf"]
    await delete_object(client, proxy.book, changed)
    assert proxy.server.names() == []
    proxy.after = lambda _, __: None
    with pytest.raises(DavError) as error:
        await create_object(client, proxy.book, DavObject("new.vcf", "", card("new")))
    assert error.value.state == "unknown"


@pytest.mark.parametrize("etag", ["", 'W/"1"'])
async def test_without_a_strong_etag_nothing_is_replaced(proxy: DavProxy, client: DavClient, etag: str) -> None:
    def weaken(_: Asked, answered: Answered) -> Answered:
        kept = {name: value for name, value in answered.headers.items() if name != "etag"}
        return Answered(answered.status, {**kept, **({"etag": etag} if etag else {})}, answered.body)

    proxy.after = weaken
    made = await create_object(client, proxy.book, DavObject("new.vcf", "", card("new")))
    assert [one.method for one in proxy.asked] == ["PUT", "GET"], "what the server has made of it is read back"
    with pytest.raises(DavError) as error:
        await replace_object(client, proxy.book, made, card("changed"))
    assert error.value.state == "unprotected"


@pytest.mark.parametrize(("status", "state"), [(402, "quota"), (507, "quota"), (423, "later"), (401, "login")])
async def test_a_refused_write_says_why(proxy: DavProxy, client: DavClient, status: int, state: DavState) -> None:
    proxy.before = lambda _: Answered(status)
    with pytest.raises(DavError) as error:
        await create_object(client, proxy.book, DavObject("new.vcf", "", card("new")))
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
