"""What others write into other fields than a message: errors, arguments of tools, names of rules, and sixty mails."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest

from switchboard.ports.engine import Answer, Ask, EngineFailure, Journal, Turn, TurnResult
from tests.hands import Scripted, at_work
from tests.integration.web.test_foreign import PAYLOADS, RUNS
from tests.lab import envelope_json
from tests.servers import NO_TLS, Opened, open_server
from tests.waiting import eventually
from tests.web_house import House, link_of, mail_of, open_house, signed_in, submit_mail
from tests.width import wide


class _Elements(HTMLParser):
    """The elements of a page with the names of their attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append(f"{tag} {' '.join(name for name, _ in attrs)}")


async def hostile(turn: Turn, journal: Journal) -> TurnResult:
    """An engine that says what it was told wherever an engine can say something."""
    kind, _, said = turn.text.partition(":")
    if kind == "fail":
        raise EngineFailure(said, error_class="internal", retryable=False)
    ask = Ask("call", said[:100], {said[:60]: said, "to": [said]}, said, "d" * 64, "nobody", "effectful", "high")
    await journal.expect("approval", within=3600, ask=ask)
    await journal.wait("approval")
    return Answer(said)


@asynccontextmanager
async def client_of(server: Opened) -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(base_url=server.url, verify=NO_TLS, timeout=30) as http:
        await http.post((await link_of(server)).removeprefix(server.url), headers={"origin": server.url})
        yield http


async def _written(server: Opened, payload: str) -> list[str]:
    """The pages that show it, in every field that there is."""
    ids: dict[str, str] = {}
    for kind in ("fail", "ask"):
        name = f"{kind} {abs(hash(payload))}"
        answer = await server.submit(envelope_json(f"{kind}:{payload}", sender=name, thread=name, event=name))
        assert answer.is_success, answer.text
        ids[kind] = str(answer.json()["request_id"])
    rule = {"name": payload[:100], "channel": "sms", "filters": {"sender": payload[:100]}, "targets": []}
    made = await server.http.post(
        "/v1/rules",
        json={**rule, "team_id": "side", "targets": [{"system_id": "System1/side"}], "reason": payload[:100]},
    )
    assert made.is_success, made.text
    approvals: list[Any] = []

    async def asked() -> bool:
        found = (await server.http.get("/v1/approvals")).json()["approvals"]
        approvals[:] = [one for one in found if one["request_id"] == ids["ask"]]
        return bool(approvals)

    await eventually(asked)
    await server.http.get(f"/v1/messages/{ids['fail']}/replies", params={"wait_s": 10})
    return [
        f"/ui/messages/{ids['fail']}",
        f"/ui/messages/{ids['ask']}",
        f"/ui/approvals/{approvals[0]['approval_id']}",
        f"/ui/rules/{made.json()['rule']['rule_id']}",
    ]


async def test_no_field_of_others_changes_the_elements_of_a_page(database_url: str, tmp_path: Path) -> None:
    sample = wide(len(PAYLOADS), 8)
    async with (
        open_server(database_url, tmp_path / "data") as server,
        at_work(server.lab.worker({"echo": Scripted(hostile)})),
        client_of(server) as http,
    ):
        plain = [_Elements((await http.get(path)).text).found for path in await _written(server, "plain words")]
        for payload in PAYLOADS[:: len(PAYLOADS) // sample][:sample]:
            for path, meant in zip(await _written(server, payload), plain, strict=True):
                page = await http.get(path)
                assert page.status_code == 200, path
                assert _Elements(page.text).found == meant, (path, payload)
        for path in ("/ui/approvals", "/ui/rules", "/ui/rules/versions", "/ui/dead-letters", "/ui/audit", "/ui/"):
            found = _Elements((await http.get(path)).text).found
            assert not [
                one for one in found if re.search(r"script (?!nonce)|\bon\w+|base |iframe|object|embed", one)
            ], path


_ADDRESSES: Final = (
    '<img src="URL">',
    '<img srcset="URL 1x, URL 2x">',
    '<img src="x" lowsrc="URL">',
    '<img src="data:image/svg+xml,%3Csvg%3E%3Cimage href=%22URL%22/%3E%3C/svg%3E">',
    '<picture><source srcset="URL"><img src="cid:pixel"></picture>',
    '<input type="image" src="URL">',
    '<body background="URL">',
    '<table background="URL"><tr><td background="URL">x</td></tr></table>',
    '<video src="URL" autoplay></video>',
    '<video poster="URL"></video>',
    '<video><source src="URL"><track src="URL" default></video>',
    '<audio src="URL" autoplay></audio>',
    '<iframe src="URL"></iframe>',
    '<iframe srcdoc="<img src=URL>"></iframe>',
    '<frameset><frame src="URL"></frameset>',
    '<object data="URL"></object>',
    '<object><param name="movie" value="URL"></object>',
    '<embed src="URL">',
    '<applet code="URL" archive="URL"></applet>',
    '<link rel="stylesheet" href="URL">',
    '<link rel="icon" href="URL">',
    '<link rel="preload" as="image" href="URL">',
    '<link rel="prefetch" href="URL">',
    '<link rel="dns-prefetch" href="URL">',
    '<link rel="preconnect" href="URL">',
    '<link rel="modulepreload" href="URL">',
    '<link rel="manifest" href="URL">',
    '<link rel="import" href="URL">',
    '<style>@import "URL";</style>',
    "<style>@import url(URL);</style>",
    "<style>p { background: url(URL) }</style><p>x</p>",
    "<style>@font-face { font-family: f; src: url(URL) } p { font-family: f }</style><p>x</p>",
    "<style>p::before { content: url(URL) }</style><p>x</p>",
    "<style>p { cursor: url(URL), auto; list-style: url(URL); mask: url(URL) }</style><p>x</p>",
    '<style>p { background: image-set("URL" 1x) }</style><p>x</p>',
    "<style>p { background: \\75rl(URL) }</style><p>x</p>",
    "<style>@namespace x url(URL); p { filter: url(URL#f) }</style><p>x</p>",
    '<p style="background: url(URL)">x</p>',
    """<p style="background-image: url('URL'), url(URL)">x</p>""",
    '<div style="border-image: url(URL) 1; shape-outside: url(URL)">x</div>',
    '<svg><image href="URL" width="9" height="9"/></svg>',
    '<svg><image xlink:href="URL"/></svg>',
    '<svg><use href="URL#a"/></svg>',
    '<svg><feImage href="URL"/></svg>',
    "<svg><style>@import url(URL);</style></svg>",
    '<svg><script href="URL"></script></svg>',
    '<svg><a><animate attributeName="href" values="URL"/><text>x</text></a></svg>',
    '<math><mglyph src="URL"/></math>',
    '<meta http-equiv="refresh" content="0;url=URL">',
    '<meta http-equiv="Link" content="<URL>; rel=preload">',
    '<meta http-equiv="Content-Security-Policy" content="report-uri URL">',
    '<base href="URL"><img src="x.png">',
    '<script src="URL"></script>',
    "<script>fetch('URL'); new Image().src='URL'; RUNS</script>",
    "<img src=x onerror=\"fetch('URL')\">",
    "<body onload=\"location='URL'\">",
    '<form action="URL" method="post"><input name="a"><button autofocus>Send</button></form>',
    '<form><button formaction="URL">Send</button></form><script>document.forms[0].submit()</script>',
    '<a href="URL" ping="URL" target="_top" style="position: fixed; inset: 0; display: block">Everything is a link</a>',
    '<area href="URL"><a href="URL" download>x</a><blockquote cite="URL">x</blockquote>',
)
LARGE: Final = 600_000
"""About the most that is accepted of a mail."""


@pytest.fixture
async def house(database_url: str, tmp_path: Path) -> AsyncIterator[House]:
    async with open_house(database_url, tmp_path / "data") as opened:
        yield opened


@pytest.mark.slow
async def test_sixty_ways_to_load_something_load_nothing(chromium: str, house: House) -> None:
    """Neither the browser nor a server that listens at these addresses sees a request."""
    assert len(_ADDRESSES) == 60
    server, met, groups = house.server, list[str](), wide(60, 3)

    def note(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        met.append(str(writer.get_extra_info("peername")))
        writer.close()

    listener = await asyncio.start_server(note, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}/x"
    async with listener, signed_in(chromium, server) as tab:
        for n in range(groups):
            html = "\n".join(_ADDRESSES[n::groups]).replace("URL", url).replace("RUNS", RUNS)
            html += "<p>much</p>" * (LARGE // 11 if n == 0 else 0)
            one = await submit_mail(server, mail_of(f"Mail {n}", "Text first.", html))
            await tab.open(f"{server.url}/ui/messages/{one}/mail")
            await tab.press("iframe.mail")
            assert await tab.evaluate("location.pathname") == f"/ui/messages/{one}/mail"
        own = (f"{server.url}/ui/", "data:image/png", "about:srcdoc")
        assert {seen for seen in tab.requests if not seen.startswith(own)} == set()
    assert met == []
