"""Pages as people use them: without script, by keyboard alone, further down a list; and what each role may see."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import httpx2
import pytest

from switchboard.app.access import Principal
from switchboard.server.web.page import WebForm, WebPage
from switchboard.server.web.pages import PAGES
from switchboard.transport.programs import death_guard
from tests.browser import PHONE
from tests.lab import envelope_json
from tests.servers import NO_TLS
from tests.web_forms import follow, reach
from tests.web_house import House, ids_in_paths, link_of, open_house, signed_in

MEMBER: Final = Principal("connector", "ann", "dashboard", "ann")
APPROVER: Final = Principal("approver", "ben")


@pytest.fixture
async def house(database_url: str, tmp_path: Path) -> AsyncIterator[House]:
    """A house with messages."""
    async with open_house(database_url, tmp_path / "data") as opened:
        yield opened


@pytest.mark.slow
async def test_on_a_phone_without_script_one_finds_a_message_and_signs_out(chromium: str, house: House) -> None:
    async with signed_in(chromium, house.server, PHONE, script=False) as tab:
        await tab.press(".menu-button")
        await tab.click(".menu a[href='/ui/messages']")
        assert await tab.evaluate("document.querySelector('h1').innerText") == "Messages"
        await tab.evaluate("document.querySelector('select[name=state]').value = 'dead'")
        await tab.click(".filters button")
        assert "When is the bin" not in await tab.text()
        assert "Order 4711" in await tab.text()
        await tab.click("#rows a.row")
        assert "Why it went where it went" in await tab.text()
        await tab.press(".menu-button")
        await tab.click(".themes button[value=dark]")
        assert await tab.evaluate("document.documentElement.dataset.theme") == "dark"
        assert "Why it went where it went" in await tab.text(), "it leads back to the same page"
        await tab.press(".menu-button")
        await tab.click(".signed-in button.plain")
        assert "switchboard open" in await tab.text()


@pytest.mark.slow
async def test_by_keyboard_alone_one_reads_why(chromium: str, house: House) -> None:
    async with signed_in(chromium, house.server) as tab:
        await tab.open(f"{house.server.url}/ui/messages")
        await tab.key("Tab")
        assert await tab.evaluate("document.activeElement.className") == "skip"
        await tab.key("Enter")
        for _ in range(12):
            await tab.key("Tab")
            if await tab.evaluate("document.activeElement.className") == "row":
                break
        assert await tab.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
        await tab.key("Enter")
        await tab.until("document.querySelector('#why') !== null")


READING: Final = (
    ("/", "ul.rows a.row", "#why"),
    ("/conversations", "#rows a.row", "[role=log]"),
    ("/plans", "#rows a.row", ".graph .step"),
    ("/audit", "#rows a.tag", "p.lead strong"),
    ("/messages?state=dead", "#rows a.row", "#why"),
    ("/approvals", "#rows a.row", "#what"),
    ("/strangers", "#rows a.row", "#who"),
    ("/dead-letters", "#rows a.row", "#why"),
)
"""A page, where its main task begins, and what is there then."""


@pytest.mark.slow
async def test_what_a_page_is_for_is_reached_by_keyboard_alone(chromium: str, house: House) -> None:
    async with signed_in(chromium, house.server, script=False) as tab:
        for path, begins, there in READING:
            await tab.open(f"{house.server.url}/ui{path}")
            await follow(tab, begins)
            assert await tab.evaluate(f"document.querySelector({json.dumps(there)}) !== null"), path
        for path in ("/models", "/doctor", "/sessions"):
            await tab.open(f"{house.server.url}/ui{path}")
            await reach(tab, ".skip")
            await tab.key("Enter")
            await tab.until("location.hash === '#content'")


@pytest.mark.slow
async def test_older_rows_are_added_below(chromium: str, house: House) -> None:
    """By htmx, whose elements bear a nonce, under a policy that lets nothing else send requests."""
    for n in range(60):
        await house.server.submit(envelope_json(f"number {n}", sender=f"person {n}"))
    async with signed_in(chromium, house.server) as tab:
        await tab.open(f"{house.server.url}/ui/messages")
        assert await tab.evaluate("document.querySelectorAll('#rows > li').length") == 50
        await tab.evaluate("window.stays = true")
        await tab.press("#pages a")
        await tab.until(f"document.querySelectorAll('#rows > li').length === {60 + len(house.ids)}")
        assert await tab.evaluate("window.stays")
        assert "When is the bin emptied?" in await tab.text()
        assert "No older ones." in await tab.text()
        assert tab.troubles == []
    async with signed_in(chromium, house.server, script=False) as tab:
        await tab.open(f"{house.server.url}/ui/messages")
        await tab.click("#pages a")
        assert await tab.evaluate("document.querySelectorAll('#rows > li').length") == 10 + len(house.ids)


def _path_of(page: WebPage, house: House, ids: dict[str, str]) -> str:
    written = {"request_id:uuid": str(house.ids["chat"])} if page.path.startswith("/chat/") else {}
    return re.sub(r"{([^}]+)}", lambda part: (ids | written)[part[1]], page.path)


async def test_each_role_sees_what_is_its_own(house: House) -> None:
    server, ids = house.server, await ids_in_paths(house)
    own = await server.submit(envelope_json("mine", channel="dashboard", provider="internal", endpoint="ann"))
    for whose in (MEMBER, APPROVER):
        await server.token_of(whose)
    async with httpx2.AsyncClient(base_url=server.url, verify=NO_TLS, timeout=30) as http:
        for name, role in (("ann", "connector"), ("ben", "approver"), (None, "operator")):
            await http.post((await link_of(server, name)).removeprefix(server.url), headers={"origin": server.url})
            for page in PAGES:
                if not isinstance(page, WebPage):
                    continue
                path = _path_of(page, house, ids)
                answer = await http.get(f"/ui{path}")
                if role not in page.needs.roles:
                    assert answer.status_code == (303 if path == "/" else 403), (role, path)
                elif role == "connector" and "{" in page.path:
                    assert answer.status_code == 404, (role, path)
                else:
                    assert answer.status_code in {200, 404}, (role, path)
                    listed = answer.text.partition('id="menu"')[2].partition("</ul>")[0]
                    assert not page.menu or ("/ui/doctor" in listed) is (role == "operator")
            if role == "connector":
                assert "mine" in (await http.get("/ui/messages")).text
                assert "When is the bin" not in (await http.get("/ui/messages")).text
                shown = (await http.get(f"/ui/messages/{own.json()['request_id']}")).text
                assert "What you wrote" in shown
            entries = (await server.http.get("/v1/audit")).json()["entries"]
            assert [one for one in entries if one["action"].startswith("refused:")] == [], "looking writes nothing"
        await http.post((await link_of(server, "ben")).removeprefix(server.url), headers={"origin": server.url})
        refused = await http.post("/ui/sessions/end-all", headers={"origin": server.url})
    assert refused.status_code == 403
    assert "This is for operators" in refused.text
    [entry] = (await server.http.get("/v1/audit", params={"action": "refused:web_sessions"})).json()["entries"]
    assert entry["actor"].startswith("ben (web: ")


async def test_a_page_writes_nothing(house: House) -> None:
    """Looking changes nothing: every page is made by a database that can only be read. Nor does it start a program."""
    server, ids = house.server, await ids_in_paths(house)
    death_guard.cache_clear()  # which is what opening the engine for programs asks for
    async with httpx2.AsyncClient(base_url=server.url, verify=NO_TLS, timeout=30) as http:
        await http.post((await link_of(server)).removeprefix(server.url), headers={"origin": server.url})
        name = await server.lab.database.value("select current_database()")
        await server.lab.database.run(f'alter database "{name}" set default_transaction_read_only = on')
        await server.lab.database.pool.expire_connections()
        try:
            for page in PAGES:
                if isinstance(page, WebForm):
                    continue
                path = _path_of(page, house, ids)
                answer = await http.get(f"/ui{path}", params={"name": "telegram/bot%3Ahouse/ann"})
                missing = "pictures" in path or path.startswith(("/replies/", "/connections/consents/"))
                assert answer.status_code == (404 if missing else 200), (path, answer.text)
            assert death_guard.cache_info().misses == 0, "no engine was opened that no butler here has"
        finally:
            async with server.lab.database.connection() as connection:
                await connection.execute("set default_transaction_read_only = off")
                await connection.execute(f'alter database "{name}" reset default_transaction_read_only')
            await server.lab.database.pool.expire_connections()
