"""Answers on the page while they are written: what is seen is what was written, wherever the stream is cut."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from switchboard.core.text.visible import escaped
from switchboard.ports.engine import Answer, Delta, Journal, Turn, TurnResult
from tests.browser import PHONE, Tab, open_tab
from tests.hands import at_work
from tests.routing import butler, rule, team_of
from tests.servers import Opened, open_server
from tests.waiting import eventually
from tests.web_house import signed_in
from tests.width import WIDE

CANARY: Final = "<img src=x onerror=\"window.hit=1\"><hx-partial hx-target='#box'>no</hx-partial>"
TEXT: Final = f"Once\n\n upon  a \u202etime\u202c {CANARY}\r\n😀."
DELTAS: Final = (
    Delta(0, "Twice", 1),
    Delta(0, "Once", 1),
    Delta(4, "\n\n upon ", 1),
    Delta(4 + 8, "", 1, tool=f"look{CANARY}", arguments='{"at": "<b>"}'),
    Delta(4 + 8, "", 1, tool=f"look{CANARY}", succeeded=False),
    Delta(4 + 8, " a \u202etime\u202c ", 2),
    Delta(4 + 8 + 10, CANARY, 2),
    Delta(4 + 8 + 10 + len(CANARY), "\r\n😀.", 2),
)
WRITTEN: Final = "document.querySelector('.writing .said')?.textContent"
ANSWERED: Final = "document.querySelector('.theirs .said')?.textContent"


@dataclass
class Writing:
    """An engine that writes one delta after the other, each when the test says so, and then answers."""

    deltas: Sequence[Delta] = DELTAS
    text: str = TEXT
    stops: bool = False
    steps: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(0))
    stoppable: bool = True

    async def run(self, turn: Turn, journal: Journal) -> TurnResult:  # noqa: ARG002
        assert turn.on_delta is not None
        for delta in self.deltas:
            await self.steps.acquire()
            turn.on_delta(delta)
            if self.stops:
                assert turn.stop is not None
                await turn.stop.wait()
                return Answer(f"{delta.text}, so far", stop_reason="aborted")
        await self.steps.acquire()
        return Answer(self.text)


@asynccontextmanager
async def writing_server(database_url: str, tmp_path: Path, engine: Writing) -> AsyncIterator[Opened]:
    """With a worker whose only butler writes."""
    tree = (
        (team_of(butler("house", "model", models=["m"]), "System4/root"),),
        (rule("System1/house", channel="dashboard"),),
    )
    async with (
        open_server(database_url, tmp_path / "data", tree=tree) as server,
        at_work(server.lab.worker({"model": engine})),
    ):
        yield server


def shown(text: str) -> str:
    """As pages show it: with everything invisible written out."""
    return escaped(text)


async def write(tab: Tab, server: Opened, text: str) -> None:
    """Write in a new conversation, and send it with the Enter key."""
    await tab.open(f"{server.url}/ui/chat?thread=new")
    await tab.type(text)
    await tab.leave_by_key("Enter")
    await tab.until("document.querySelector('.going') !== null")


def text_after(steps: int) -> str:
    """What is shown of the answer by then."""
    text = ""
    for delta in DELTAS[:steps]:
        text = text if delta.tool else text[: delta.offset] + delta.text
    return shown(text)


async def show_tab(tab: Tab, *, seen: bool) -> None:
    """Put the tab into the background, where htmx lets go of its stream, or back."""
    await tab.evaluate(
        f"Object.defineProperty(document, 'hidden', {{value: {str(not seen).lower()}, configurable: true}})"
    )
    await tab.evaluate("document.dispatchEvent(new Event('visibilitychange')) && undefined")


async def test_what_is_seen_is_what_was_written_wherever_it_is_cut(
    chromium: str, database_url: str, tmp_path: Path
) -> None:
    engine, cuts = Writing(), set(range(len(DELTAS) + 1)) if WIDE else {3, len(DELTAS)}
    async with writing_server(database_url, tmp_path, engine) as server, signed_in(chromium, server) as tab:
        await write(tab, server, "tell me")
        await tab.until("document.querySelector('.standing').textContent.includes('house is working on it')")
        for step in range(len(DELTAS)):
            if step in cuts:
                await show_tab(tab, seen=False)
            engine.steps.release()
            if step in cuts:
                await eventually(partial(has_written, server, step + 1))
                await show_tab(tab, seen=True)
            await tab.until(f"{WRITTEN} === {json.dumps(text_after(step + 1))}")
        assert "house uses look<img" in await tab.text()
        assert "failed" in await tab.text()
        if len(DELTAS) in cuts:
            await show_tab(tab, seen=False)
        engine.steps.release()
        if len(DELTAS) in cuts:
            await eventually(lambda: has_replied(server))
            await show_tab(tab, seen=True)
        await tab.until("document.querySelector('.going') === null")
        assert await tab.evaluate(ANSWERED) == shown(TEXT)
        assert tab.troubles == []
        assert await tab.evaluate("window.hit") is None


async def has_written(server: Opened, deltas: int) -> bool:
    """Whether so many deltas can be read."""
    return await server.lab.count("select count(*) from delta") >= deltas


async def has_replied(server: Opened) -> bool:
    """Whether the answer is there."""
    return await server.lab.count("select count(*) from outbox") == 1


async def count_messages(server: Opened) -> int:
    """How many were stored."""
    return await server.lab.count("select count(*) from message_inbox")


async def test_enter_sends_but_not_what_an_input_method_composes(
    chromium: str, database_url: str, tmp_path: Path
) -> None:
    """With Shift it is a new line, and on a touch screen always."""
    async with writing_server(database_url, tmp_path, Writing()) as server:
        async with signed_in(chromium, server) as tab:
            await tab.open(f"{server.url}/ui/chat?thread=new")
            await tab.until("document.activeElement.id === 'text'")
            await tab.evaluate("text.addEventListener('keydown', (event) => { window.composes = event.isComposing; })")
            await tab.send("Input.imeSetComposition", text="にほん", selectionStart=3, selectionEnd=3)
            await tab.send("Input.dispatchKeyEvent", type="rawKeyDown", key="Enter", windowsVirtualKeyCode=13)
            assert await tab.evaluate("window.composes")
            await tab.send("Input.insertText", text="日本")
            await tab.send(
                "Input.dispatchKeyEvent", type="keyDown", key="Enter", windowsVirtualKeyCode=13, text="\r", modifiers=8
            )
            await tab.type("語")
            assert await tab.evaluate("document.activeElement.value") == "日本\n語"
            assert await count_messages(server) == 0
            await tab.leave_by_key("Enter")
            assert await tab.evaluate("document.querySelector('.ours .said').innerText") == "日本\n語"
            assert await count_messages(server) == 1
        async with signed_in(chromium, server, PHONE) as tab:
            await tab.send("Emulation.setTouchEmulationEnabled", enabled=True)
            await tab.open(f"{server.url}/ui/chat?thread=new")
            await tab.press("#text")
            await tab.type("one")
            await tab.key("Enter")
            await tab.type("two")
            assert await tab.evaluate("document.activeElement.value") == "one\ntwo"
            assert await tab.evaluate("getComputedStyle(document.activeElement).fontSize") == "16px"
            below = "innerHeight - document.querySelector('.box').getBoundingClientRect().bottom"
            assert await tab.evaluate(below) == 0, "the box is at the bottom"
            assert await count_messages(server) == 1


async def test_one_stops_an_answer_and_those_behind_it_go_on(chromium: str, database_url: str, tmp_path: Path) -> None:
    """In one tab, seen in another one of the same session."""
    engine = Writing(stops=True)
    async with writing_server(database_url, tmp_path, engine) as server, signed_in(chromium, server) as tab:
        await write(tab, server, "first")
        engine.steps.release()
        await tab.until(f"{WRITTEN} === 'Twice'")
        await tab.type("second")
        await tab.leave_by_key("Enter")
        waits = "[...document.querySelectorAll('.standing')].at(-1).textContent"
        await tab.until(f"{waits} === 'Queued behind 1 message of this conversation.'")
        async with open_tab(chromium) as other:
            [cookie] = (await tab.send("Network.getCookies"))["cookies"]
            await other.send(
                "Network.setCookie",
                **{key: cookie[key] for key in ("name", "value", "domain", "path")},
                sameSite="Strict",
            )
            await other.open(str(await tab.evaluate("location.href")))
            await other.until(f"{WRITTEN} === 'Twice'")
            await tab.evaluate("window.stays = true")
            await tab.type("a draft")
            await tab.press(".going button")
            for each in (tab, other):
                await each.until(f"{ANSWERED} === 'Twice, so far'")
                await each.until("document.querySelectorAll('.going').length === 1")
                await each.until("document.querySelector('.standing').textContent.includes('house is working on it')")
            engine.steps.release()
            for each in (tab, other):
                await each.until(f"{WRITTEN} === 'Twice'")
            assert await tab.evaluate("window.stays && document.getElementById('text').value") == "a draft"
            assert (tab.troubles, other.troubles) == ([], [])
