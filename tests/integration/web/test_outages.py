"""A page whose server or database is away says so, and is right as soon as they are back."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import Final

import httpx2
import pytest

from tests.browser import Tab, open_tab
from tests.lab import envelope_json
from tests.places import passable
from tests.ports import free_port
from tests.processes import environment, running
from tests.servers import NO_TLS
from tests.width import wide

TELLS_WITHIN: Final = 30.0
"""Seconds, of which the page is to take 25."""
AWAY_S: Final = wide(20, 6)
_LIVE: Final = "document.getElementById('live').hidden"
_FIRST: Final = "document.querySelector('.rows > li')?.id"


class House:
    """A server in a process of its own, as its operator calls it."""

    def __init__(self, url: str, data_dir: Path) -> None:
        self.url = url
        token = (data_dir / "operator.token").read_text(encoding="ascii").strip()
        self.http = httpx2.AsyncClient(
            base_url=url, headers={"authorization": f"Bearer {token}"}, timeout=60, verify=NO_TLS
        )

    async def enter(self, tab: Tab) -> None:
        """Sign in, and look at the messages."""
        made = (await self.http.post("/v1/web/links", json={})).json()
        await tab.open(f"{self.url}{made['path']}")
        await tab.click("main button")
        await tab.open(f"{self.url}/ui/messages")
        await self.is_shown(tab)

    async def is_shown(self, tab: Tab) -> None:
        """A message that comes now appears, and that it was answered."""
        answer = await self.http.post("/v1/ingest", json=envelope_json("hello", sender="ann", thread="ann"))
        row = f"message-{answer.json()['request_id']}"
        await tab.until(f"{_FIRST} === '{row}'")
        await tab.until(f"document.getElementById('{row}').innerText.includes('answered')")
        assert await tab.evaluate(_LIVE)


@contextmanager
def standing_still(data_dir: Path) -> Iterator[None]:
    """No process of the database in this directory runs."""
    postmaster = int((data_dir / "postgres" / "postmaster.pid").read_text().split()[0])
    group = [postmaster, *_children_of(postmaster)]
    for one in group:
        os.kill(one, signal.SIGSTOP)
    try:
        yield
    finally:
        for one in group:
            os.kill(one, signal.SIGCONT)


def _children_of(process: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


@pytest.mark.slow
async def test_a_page_says_that_it_is_not_live_and_then_is_again(chromium: str) -> None:
    with passable() as place:
        await _go_through_outages(chromium, place / "data")


async def _go_through_outages(chromium: str, data_dir: Path) -> None:
    env = environment(data_dir, PORT=str(free_port()))
    async with open_tab(chromium) as tab:
        with running(env, "up") as first:
            house = House(str(first.said["url"]), data_dir)
            await house.enter(tab)
            with standing_still(data_dir):
                still = monotonic()
                await tab.until(f"!{_LIVE}", within=TELLS_WITHIN)
                assert (await tab.evaluate("document.getElementById('live').innerText")).startswith("Not live since ")
                await tab.until(f"performance.now() > {await tab.evaluate('performance.now()')} + {_rest_ms(still)}")
            await tab.until(_LIVE)
            await house.is_shown(tab)
            first.process.kill()
            first.process.wait()
            await tab.until(f"!{_LIVE}", within=TELLS_WITHIN)
        with running(env, "up"):
            await tab.until(_LIVE)
            await house.is_shown(tab)
        await house.http.aclose()


def _rest_ms(since: float) -> float:
    """What is left of the time that the database is away."""
    return max(0.0, AWAY_S - (monotonic() - since)) * 1000
