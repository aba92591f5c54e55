"""A page in Chromium that talks over the gateway: a client that nobody here wrote, with rules of its own."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from aiohttp import web

from switchboard.ports.engine import Answer, Delta, Turn, TurnResult
from tests.browser import find_chromium
from tests.documents import HOME
from tests.gateway import ws_url
from tests.hands import at_work
from tests.integration.test_streams import Writing
from tests.routing import butler, rule, team_of
from tests.servers import open_server

CHROMIUM: Final = find_chromium()
PAGE: Final = """<!doctype html><meta charset="utf-8"><title>A chat</title><script type="module">
import { say } from "./chat.js";
const told = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
const report = (what) => fetch("/report", { method: "POST", body: JSON.stringify(what) });
const texts = [];
const onText = (text) => { texts.push(text); if (text === "Once ☔😀") fetch("/go", { method: "POST" }); };
const stranger = new WebSocket(told.stranger);
const refused = new Promise((resolve) => { stranger.onclose = ({ code }) => resolve(code); });
say({ ...told, session: "page", text: "a tale", onText })
  .then(async (answer) => report({ answer, texts, refused: await refused }))
  .catch((error) => report({ error: String(error) }));
</script>"""


@asynccontextmanager
async def pages(said: asyncio.Future[Any], go_on: Callable[[], None]) -> AsyncIterator[str]:
    """The web server of the page, which is another origin than the gateway's; its address."""

    async def page(_: web.Request) -> web.Response:
        return web.Response(text=PAGE, content_type="text/html")

    async def script(_: web.Request) -> web.Response:
        return web.Response(
            text=(HOME / "src/switchboard/examples/gateway/chat.js").read_text(), content_type="text/javascript"
        )

    async def report(request: web.Request) -> web.Response:
        said.set_result(json.loads(await request.text()))
        return web.Response()

    async def go(_: web.Request) -> web.Response:
        go_on()
        return web.Response()

    app = web.Application()
    app.add_routes([web.get("/", page), web.get("/chat.js", script), web.post("/report", report), web.post("/go", go)])
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def chromium(url: str, profile: Path) -> AsyncIterator[None]:
    options = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run")
    quiet = ("--disable-extensions", "--disable-background-networking", "--disable-sync", "--no-proxy-server")
    process = await asyncio.create_subprocess_exec(
        *(str(CHROMIUM), *options, *quiet, f"--user-data-dir={profile}", url),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="in Debian: apt-get install chromium-headless-shell")
async def test_a_page_in_chromium_talks_over_the_gateway(database_url: str, tmp_path: Path) -> None:
    go_on, said = asyncio.Event(), asyncio.get_running_loop().create_future()

    async def play(turn: Turn, tell: Callable[[Delta], None]) -> TurnResult:
        tell(Delta(0, "Once ☔😀", 1))
        await go_on.wait()
        return Answer(f"Once ☔😀 upon: {turn.text}")

    member = butler("clerk", "model")
    tree = ((team_of(member),), (rule(member.system_id),))
    async with pages(said, go_on.set) as origin, asyncio.timeout(60):
        more = {"gateway": {"origins": [origin]}}
        async with (
            open_server(database_url, tmp_path / "data", tree=tree, more=more) as server,
            open_server(database_url, tmp_path / "other", tree=tree) as stranger,
            at_work(server.lab.worker({"model": Writing(play)})),
            chromium(
                f"{origin}/#token={server.token}&url={ws_url(server.url)}&stranger={ws_url(stranger.url)}",
                tmp_path / "profile",
            ),
        ):
            told = await said
    assert told["answer"]["content"] == told["answer"]["folded"] == "Once ☔😀 upon: a tale"
    assert told["texts"][0] == "Once ☔😀"
    assert told["refused"] == 1006, "a page of another origin is not let in"
