"""What others write is shown and does nothing: not even where escaping should fail, in mails, and in files."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final
from urllib.parse import quote

import httpx2
import pytest
from markupsafe import Markup

from switchboard.server.web import templates
from tests.lab import envelope_json
from tests.servers import NO_TLS, Opened, open_server
from tests.web_foreign import ELEMENTS, RUNS
from tests.web_house import link_of, mail_of, signed_in, submit_mail


@pytest.fixture
async def server(database_url: str, tmp_path: Path) -> AsyncIterator[Opened]:
    """One whose butlers answer."""
    async with open_server(database_url, tmp_path / "data", worker=True) as opened:
        yield opened


@pytest.mark.slow
async def test_even_where_escaping_fails_nothing_runs_and_nothing_is_sent(
    chromium: str, server: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if a template had printed others' text as it came."""
    monkeypatch.setattr(templates, "escaped", Markup)
    injected = "".join(one for one in ELEMENTS if not one.startswith(("<meta", "<body", " ")))
    told = await server.submit(envelope_json(injected))
    async with signed_in(chromium, server) as tab:
        await tab.open(f"{server.url}/ui/messages/{told.json()['request_id']}")
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
async def test_a_mail_as_html_loads_nothing_and_leads_nowhere(chromium: str, server: Opened) -> None:
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


_NAMES: Final = ("x.html", "x.svg", "../../etc/passwd", 'a"; filename=b.html', "ü\u202e.exe")


async def test_an_attachment_is_saved_and_never_opened(server: Opened) -> None:
    async with httpx2.AsyncClient(base_url=server.url, verify=NO_TLS, timeout=30) as http:
        await http.post((await link_of(server)).removeprefix(server.url), headers={"origin": server.url})
        for name in _NAMES:
            raw = mail_of(f"File {name!a}", "See file.", "<p>See</p>").replace(b"offer.pdf", b"OFFER")
            raw = raw.replace(b'filename="OFFER"', f"filename*=utf-8''{quote(name, safe='')}".encode())
            request_id = await submit_mail(server, raw)
            found = (await server.http.get(f"/v1/messages/{request_id}")).json()["envelope"]["payload"]["attachments"]
            number = next(n for n, one in enumerate(found) if one["media_type"] == "application/pdf")
            got = await http.get(f"/ui/messages/{request_id}/attachments/{number}")
            assert got.content == b"%PDF-1.4 offer"
            assert got.headers["content-type"] == "application/octet-stream"
            assert got.headers["content-disposition"].startswith("attachment; filename*=UTF-8''")
            assert not re.search(r'[";\s]', got.headers["content-disposition"].partition("''")[2])
            assert got.headers["content-security-policy"].startswith("sandbox")
            assert (await http.get(f"/ui/messages/{request_id}/pictures/{number}")).status_code == 404
