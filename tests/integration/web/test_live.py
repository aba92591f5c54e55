"""What is live: bells over a stream, parts of pages that follow them, and pages that say when they are not live."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, cast
from uuid import UUID

import httpx2
import pytest

from switchboard.app.access import Principal
from switchboard.app.pulse import BELLS, Pulse
from switchboard.app.web_sessions import WebSessions
from switchboard.server.web.live import MOST_STREAMS
from switchboard.store.database import Database, Row
from switchboard.store.ids import new_uuid7
from tests.browser import PHONE, SOON, open_another
from tests.lab import envelope_json
from tests.servers import NO_TLS, Opened, open_server
from tests.waiting import eventually
from tests.web_house import House, link_of, open_house, signed_in
from tests.width import wide

APPROVER: Final = Principal("approver", "ben")
MEMBER: Final = Principal("connector", "ann-writes", "dashboard", "ann")
STREAM: Final = "/ui/events"
BAR: Final = "document.getElementById('live').innerText"
ROWS: Final = "[...document.querySelectorAll('#found .rows > li')].map(row => row.id)"
NEWER: Final = "document.querySelector('.newer')?.innerText"
_SEEN: Final = (
    "Object.defineProperty(document, 'hidden', {value: %s, configurable: true});"
    " document.dispatchEvent(new Event('visibilitychange'))"
)
"""The browser of tests has no windows that could hide each other."""
_HIDDEN_MS: Final = wide(60_000, 0)
_READY: Final = "performance.getEntriesByType('resource').some(one => one.name.endsWith('/ui/waiting'))"
"""What is fetched again when the stream has been opened."""


@pytest.fixture
async def house(database_url: str, tmp_path: Path) -> AsyncIterator[House]:
    """A house with messages."""
    async with open_house(database_url, tmp_path / "data") as opened:
        yield opened


@pytest.fixture
async def server(database_url: str, tmp_path: Path) -> AsyncIterator[Opened]:
    """One whose butlers answer."""
    async with open_server(database_url, tmp_path / "data", worker=True) as opened:
        yield opened


class Listener:
    """The events of a stream, as they come."""

    def __init__(self, lines: AsyncIterator[str]) -> None:
        self._lines = lines

    async def next(self) -> tuple[str, list[str]]:
        """The next event but pings, and its words."""
        async with asyncio.timeout(SOON):
            while True:
                name = (await anext(self._lines)).removeprefix("event: ")
                words = (await anext(self._lines)).removeprefix("data:").split()
                await anext(self._lines)
                if name != "ping":
                    return name, words

    async def hear(self, bell: str) -> None:
        """Wait until this bell rings."""
        while bell not in (await self.next())[1]:
            pass


@asynccontextmanager
async def entered(server: Opened, name: str | None = None) -> AsyncIterator[httpx2.AsyncClient]:
    """A browser without script in which somebody has signed in."""
    async with httpx2.AsyncClient(base_url=server.url, timeout=30, verify=NO_TLS) as http:
        path = (await link_of(server, name)).removeprefix(server.url)
        assert (await http.post(path, headers={"origin": server.url})).status_code == 303
        yield http


@asynccontextmanager
async def listening(http: httpx2.AsyncClient) -> AsyncIterator[Listener]:
    """A stream from its beginning."""
    async with http.stream("GET", STREAM) as answer:
        assert answer.headers["content-type"] == "text/event-stream"
        yield Listener(answer.aiter_lines())


async def _first_of(server: Opened, path: str) -> dict[str, Any]:
    answer = (await server.http.get(f"/v1/{path}")).json()
    return cast(dict[str, Any], next(value for value in answer.values() if isinstance(value, list))[0])


async def _write(server: Opened) -> httpx2.Response:
    return await server.submit(envelope_json("Good morning", sender="ann", thread="ann"))


async def _come_as_stranger(server: Opened) -> httpx2.Response:
    return await server.submit(envelope_json("Hello", endpoint="bot:door", sender="otto", thread="otto"))


async def _close_letter(server: Opened) -> httpx2.Response:
    one = await _first_of(server, "dead-letters")
    return await server.http.post(f"/v1/dead-letters/{one['dead_letter_id']}/handle", json={"resolution": "done"})


async def _refuse(server: Opened) -> httpx2.Response:
    one = await _first_of(server, "approvals")
    return await server.http.post(f"/v1/approvals/{one['approval_id']}/refuse", json={"digest": one["digest"]})


async def _add_rule(server: Opened) -> httpx2.Response:
    rule = {"team_id": "root", "name": "late", "channel": "api", "targets": [{"system_id": "System1/post"}]}
    return await server.http.post("/v1/rules", json={**rule, "reason": "r"})


CAUSES: Final[Mapping[str, Callable[[Opened], Awaitable[httpx2.Response]]]] = {
    "messages": _write,
    "connections": _come_as_stranger,
    "dead": _close_letter,
    "approvals": _refuse,
    "rules": _add_rule,
}
"""Plans go on with the approval."""


async def test_a_stream_is_asked_for_without_a_body(house: House) -> None:
    async with entered(house.server) as http, asyncio.timeout(SOON):
        for path in (STREAM, f"/ui/chat/{house.ids['chat']}/stream"):
            assert (await http.request("GET", path, content=b"x")).status_code == 422


async def test_each_bell_rings_for_those_who_may_see_what_is_new(house: House) -> None:
    """A member hears of no message of others, and one who approves of nothing else."""
    assert BELLS - CAUSES.keys() == {"plans"}
    server = house.server
    await server.token_of(APPROVER)
    async with AsyncExitStack() as stack:
        browsers = [await stack.enter_async_context(entered(server, name)) for name in (None, "ben", "ann")]
        streams = [await stack.enter_async_context(listening(one)) for one in browsers]
        for one in streams:
            assert (await one.next())[0] == "live"
        operator, approver, member = streams
        for bell, cause in CAUSES.items():
            answer = await cause(server)
            assert answer.is_success, (bell, answer.text)
            await operator.hear(bell)
        await server.submit(envelope_json("To Rome?", channel="cli", endpoint="terminal", sender="ann"))
        await operator.hear("plans")
        assert await approver.next() == ("bells", ["approvals"])
        envelope = envelope_json("mine", channel="dashboard", provider="internal", endpoint="ann", sender="ann")
        assert (await server.submit(envelope, **await server.token_for(MEMBER))).is_success
        assert await member.next() == ("bells", ["messages"])
        assert "mine" in (await browsers[2].get("/ui/messages")).text


async def test_a_stream_ends_with_its_session_and_with_the_server(server: Opened) -> None:
    async with entered(server) as http, entered(server) as other:
        async with listening(http) as stream:
            await stream.next()
            own = (await server.http.get("/v1/web/sessions")).json()["sessions"][-1]
            assert (await server.http.delete(f"/v1/web/sessions/{own['session_id']}")).is_success
            assert await stream.next() == ("signed-out", [])
        async with listening(http) as stream:
            assert await stream.next() == ("signed-out", [])
        async with listening(other) as stream:
            await stream.next()
            server.stop.set()
            with pytest.raises(StopAsyncIteration):
                await stream.next()


class Looked(Database):
    """Counts how often it is looked at."""

    looks = 0

    async def row(self, sql: str, *args: object) -> Row | None:
        self.looks += 1
        return await super().row(sql, *args)


async def _nothing_runs_but(known: set[asyncio.Task[Any]]) -> bool:
    return asyncio.all_tasks() <= known


async def test_while_nobody_watches_nothing_is_looked_at(server: Opened) -> None:
    """One looks for all who watch, and stops with the last of them."""
    database = Looked(server.lab.database.url, server.lab.database.pool)
    session, before = new_uuid7(), asyncio.all_tasks()
    pulse = Pulse(database, WebSessions(database, server.access))
    async with pulse.watch(session, BELLS) as one:
        async with pulse.watch(session, BELLS):
            assert len(asyncio.all_tasks() - before) == 1
        assert database.looks == 1
        await database.run("insert into rule_set (version, author, reason) values (1000, 'ann', 'r')")
        async with asyncio.timeout(SOON):
            await one.heard.wait()
        assert one.take() == ["rules"]
        assert one.over == "signed-out", "it is no session at all"
        assert database.looks == 2
    await eventually(partial(_nothing_runs_but, before))
    async with pulse.watch(session, BELLS) as one:
        assert one.take() == [], "what was new before is on the page that is opened"


class SlowSessions(WebSessions):
    """A look at sessions that is under way until `release` is set."""

    def __init__(self, server: Opened) -> None:
        super().__init__(server.lab.database, server.access)
        self.looking, self.release = asyncio.Event(), asyncio.Event()

    async def find_live(self, sessions: Collection[UUID]) -> set[UUID]:
        found = await super().find_live(sessions)
        self.looking.set()
        await self.release.wait()
        return found


async def test_whoever_comes_while_sessions_are_looked_at_is_not_signed_out(server: Opened) -> None:
    sessions = SlowSessions(server)
    pulse = Pulse(server.lab.database, sessions)
    async with pulse.watch(new_uuid7(), BELLS) as nobody, asyncio.timeout(SOON):
        await sessions.looking.wait()
        async with pulse.watch(new_uuid7(), BELLS) as newcomer:
            sessions.release.set()
            await nobody.heard.wait()
            assert (nobody.over, newcomer.over) == ("signed-out", "")


# In a browser --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_a_page_follows_what_is_done_elsewhere_and_leaves_what_is_entered(chromium: str, house: House) -> None:
    server = house.server
    async with signed_in(chromium, server) as tab:
        await tab.open(f"{server.url}/ui/approvals")
        assert await tab.evaluate("document.title") == "(4) Approvals · Switchboard"
        await _refuse(server)
        await tab.until("document.body.innerText.includes('Nothing waits for a decision')")
        await tab.until("document.title === '(3) Approvals · Switchboard'")
        await tab.until("document.getElementById('waits').innerText.includes('3')")
        assert tab.troubles == []
        await tab.open(f"{server.url}/ui/dead-letters")
        await tab.until(_READY)
        rows = await tab.evaluate(ROWS)
        await tab.press(".tick input")
        envelope = envelope_json("Order 4712 was lost", channel="webhook", provider="http", sender="shop")
        assert (await server.submit(envelope)).is_success
        await tab.until(f"{NEWER} === '1 newer'")
        assert await tab.evaluate(ROWS) == rows
        assert await tab.evaluate("document.querySelector('.tick input').checked")


@pytest.mark.slow
async def test_no_row_moves_under_a_reader(chromium: str, server: Opened) -> None:
    rows = [await _sent(server, f"message {n}") for n in range(10)][::-1]
    async with signed_in(chromium, server, PHONE) as tab:
        await tab.open(f"{server.url}/ui/messages")
        await tab.until(_READY)
        assert await tab.evaluate(ROWS) == rows
        first = await _sent(server, "at the top it is shown")
        await tab.until(f"({ROWS})[0] === '{first}'")
        await tab.until("document.querySelector('.rows > li').innerText.includes('answered')")
        await tab.evaluate("scrollTo(0, 400)")
        second = await _sent(server, "further down it is told of")
        await tab.until(f"{NEWER} === '1 newer'")
        third = await _sent(server, "and so are more")
        await tab.until(f"{NEWER} === '2 newer'")
        assert await tab.evaluate(ROWS) == [first, *rows]
        assert await tab.evaluate("scrollY") >= 400
        await tab.click(".newer")
        assert await tab.evaluate(ROWS) == [third, second, first, *rows]
        assert tab.troubles == []


async def _sent(server: Opened, text: str) -> str:
    """The id of the row of a message that is sent."""
    answer = await server.submit(envelope_json(text, sender="ann", thread="ann"))
    return f"message-{answer.json()['request_id']}"


@pytest.mark.slow
async def test_windows_that_are_too_many_say_so_and_none_hangs(chromium: str, server: Opened) -> None:
    async with signed_in(chromium, server) as first, AsyncExitStack() as stack:
        others = [open_another(chromium, first) for _ in range(MOST_STREAMS + 1)]
        windows = [first, *[await stack.enter_async_context(one) for one in others]]
        for window in windows[:MOST_STREAMS]:
            await window.open(f"{server.url}/ui/messages")
            await window.until(_READY)
        for window in windows[MOST_STREAMS:]:
            await window.open(f"{server.url}/ui/messages")
            await window.until(f"{BAR}.startsWith('Not live: {MOST_STREAMS} other windows')")
            assert await window.evaluate("fetch('/ui/waiting').then(answer => answer.status)") == 200
        for window in windows[:2]:
            await window.open("about:blank")
        for window in windows[MOST_STREAMS:]:
            await window.until("document.getElementById('live').hidden")


@pytest.mark.slow
async def test_a_tab_that_nobody_sees_has_no_stream(chromium: str, server: Opened) -> None:
    """What is new meanwhile is there when it is seen again, after a minute where that is asked for."""
    async with signed_in(chromium, server) as tab:
        await tab.open(f"{server.url}/ui/messages")
        await tab.until(_READY)
        await tab.evaluate(_SEEN % "true")
        await tab.until(f"performance.getEntriesByType('resource').some(one => one.name.endsWith('{STREAM}'))")
        asked = len(tab.requests)
        row = await _sent(server, "while nobody looks")
        await tab.until(f"performance.now() > {await tab.evaluate('performance.now()')} + {_HIDDEN_MS}", within=90)
        assert tab.requests[asked:] == [], "nothing is asked for meanwhile"
        await tab.evaluate(_SEEN % "false")
        await tab.until(f"({ROWS})[0] === '{row}'")
        assert [one for one in tab.requests[asked:] if one.endswith(STREAM)]
