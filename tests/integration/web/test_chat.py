"""Chat on the page: a message is stored once, its answer appears, and what butlers ask is decided where it stands."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest

from tests.browser import DESK, PHONE, Tab
from tests.hands import Scripted, at_work
from tests.integration.test_approvals_interfaces import asking
from tests.routing import butler, rule, team_of
from tests.servers import Opened, open_server
from tests.web_forms import enter, follow
from tests.web_house import signed_in

SIZES = pytest.mark.parametrize("size", [DESK, PHONE], ids=["desk", "phone"])
TREE = (
    (team_of(butler("house", "echo", owners=["dashboard:operator-1"]), butler("post", "echo"), "System4/root"),),
    (rule("System1/house", channel="dashboard"),),
)


@pytest.fixture
async def server(database_url: str, tmp_path: Path) -> AsyncIterator[Opened]:
    """A server whose butler asks."""
    async with (
        open_server(database_url, tmp_path / "data", tree=TREE) as opened,
        at_work(opened.lab.worker({"echo": Scripted(asking)})),
    ):
        yield opened


REPLIES: Final = "[...document.querySelectorAll('.theirs .said')].map(said => said.innerText)"


async def reload_until(tab: Tab, script: str) -> None:
    """Load the page again, as somebody without script does, until it shows that."""
    async with asyncio.timeout(20):
        while not await tab.evaluate(script):
            await tab.open(str(await tab.evaluate("location.href.split('#')[0]")))


@SIZES
async def test_without_script_one_writes_decides_and_reads_the_answer(
    chromium: str, server: Opened, size: tuple[int, int]
) -> None:
    async with signed_in(chromium, server, size, script=False) as tab:
        await tab.open(f"{server.url}/ui/chat")
        assert "You write as operator-1, to house." in await tab.text()
        await enter(tab, "#text", "pay 40 €")
        await follow(tab, ".box button")
        await reload_until(tab, "document.querySelector('.asked .decide') !== null")
        assert "May house call pay with this, and nothing else?" in await tab.text()
        assert '"to": "noor"' in await tab.text()
        await follow(tab, "form[action$='/approve'] button")
        await reload_until(tab, f"{REPLIES}.includes('approved')")
        await enter(tab, "#text", "ask which colour?")
        await follow(tab, ".box button")
        await reload_until(tab, "document.querySelector('.asked .option') !== null")
        await follow(tab, "form.option:nth-of-type(2) button")
        await reload_until(tab, f"{REPLIES}.includes('answered blue')")
        await tab.click(".threads a.button")
        assert "Nothing was written here yet" in await tab.text()
        assert tab.troubles == []
    told = await server.lab.database.rows("select channel, endpoint, sender from message_inbox")
    assert [tuple(one) for one in told] == [("dashboard", "operator-1", "operator-1")] * 2
