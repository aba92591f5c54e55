"""Signing in on the page: who gets in, how, until when, and that nobody else does."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest

from switchboard.app import web_sessions
from switchboard.app.access import Principal
from switchboard.app.cursors import cursor_after
from switchboard.app.web_sessions import WebSessions
from switchboard.store.people import tokens
from tests.servers import AGENT, CONNECTOR, NO_TLS, Opened, open_server
from tests.web_house import OPERATOR, link_of

SIGN_IN: Final = "<h1>Sign in</h1>"
APPROVER: Final = Principal("approver", "ben")
MEMBER: Final = Principal("connector", "ann", "dashboard", "ann")


class Browser:
    """Cookies and headers as a browser sends them, without one."""

    def __init__(self, server: Opened) -> None:
        self.server = server
        self.http = httpx2.AsyncClient(base_url=server.url, timeout=30, verify=NO_TLS)
        self.name = f"sb_session_{server.url.rpartition(':')[2]}"

    @property
    def own(self) -> Mapping[str, str]:
        """What a browser says of a form of ours."""
        return {"origin": self.server.url, "sec-fetch-site": "same-origin"}

    async def get(self, path: str, **headers: str) -> httpx2.Response:
        return await self.http.get(path, headers=headers)

    async def post(self, path: str, data: Mapping[str, str] | None = None, **headers: str) -> httpx2.Response:
        told = {**self.own, **{name.replace("_", "-"): value for name, value in headers.items()}}
        return await self.http.post(path, data=dict(data or {}), headers={n: v for n, v in told.items() if v})

    async def enter(self, name: str | None = None) -> httpx2.Response:
        """Sign in by a link, by default as the operator."""
        return await self.post((await link_of(self.server, name)).removeprefix(self.server.url))

    def take_cookie(self, secret: str) -> None:
        self.http.cookies.clear()
        self.http.cookies.set(self.name, secret, path="/ui")

    async def is_in(self) -> bool:
        """Whether a page is shown."""
        answer = await self.get("/ui/audit")
        assert answer.status_code == HTTPStatus.OK, answer.text
        return SIGN_IN not in answer.text


@asynccontextmanager
async def browsing(server: Opened) -> AsyncIterator[Browser]:
    browser = Browser(server)
    async with browser.http:
        yield browser


@pytest.fixture
async def browser(server: Opened) -> AsyncIterator[Browser]:
    """One that nobody has signed in."""
    async with browsing(server) as opened:
        yield opened


# Getting in ----------------------------------------------------------------------------------------------------------


async def test_a_link_shows_whom_it_signs_in_and_its_button_does_once(browser: Browser) -> None:
    path = (await link_of(browser.server)).removeprefix(browser.server.url)
    for _ in range(3):  # as previews and scanners do
        shown = await browser.get(path)
        assert "Sign in as" in shown.text
        assert "operator-1" in shown.text
    assert not await browser.is_in()
    entered = await browser.post(path)
    assert (entered.status_code, entered.headers["location"]) == (HTTPStatus.SEE_OTHER, "/ui/")
    cookie = entered.headers["set-cookie"].lower()
    assert browser.name in cookie
    assert {"httponly", "samesite=strict", "path=/ui"} <= {part.strip() for part in cookie.split(";")}
    assert await browser.is_in()
    browser.http.cookies.clear()
    assert (await browser.post(path)).status_code == HTTPStatus.NOT_FOUND
    assert not await browser.is_in()


@pytest.mark.parametrize(("whose", "first"), [(MEMBER, "chat"), (APPROVER, "approvals")], ids=["member", "approver"])
async def test_a_link_leads_to_the_first_page_of_ones_own(browser: Browser, whose: Principal, first: str) -> None:
    await browser.server.token_of(whose)
    entered = await browser.enter(whose.name)
    led = await browser.get(entered.headers["location"])
    assert (led.status_code, led.headers["location"]) == (HTTPStatus.SEE_OTHER, f"/ui/{first}")
    assert (await browser.get(led.headers["location"])).status_code == HTTPStatus.OK


async def test_a_token_that_is_entered_leads_back(browser: Browser) -> None:
    asked = await browser.get("/ui/audit?action=web%3Alink")
    assert asked.status_code == HTTPStatus.OK
    assert 'value="/ui/audit?action=web%3Alink"' in asked.text
    data = {"token": browser.server.token, "back": "/ui/audit?action=web%3Alink"}
    entered = await browser.post("/ui/enter", data)
    assert entered.headers["location"] == "/ui/audit?action=web%3Alink"
    assert await browser.is_in()


@pytest.mark.parametrize(
    "back",
    [
        *("https://evil.example/", "//evil.example", "/ui//evil.example", "/ui/\\evil", "/v1", ""),
        *("/ui/../docs", "/ui/%2E%2e/docs", "/ui/.%2e//evil.example"),
    ],
)
async def test_the_way_back_is_one_of_our_pages(browser: Browser, back: str) -> None:
    entered = await browser.post("/ui/enter", {"token": browser.server.token, "back": back})
    assert entered.headers["location"] == "/ui/"


@pytest.mark.parametrize("whose", [CONNECTOR, AGENT, Principal("metrics", "prometheus")], ids=lambda one: one.role)
async def test_tokens_of_programs_open_no_page(browser: Browser, whose: Principal) -> None:
    token = await browser.server.token_of(whose)
    answer = await browser.post("/ui/enter", {"token": token})
    assert answer.status_code == HTTPStatus.UNPROCESSABLE_ENTITY
    assert "set-cookie" not in answer.headers
    refused = await browser.server.http.post("/v1/web/links", json={"name": whose.name})
    assert refused.status_code == HTTPStatus.CONFLICT


async def test_who_guesses_is_slowed_down(browser: Browser) -> None:
    for n in range(10):
        assert (await browser.get(f"/ui/enter/wrong-{n}")).status_code == HTTPStatus.NOT_FOUND
    path = (await link_of(browser.server)).removeprefix(browser.server.url)
    assert (await browser.post(path)).status_code == HTTPStatus.TOO_MANY_REQUESTS
    assert (await browser.post("/ui/enter", {"token": "sb_o_x"})).status_code == HTTPStatus.TOO_MANY_REQUESTS


async def test_a_page_elsewhere_lets_nobody_wait(browser: Browser) -> None:
    """It can make a browser ask for pictures here, as many as it likes."""
    for n in range(12):
        told = {"sec-fetch-site": "cross-site", "sec-fetch-dest": "image"}
        assert (await browser.get(f"/ui/enter/wrong-{n}", **told)).status_code == HTTPStatus.FORBIDDEN
    assert (await browser.enter()).status_code == HTTPStatus.SEE_OTHER


async def test_a_name_without_a_token_is_a_new_member(browser: Browser) -> None:
    await browser.enter("ann")
    assert (await browser.get("/ui/audit")).status_code == HTTPStatus.FORBIDDEN
    [found] = [one for one in await tokens.list_tokens(browser.server.lab.database) if one.name == "ann"]
    assert (found.role, found.channel, found.endpoint) == ("connector", "dashboard", "ann")


# Getting out ---------------------------------------------------------------------------------------------------------


async def test_a_revoked_token_shows_nothing_more(browser: Browser) -> None:
    await browser.server.token_of(APPROVER)
    await browser.enter("ben")
    assert (await browser.get("/ui/audit")).status_code == HTTPStatus.FORBIDDEN
    await tokens.revoke(browser.server.lab.database, "ben")
    assert not await browser.is_in()


@pytest.mark.parametrize(
    "change",
    [
        "update web_session set expires_at = now()",
        "update web_session set used_at = now() - interval '7 days 1 minute'",
        "update token set expires_at = now()",
    ],
)
async def test_a_session_ends_by_itself(browser: Browser, change: str) -> None:
    await browser.enter()
    await browser.server.lab.database.run(change)
    assert not await browser.is_in()


async def test_an_operator_sees_who_is_signed_in_and_ends_it(browser: Browser) -> None:
    await browser.enter()
    [found] = (await browser.server.http.get("/v1/web/sessions")).json()["sessions"]
    assert (found["name"], found["role"], found["label"]) == ("operator-1", "operator", "a browser")
    assert (await browser.server.http.delete(f"/v1/web/sessions/{found['session_id']}")).status_code == HTTPStatus.OK
    assert not await browser.is_in()
    assert (await browser.server.http.delete(f"/v1/web/sessions/{found['session_id']}")).status_code == 404


async def test_of_too_many_browsers_that_which_was_unused_for_longest_ends(
    browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web_sessions, "MOST_SESSIONS", 3)
    secrets = []
    for _ in range(3):
        await browser.enter()
        secrets.append(browser.http.cookies[browser.name])
    first = await WebSessions(browser.server.lab.database, browser.server.access).find_visitor(secrets[0])
    assert first is not None
    used = "update web_session set used_at = clock_timestamp() where session_id = $1"
    await browser.server.lab.database.run(used, first.session.session_id)
    await browser.enter()
    for secret, held in zip(secrets, (True, False, True), strict=True):
        browser.take_cookie(secret)
        assert await browser.is_in() is held
    [last, *_] = (await browser.server.http.get("/v1/audit", params={"action": "web:signed_in"})).json()["entries"]
    assert last["detail"]["ended"] == 1


async def test_signing_out_ends_the_session_not_only_the_cookie(browser: Browser) -> None:
    await browser.enter()
    secret = browser.http.cookies[browser.name]
    token = await form_token(browser, "/leave")
    assert (await browser.post("/ui/leave", {"form_token": token})).status_code == HTTPStatus.SEE_OTHER
    browser.take_cookie(secret)
    assert not await browser.is_in()


async def form_token(browser: Browser, path: str) -> str:
    """The one that the page puts into its form for `path`."""
    page = (await browser.get("/ui/audit")).text
    form = page[page.index(f'action="/ui{path}"') :]
    return form.partition('name="form_token" value="')[2].partition('"')[0]


async def test_only_hashes_are_kept_and_links_that_are_over_are_removed(browser: Browser) -> None:
    database = browser.server.lab.database
    sessions = WebSessions(database, browser.server.access)
    await browser.enter()
    link = await sessions.make_link(OPERATOR)
    rows = await database.rows("select s::text as row from web_session s union all select l::text from web_link l")
    told = "".join(row["row"] for row in rows)
    assert browser.http.cookies[browser.name] not in told
    assert link.path.rpartition("/")[2] not in told
    await database.run("update web_link set expires_at = now()")
    await database.run("update web_session set expires_at = now()")
    await sessions.make_link(OPERATOR)
    assert await database.value("select count(*) from web_link") == 1
    assert await database.value("select count(*) from web_session") == 0


# Attempts ------------------------------------------------------------------------------------------------------------

_FOREIGN: Final[tuple[Mapping[str, str], ...]] = (
    {"origin": "http://127.0.0.1:1", "sec-fetch-site": "same-site"},  # another program on this machine
    {"origin": "http://127.0.0.1:1"},
    {"origin": "http://localhost:1", "sec-fetch-site": "cross-site"},
    {"origin": "https://evil.example", "sec-fetch-site": "cross-site"},
    {"origin": "null", "sec-fetch-site": "same-origin"},
    {"origin": ""},
    {"origin": "", "sec-fetch-site": ""},
    {"origin": "http://127.0.0.1"},
    {"origin": "https://OURS"},
    {"origin": "http://evil@OURS"},
    {"origin": "http://OURS.evil.example"},
    {"sec-fetch-site": "same-site"},
    {"sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "none"},
)
_POSTED: Final = ("/ui/leave", "/ui/theme", "/ui/enter", "LINK")


@pytest.mark.parametrize("path", _POSTED)
async def test_a_form_of_another_page_does_nothing(browser: Browser, path: str) -> None:
    await browser.enter()
    token = await form_token(browser, path.removeprefix("/ui")) if path in {"/ui/leave", "/ui/theme"} else ""
    if path == "LINK":
        path = (await link_of(browser.server)).removeprefix(browser.server.url)
    ours = browser.server.url.removeprefix("http://")
    for foreign in _FOREIGN:
        headers = {name.replace("-", "_"): value.replace("OURS", ours) for name, value in foreign.items()}
        data = {"form_token": token, "token": browser.server.token, "theme": "dark"}
        answer = await browser.post(path, data, **headers)
        assert answer.status_code == HTTPStatus.FORBIDDEN, foreign
        assert "set-cookie" not in answer.headers
    assert await browser.is_in()


async def test_a_form_needs_the_token_of_this_session_and_form(browser: Browser) -> None:
    await browser.enter()
    other = await form_token(browser, "/theme")
    async with browsing(browser.server) as second:
        await second.enter()
        foreign = await form_token(second, "/leave")
    for wrong in ("", "x", other, foreign, "0" * 64):
        assert (await browser.post("/ui/leave", {"form_token": wrong})).status_code == HTTPStatus.FORBIDDEN
    assert await browser.is_in()


async def test_a_cookie_that_another_program_adds_signs_out(browser: Browser) -> None:
    await browser.enter()
    secret = browser.http.cookies[browser.name]
    browser.http.cookies.clear()
    for tossed in (
        f"{browser.name}=TOSSED; {browser.name}={secret}",
        f"{browser.name}={secret}; {browser.name}={secret}",
        f"{browser.name}=",
        f"{browser.name}=wrong",
        f"sb_session_1={secret}",
        f"{browser.name.upper()}={secret}",
    ):
        assert SIGN_IN in (await browser.get("/ui/audit", cookie=tossed)).text, tossed


async def test_a_session_opens_nothing_but_pages_and_a_token_no_page(browser: Browser) -> None:
    await browser.enter()
    secret = browser.http.cookies[browser.name]
    cookie = {"cookie": f"{browser.name}={secret}"}
    async with httpx2.AsyncClient(base_url=browser.server.url, verify=NO_TLS) as http:
        for path in ("/v1/messages", "/v1/audit", "/metrics", "/v1/web/sessions"):
            assert (await http.get(path, headers=cookie)).status_code == HTTPStatus.UNAUTHORIZED
            bearer = {"authorization": f"Bearer {secret}"}
            assert (await http.get(path, headers=bearer)).status_code == HTTPStatus.UNAUTHORIZED
        told: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        assert (await http.post("/mcp", json=told, headers=cookie)).status_code == HTTPStatus.UNAUTHORIZED
        token = {"authorization": f"Bearer {browser.server.token}"}
        assert SIGN_IN in (await http.get("/ui/audit", headers=token)).text


@pytest.mark.parametrize(
    ("headers", "shown"),
    [
        ({"host": "localhost"}, True),
        ({"host": "127.0.0.1:8470"}, True),
        ({"host": "[::1]:8470"}, True),
        ({"host": "a.localhost"}, True),
        ({"host": "192.168.1.5:8470"}, False),
        ({"host": "house.example"}, False),
        ({"host": "localhost", "x-forwarded-for": "203.0.113.5"}, False),
        ({"host": "localhost", "x-forwarded-proto": "https"}, False),
        ({"host": "localhost", "forwarded": "for=203.0.113.5"}, False),
    ],
)
async def test_over_plain_http_pages_are_shown_on_this_machine_only(
    database_url: str, tmp_path: Path, headers: Mapping[str, str], shown: bool
) -> None:
    more = {"public_names": ("house.example",)}
    async with open_server(database_url, tmp_path / "data", more=more) as server, browsing(server) as browser:
        answer = await browser.get("/ui/audit", **headers)
        assert (SIGN_IN in answer.text) is shown
        assert ("needs https here" in answer.text) is not shown


async def test_behind_a_trusted_proxy_https_is_believed_and_cookies_are_secure(
    database_url: str, tmp_path: Path
) -> None:
    more = {"public_url": "https://house.example", "trusted_proxies": ("127.0.0.1",)}
    async with open_server(database_url, tmp_path / "data", more=more) as server, browsing(server) as browser:
        proxied = {"host": "house.example", "x_forwarded_proto": "https", "x_forwarded_for": "203.0.113.5"}
        path = (await link_of(server)).removeprefix(server.url)
        entered = await browser.post(path, None, origin="https://house.example", **proxied)
        assert entered.status_code == HTTPStatus.SEE_OTHER
        assert "; secure" in entered.headers["set-cookie"].lower()
        plain = {**proxied, "x_forwarded_proto": "http"}
        assert (
            "needs https here" in (await browser.get("/ui/", **{k.replace("_", "-"): v for k, v in plain.items()})).text
        )


async def test_a_rebound_name_is_refused(browser: Browser) -> None:
    assert (await browser.get("/ui/", host="evil.example")).status_code == HTTPStatus.MISDIRECTED_REQUEST


async def test_every_answer_forbids_framing_keeping_and_foreign_scripts(browser: Browser) -> None:
    pages = [await browser.get(path) for path in ("/ui/", "/ui/nothing", "/ui/enter/wrong")]
    await browser.enter()
    pages += [await browser.get(path) for path in ("/ui/audit", "/ui/nothing", f"/ui/{'x' * 2000}")]
    refused = [await browser.http.request(method, "/ui/audit") for method in ("PUT", "DELETE", "PATCH", "OPTIONS")]
    assert {one.status_code for one in refused} == {HTTPStatus.METHOD_NOT_ALLOWED}
    pages += refused
    nonces = set()
    for page in pages:
        policy = page.headers["content-security-policy"]
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert page.headers["cache-control"] == "no-store"
        nonces.add(policy.partition("'nonce-")[2].partition("'")[0])
    assert len(nonces) == len(pages)


async def test_a_browser_from_another_site_looks_again_for_its_cookie(browser: Browser) -> None:
    first = await browser.get("/ui/audit", **{"sec-fetch-site": "cross-site"})
    assert 'content="0; url=/ui/audit?again=1"' in first.text
    for known in ({"sec-fetch-site": "none"}, {"sec-fetch-site": "same-origin"}):
        assert "refresh" not in (await browser.get("/ui/audit", **known)).text
    assert "refresh" not in (await browser.get("/ui/audit?again=1", **{"sec-fetch-site": "cross-site"})).text


async def test_a_session_lasts_thirty_days(browser: Browser) -> None:
    await browser.enter()
    lasts = await browser.server.lab.database.value("select max(expires_at - created_at) from web_session")
    assert timedelta(days=29, hours=23) < lasts <= timedelta(days=30)


# What no browser sends ------------------------------------------------------------------------------------------------

_MULTIPART: Final = "multipart/form-data; boundary=x"
_PART: Final = '--x\r\ncontent-disposition: form-data; name="form_token"'
_NO_FORMS: Final[Mapping[str, tuple[str, str]]] = {
    "too many fields": ("application/x-www-form-urlencoded", "&".join(f"f{n}=1" for n in range(300))),
    "a file": (_MULTIPART, f'{_PART}; filename="b"\r\n\r\nz\r\n--x--\r\n'),
    "half a character": (f"{_MULTIPART}; charset=utf-7", f"{_PART}\r\n\r\n+2AA-\r\n--x--\r\n"),
    "no parts": (_MULTIPART, "zzz"),
    "JSON": ("application/json", "{}"),
}


@pytest.mark.parametrize("kind", _NO_FORMS)
async def test_what_is_no_form_is_refused_and_no_error_of_ours(browser: Browser, kind: str) -> None:
    await browser.enter()
    media_type, body = _NO_FORMS[kind]
    for path in ("/ui/enter", "/ui/theme"):
        headers = {**browser.own, "content-type": media_type}
        answer = await browser.http.post(path, content=body, headers=headers)
        assert answer.status_code == HTTPStatus.UNPROCESSABLE_ENTITY


_BEFORE_TIME: Final = cursor_after("0001-01-01T00:00:00+23:59", "00000000-0000-0000-0000-000000000000")


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/ui/messages?channel=%00", 422),
        ("/ui/audit?action=a%00b", 422),
        ("/ui/dead-letters/many?which=all&team=%00", 422),
        ("/ui/conversations/one?name=%00", 422),
        (f"/ui/approvals?cursor={_BEFORE_TIME}", 422),
        (f"/ui/strangers?cursor={_BEFORE_TIME}", 422),
        (f"/ui/messages/00000000-0000-0000-0000-000000000000/pictures/{'9' * 5000}", 404),
        (f"/ui/{'a' * 5000}", 404),
    ],
)
async def test_an_address_that_nobody_made_is_no_error_of_ours(browser: Browser, path: str, status: int) -> None:
    await browser.enter()
    assert (await browser.get(path)).status_code == status
