"""What others write does nothing in any field of any page: not to its elements, not in a browser. And sixty mails."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from contextlib import suppress
from html.parser import HTMLParser
from pathlib import Path
from typing import Final
from urllib.parse import quote

import pytest

from tests.browser import Tab, open_tab
from tests.servers import open_server
from tests.web_foreign import ELEMENTS, LISTS, OTHER, PAYLOADS, RUNS, ForeignHouse, ShownAt, open_foreign, signed
from tests.web_house import mail_of, signed_in, submit_mail
from tests.width import WIDE, wide

PLAIN: Final = "plain words"
PARTS: Final = range(wide(10, 1))
_IN_PARTS: Final = pytest.mark.parametrize("part", PARTS)
_OLDER: Final = "a class href hx-nonce hx-get hx-target hx-select hx-swap hx-select-oob"
"""Below a list that is longer than a page."""


def texts(part: int) -> list[str]:
    """A part of all payloads; where a sample is enough, one text that ends attributes with either quote."""
    return list(PAYLOADS[part :: len(PARTS)]) if WIDE else [PAYLOADS[76] + PAYLOADS[114]]


class _Elements(HTMLParser):
    """The elements of a page with the names of their attributes; and those that others' words lead somewhere."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.led: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append(f"{tag} {' '.join(name for name, _ in attrs if name not in _STATES)}")
        self.led += [
            f"{tag} {name}={value}" for name, value in attrs if name not in _TEXTS and _LEADS.search(value or "")
        ]


_STATES: Final = frozenset({"aria-invalid", "aria-describedby", "checked", "selected"})
_TEXTS: Final = frozenset({"value", "title", "alt", "aria-label"})
_LEADS: Final = re.compile(r"javascript:|//evil\.example|canary=")
_WATCHED: Final = (
    "window.violations = [];"
    " addEventListener('securitypolicyviolation', (event) => violations.push(event.violatedDirective), true)"
)
_LED: Final = """[...document.querySelectorAll('*')].flatMap((one) => [...one.attributes]).filter((one) =>
    !['value', 'title', 'alt', 'aria-label'].includes(one.name)
    && /javascript:|\\/\\/evil\\.example|canary=|ui\\/leave$/.test(one.value) && one.ownerElement.action === undefined
).map((one) => one.ownerElement.outerHTML)"""
_OWN: Final = re.compile(r"/(joined|ui/static/.+|ui/chat/[^/]+/stream|ui/messages/[^/]+/html)")
"""What pages ask for besides themselves and bells."""


class JoinedPages:
    """Serves pages as one, under no policy: their escaping is alone, and what would break a policy is told."""

    def __init__(self) -> None:
        self.html = ""

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line, _, _ = (await reader.readuntil(b"\r\n\r\n")).partition(b"\r\n")
        found = b" /joined " in line
        policy = "default-src 'self'; script-src 'self'; form-action 'self'; base-uri 'none'"
        body = self.html.encode() if found else b""
        head = f"HTTP/1.1 {200 if found else 404} x\r\ncontent-type: text/html; charset=utf-8\r\nconnection: close\r\n"
        head += f"content-length: {len(body)}\r\ncontent-security-policy-report-only: {policy}\r\n\r\n"
        with suppress(ConnectionError):
            writer.write(head.encode() + body)
            await writer.drain()
        writer.close()


@pytest.mark.slow
@_IN_PARTS
async def test_no_field_of_others_does_anything(chromium: str, database_url: str, tmp_path: Path, part: int) -> None:
    """Pages that show nothing else have no more elements than with plain words, lists are made of the same.

    All of them together run and load nothing in a browser, and some are opened there one by one.
    """
    said, joined = texts(part), JoinedPages()
    async with (
        open_foreign(database_url, tmp_path / "data", [PLAIN, PLAIN, *said]) as house,
        await asyncio.start_server(joined.answer, "127.0.0.1", 0) as listener,
        open_tab(chromium) as tab,
        signed_in(chromium, house.server) as real,
    ):
        url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
        for each in (tab, real):
            await each.send("Page.addScriptToEvaluateOnNewDocument", source=_WATCHED)
        joined.html = ELEMENTS[1]
        await tab.open(f"{url}/joined")
        await tab.until("window.canary && violations.length")
        tab.requests.clear()
        await house.write(f"the first {PLAIN}")
        plain = [_Elements(await house.read(at)) for at in (*await house.write(PLAIN), *LISTS)]
        usual = {_OLDER, *(one for page in plain for one in page.found)}
        for n, words in enumerate(said):
            shown = (*await house.write(words), *(LISTS if n % 4 == 0 or words == said[-1] else ()))
            pages = [await house.read(at) for at in shown]
            for at, text, meant in zip(shown, pages, plain, strict=False):
                page = _Elements(text)
                assert page.led == [], (at, words)
                more = Counter(page.found) - Counter(meant.found) if at.alone else set(page.found) - usual
                assert not more, (at, words, more)
            joined.html = "".join(pages)
            await tab.open(f"{url}/joined")
            assert await tab.evaluate(_LED) == [], words
            await _did_nothing(tab, url, set())
            if n % 20 == 0:
                await _open_each(real, house, shown[part % 3 :: wide(3, 6)])


async def _open_each(tab: Tab, house: ForeignHouse, shown: Sequence[ShownAt]) -> None:
    secret = await tab.cookie("sb_session_")
    await tab.open("about:blank")
    tab.requests.clear()
    for at in shown:
        if at.fields is None:
            await tab.open(f"{house.server.url}{at.path}")
        else:
            await tab.post(at.path, signed(at, secret))
        await _did_nothing(tab, house.server.url, {"/ui/events", "/ui/waiting", *(one.path for one in shown)})
        assert tab.troubles == [], at


async def _did_nothing(tab: Tab, url: str, opened: Set[str]) -> None:
    """Nothing ran, nothing broke the policy, and nothing was asked for but what pages ask for."""
    assert await tab.evaluate("[typeof window.canary, violations]") == ["undefined", []]
    asked = {each.removeprefix(url) for each in tab.requests}
    assert asked, "requests are seen"
    assert {each for each in asked - opened if not _OWN.fullmatch(each)} == set()


_ASKED: Final[Mapping[str, tuple[str, ...]]] = {
    "/ui/messages": ("state", "channel", "endpoint", "sender", "butler", "team", "since", "until", "cursor"),
    "/ui/conversations/one": ("name", "cursor"),
    "/ui/dead-letters": ("state", "team", "category", "channel", "system", "age", "cursor"),
    "/ui/dead-letters/many": ("team", "category", "channel", "system", "age", "which", "action", "to", "id"),
    "/ui/chat": ("thread", "to", "before", "cursor"),
    "/ui/approvals": ("state", "cursor"),
    "/ui/strangers": ("state", "cursor"),
    "/ui/rules": ("team", "cursor"),
    "/ui/rules/new": ("team",),
    "/ui/tasks": ("state", "butler", "cursor"),
    "/ui/audit": ("action", "cursor"),
    "/ui/plans": ("running", "cursor"),
    "/ui/welcome": ("thread",),
    "/ui/sessions": ("done", "cursor"),
}
_ENTERED: Final[Mapping[str, tuple[str, ...]]] = {
    "/ui/memory/add": ("text", "author", "system_id", "reason"),
    "/ui/memory/entities": ("words", "system_id"),
    "/ui/memory/facts": ("words", "system_id", "author"),
    "/ui/rules/new": ("name", "channel", "filters", "targets", "priority", "team_id"),
    "/ui/connections/add/telegram": ("name", "secret.token", "strangers", "more", "owner_of"),
    "/ui/connections/add/imap": ("name", "set.address", "set.imap.host", "secret.password", "more"),
    "/ui/butlers/quarantine": ("system_id", "reason"),
    "/ui/dead-letters/many": ("action", "to", "number", "team", "reason"),
    "/ui/welcome/model": ("choice", "url", "model", "butler", "workspace", "do"),
    "/ui/enter": ("token", "back"),
}


@_IN_PARTS
async def test_what_is_asked_or_entered_changes_no_elements(database_url: str, tmp_path: Path, part: int) -> None:
    """Whoever makes a link or a form chooses what is in it."""
    said = texts(part)
    async with open_foreign(database_url, tmp_path / "data", [PLAIN]) as house:
        usual = {one for page in await _answers(house, PLAIN) for one in page.found}
        for one in said:
            for page in await _answers(house, one):
                assert page.led == [], one
                assert set(page.found) <= usual, one


async def _answers(house: ForeignHouse, said: str) -> list[_Elements]:
    """The pages on which that is asked, entered, or part of the path."""
    effect = {"name": said, "channel": "*", "filters": f"sender = {said}", "targets": OTHER, "team_id": "root"}
    asked = [await house.http.get(path, params={name: said}) for path, names in _ASKED.items() for name in names]
    entered = [ShownAt(path, dict.fromkeys(names, said)) for path, names in _ENTERED.items()]
    shown = [await house.show(at) for at in (*entered, ShownAt("/ui/rules/new", effect))]
    found = [await house.http.get(f"{beginning}{quote(said, safe='')}") for beginning in ("/ui/", "/ui/enter/")]
    return [_Elements(one.text) for one in (*asked, *shown, *found)]


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


@pytest.mark.slow
async def test_sixty_ways_to_load_something_load_nothing(chromium: str, database_url: str, tmp_path: Path) -> None:
    """Neither the browser nor a server that listens at these addresses sees a request."""
    assert len(_ADDRESSES) == 60
    met, groups = list[str](), wide(60, 3)

    def note(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        met.append(str(writer.get_extra_info("peername")))
        writer.close()

    listener = await asyncio.start_server(note, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}/x"
    async with (
        listener,
        open_server(database_url, tmp_path / "data") as server,
        signed_in(chromium, server) as tab,
    ):
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
