"""Chat on the page: a message is stored once, its answer appears, and what butlers ask is decided where it stands."""

from __future__ import annotations

import asyncio
import html
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import httpx2
import pytest

from switchboard.app.approvals.service import ApprovalService
from switchboard.domain.errors import Forbidden, NotFound
from switchboard.domain.routing import Owner
from switchboard.ports.engine import Answer, Journal, Turn, TurnResult
from tests.browser import DESK, PHONE, Tab
from tests.hands import Scripted, at_work
from tests.integration.test_approvals_interfaces import asking
from tests.routing import butler, rule, team_of
from tests.servers import NO_TLS, Opened, open_server
from tests.waiting import eventually
from tests.web_forms import enter, follow, reach
from tests.web_house import PIXEL, link_of, signed_in

TREE = (
    (
        team_of(
            butler("house", "model", models=["m"], owners=["dashboard:operator-1"]),
            butler("post", "model", models=["m"]),
            "System4/root",
        ),
    ),
    (rule("System1/house", channel="dashboard"),),
)


@pytest.fixture
async def server(database_url: str, tmp_path: Path) -> AsyncIterator[Opened]:
    """A server whose butler asks."""
    async with (
        open_server(database_url, tmp_path / "data", tree=TREE) as opened,
        at_work(opened.lab.worker({"model": Scripted(asking)})),
    ):
        yield opened


REPLIES: Final = "[...document.querySelectorAll('.theirs .said')].map(said => said.innerText)"


async def see(tab: Tab, what: str, *, script: bool) -> None:
    """Wait until the page shows that; without script somebody loads it again."""
    if script:
        await tab.until(what)
        return
    async with asyncio.timeout(20):
        while not await tab.evaluate(what):
            await tab.open(str(await tab.evaluate("location.href.split('#')[0]")))


async def decide(tab: Tab, selector: str, *, script: bool) -> None:
    """Press a button of what is asked: with script, the page stays."""
    if script:
        await reach(tab, selector)
        await tab.key("Enter")
    else:
        await follow(tab, selector)


@pytest.mark.parametrize(("size", "script"), [(DESK, True), (PHONE, False)], ids=["desk", "phone-without-script"])
async def test_one_writes_decides_and_reads_the_answer(
    chromium: str, server: Opened, size: tuple[int, int], script: bool
) -> None:
    async with signed_in(chromium, server, size, script=script) as tab:
        await tab.open(f"{server.url}/ui/chat")
        assert "You write as operator-1, to house. house uses all its tools for you." in await tab.text()
        await enter(tab, "#text", "pay 40 €")
        await follow(tab, ".box button")
        await see(tab, "document.querySelector('.asked .decide') !== null", script=script)
        assert "May house call pay with this, and nothing else?" in await tab.text()
        assert '"to": "noor"' in await tab.text()
        await enter(tab, "#text", "and the gas bill")
        await decide(tab, "form[action$='/approve'] button", script=script)
        await see(tab, f"{REPLIES}.includes('approved')", script=script)
        assert not script or await tab.evaluate("document.querySelector('#text').value") == "and the gas bill"
        await enter(tab, "#text", "ask which colour?")
        await follow(tab, ".box button")
        await see(tab, "document.querySelector('.asked .option') !== null", script=script)
        await decide(tab, "form.option:nth-of-type(2) button", script=script)
        await see(tab, f"{REPLIES}.includes('answered blue')", script=script)
        await tab.click(".threads a.button")
        assert "Nothing was written here yet" in await tab.text()
        assert tab.troubles == []
    told = await server.lab.database.rows("select channel, endpoint, sender from message_inbox")
    assert [tuple(one) for one in told] == [("dashboard", "operator-1", "operator-1")] * 2


@asynccontextmanager
async def member(server: Opened, name: str) -> AsyncIterator[httpx2.AsyncClient]:
    """Somebody of the household who has signed in, without a browser."""
    async with httpx2.AsyncClient(
        base_url=server.url, verify=NO_TLS, timeout=30, headers={"origin": server.url}
    ) as http:
        await http.post((await link_of(server, name)).removeprefix(server.url))
        yield http


def fields_of(page: str, action: str) -> dict[str, str]:
    """What is hidden in the first form that is posted there."""
    form = page.partition(f'action="/ui{action}"')[2].partition("</form>")[0]
    return dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', form))


async def send(
    http: httpx2.AsyncClient, text: str, fields: Mapping[str, str] | None = None, files: Sequence[Any] = ()
) -> httpx2.Response:
    """Post the form of a new conversation, or those fields again."""
    fields = fields or fields_of((await http.get("/ui/chat?thread=new")).text, "/chat/send")
    parts = [
        *((name, (None, value)) for name, value in {**fields, "text": text}.items()),
        *(("files", f) for f in files),
    ]
    return await http.post("/ui/chat/send", files=parts)


async def settled_page(http: httpx2.AsyncClient, text: str) -> str:
    """The page Chat, once it says so."""

    async def says() -> bool:
        return text in (await http.get("/ui/chat")).text

    await eventually(says)
    return (await http.get("/ui/chat")).text


async def test_a_form_that_is_sent_twice_is_one_message(server: Opened) -> None:
    async with member(server, "ann") as http:
        fields = fields_of((await http.get("/ui/chat?thread=new")).text, "/chat/send")
        sent = await asyncio.gather(*(send(http, "ask which colour?", fields) for _ in range(3)))
        assert {one.status_code for one in sent} == {303}
        assert len({one.headers["location"] for one in sent}) == 1
        assert await server.lab.count("select count(*) from message_inbox") == 1
        await send(http, "ask which tree?", fields)
    assert await server.lab.count("select count(*) from message_inbox") == 2, "after a way back in the browser"


async def test_a_member_sees_and_decides_their_own(server: Opened) -> None:
    async with member(server, "ann") as ann, member(server, "ben") as ben:
        first = await ann.get("/ui/", follow_redirects=True)
        assert str(first.url).endswith("/ui/chat")
        assert re.findall(r'<li[^>]*><a href="/ui(/\w+)"', first.text) == ["/chat", "/messages"]
        assert "You chat, and see only your own messages." in first.text
        await send(ann, "ask which colour?")
        page = await settled_page(ann, "1. <bdi")
        path = re.search(r'action="/ui(/chat/approvals/[^"]+/answer)"', page)
        assert path is not None
        request_id, fields = (
            str(await server.lab.database.value("select request_id from message_inbox")),
            fields_of(page, path[1]),
        )

        assert "which colour" not in (await ben.get("/ui/chat")).text
        for address in (f"/ui/chat/{request_id}", f"/ui/chat/{request_id}/stream", f"/ui/messages/{request_id}"):
            assert (await ben.get(address)).status_code == 404, address
        for action in (path[1], f"/chat/{request_id}/stop"):
            own = fields_of((await ben.get("/ui/chat")).text, "/chat/send")
            assert (await ben.post(f"/ui{action}", data={**own, **fields})).status_code == 403, (
                "a form of another session"
            )
        assert (await server.lab.count("select count(*) from awaited where decided_at is not null")) == 0

        assert (await ann.post(f"/ui{path[1]}", data={**fields, "text": "2", "digest": "0" * 64})).status_code == 409
        assert (await ann.post(f"/ui{path[1]}", data={**fields, "text": "2"})).status_code == 303
        await settled_page(ann, "answered blue")

        await send(ann, "pay 40 €")
        page = await settled_page(ann, "Somebody who may decide this is asked")
        assert "/approve" not in page
        assert '"dashboard:ann"' in html.unescape(page)


async def test_only_the_person_who_was_asked_and_owns_the_butler_decides(server: Opened) -> None:
    async with member(server, "ann") as ann:
        await send(ann, "pay 40 €")
        await settled_page(ann, "Somebody who may decide this is asked")
    [asked] = (await server.http.get("/v1/approvals")).json()["approvals"]
    service, approval_id, digest = (
        ApprovalService(server.switchboard.runtime),
        UUID(asked["approval_id"]),
        asked["digest"],
    )
    for person, error in ((Owner("dashboard", "ann", "ann"), Forbidden), (Owner("dashboard", "ben", "ben"), NotFound)):
        with pytest.raises(error):
            await service.decide_as_asked(person, approval_id, "approve", "", digest)


async def test_an_answer_for_which_no_place_is_left_is_refused(server: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("switchboard.app.messages.stream.MOST_STREAMS", 0)
    async with member(server, "ann") as http:
        await send(http, "ask which colour?")
        request_id = await server.lab.database.value("select request_id from message_inbox")
        assert (await http.get(f"/ui/chat/{request_id}/stream")).status_code == 429


async def test_a_browser_sends_few_large_forms_at_a_time(server: Opened) -> None:
    end, form = asyncio.Event(), {"content-type": "multipart/form-data; boundary=x", "content-length": "3000000"}

    async def never_whole() -> AsyncIterator[bytes]:
        yield b"--x\r\n"
        await end.wait()

    async with member(server, "ann") as http:
        uploads = [
            asyncio.create_task(http.post("/ui/chat/send", content=never_whole(), headers=form)) for _ in range(3)
        ]

        async def is_refused() -> bool:
            answer = await http.post("/ui/chat/send", content=b"x" * 3_000_000, headers=form)
            return answer.status_code == 429 and "3 uploads of this browser are running" in answer.text

        await eventually(is_refused)
        assert (await send(http, "ask which colour?")).status_code == 303, "a small one is taken"
        for one in uploads:
            one.cancel()
        await asyncio.wait(uploads)


async def test_files_go_both_ways(database_url: str, tmp_path: Path) -> None:
    name = "<img src=x onerror=alert(1)>\u202egnp.txt"

    async def send_back(turn: Turn, _: Journal) -> TurnResult:
        return Answer("yours", attachments=turn.envelope.payload.attachments)

    async with (
        open_server(database_url, tmp_path / "data", tree=TREE, more={"blobs": {"file_bytes": 2000}}) as server,
        at_work(server.lab.worker({"model": Scripted(send_back)})),
        member(server, "ann") as http,
        member(server, "ben") as ben,
    ):
        files = [(name, b"<script>alert(1)</script>", "text/html"), ("dot.png", PIXEL, "image/png")]
        assert (await send(http, "", files=files)).status_code == 303
        page = await settled_page(http, "yours")
        pictures = re.findall(r'<img src="(/ui/[^"]+)" alt="dot.png"', page)
        saved = re.findall(r'<a href="(/ui/[^"]+)" download>', page)
        assert (len(pictures), len(saved)) == (2, 2), page
        for address in pictures:
            got = await http.get(address)
            assert (got.content, got.headers["content-type"]) == (PIXEL, "image/png")
        for address in saved:
            got = await http.get(address)
            assert got.content == files[0][1]
            assert got.headers["content-disposition"].startswith("attachment")
            assert got.headers["content-security-policy"].startswith("sandbox")
            assert (await ben.get(address)).status_code == 404
        assert "<img src=x" not in page
        assert "\\u202egnp.txt" in page
        large = await send(http, "too large", files=[("a.bin", b"x" * 2001, "application/octet-stream")])
        assert large.status_code == 413
        assert "too large" in large.text, "what was written is still there"
        assert (await send(http, "")).status_code == 422
        assert await server.lab.count("select count(*) from message_inbox") == 1
