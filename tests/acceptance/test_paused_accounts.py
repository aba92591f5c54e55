"""An account that is paused and resumed over the API while people write, with kills in between: nothing is lost."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest

from switchboard.connectors.kernel.parts import REPEAT_NOTE
from switchboard.testing.bot_api import TOKEN, BotApi
from tests.processes import Server, environment, running, told
from tests.servers import NO_TLS
from tests.waiting import eventually

pytestmark = pytest.mark.slow
BEN: Final = {"id": 41, "is_bot": False, "first_name": "Ben"}
LONG: Final = 60.0


class House:
    """A real `up`, which can be killed and started again; its account is added over the API."""

    def __init__(self, place: Path, api: BotApi) -> None:
        self.place, self.api, self.said = place, api, count()
        self.env = environment(place / "data", CHANNELS_DIR=str(place / "channels.d"))
        self._stack = ExitStack()
        self.server: Server

    async def __aenter__(self) -> House:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self._stack.close)

    async def start(self) -> None:
        self.server = await asyncio.to_thread(self._stack.enter_context, running(self.env, "up", cwd=self.place))
        assert "url" in self.server.said, self.server.said

    async def post(self, path: str, body: dict[str, Any]) -> None:
        token = (self.place / "data/operator.token").read_text().strip()
        asked = {"authorization": f"Bearer {token}"}
        async with httpx2.AsyncClient(
            base_url=self.server.said["url"], headers=asked, verify=NO_TLS, timeout=60
        ) as http:
            answer = await http.post(f"/v1/channels{path}", json=body)
            assert answer.is_success, answer.text

    async def run(self, *words: str) -> dict[str, Any]:
        return await asyncio.to_thread(told, self.server.environment, *words)

    def write(self, number: int) -> None:
        """So many more messages of Ben's."""
        for _ in range(number):
            self.api.people.say(f"note-{next(self.said):03}", user=BEN)

    async def until(self, holds: Callable[[], bool]) -> None:
        await asyncio.wait_for(self.api.until(holds), LONG)

    def kill_connector(self) -> None:
        """The process that serves the account, if there is one just now."""
        for process in Path("/proc").glob("[0-9]*"):
            try:
                words = (process / "cmdline").read_bytes().split(b"\0")
                known = (process / "environ").read_bytes()
            except OSError:  # it has ended meanwhile
                continue
            if b"connect" in words and str(self.place).encode() in known:
                os.kill(int(process.name), signal.SIGKILL)


@pytest.fixture
async def house(place: Path) -> AsyncIterator[House]:
    async with BotApi() as api, House(place, api) as opened:
        yield opened


async def test_paused_and_resumed_under_load_nothing_is_lost(house: House) -> None:
    secret = {"secrets": {"token": TOKEN}, "strangers": "open"}
    await house.post("", {"channel": "telegram", "settings": {"api_url": house.api.url, "poll_s": 1}, **secret})
    await house.until(lambda: house.api.polling)
    for round_ in range(3):
        house.write(3)
        if round_ != 1:
            house.kill_connector()
        await house.post("/telegram/pause", {"reason": "a holiday"})
        house.write(3)
        await house.until(lambda: not house.api.polling)
        if round_ == 2:
            break
        await house.post("/telegram/resume", {"reason": "back again"})
    before = len(house.api.texts)
    house.server.process.kill()
    await asyncio.to_thread(house.server.process.wait)
    await house.start()
    assert [one["state"] for one in (await house.run("channels", "list"))["channels"]] == ["paused"]
    findings = (await house.run("doctor"))["findings"]
    assert any("telegram is paused" in one["detail"] for one in findings)
    assert (house.api.polling, len(house.api.texts)) == (False, before), "it neither receives nor sends"
    await house.post("/telegram/resume", {"reason": "back again"})
    wanted = {f"note-{n:03}" for n in range(next(house.said))}
    await eventually(lambda: _all_sent(house, wanted), within=LONG)
    listed = (await house.run("messages", "list", "--limit", "200"))["messages"]
    assert Counter(one["text"] for one in listed) == Counter(wanted)
    unmarked = [one for one in house.api.texts if REPEAT_NOTE not in one]
    assert len(unmarked) <= len(wanted) <= len(house.api.texts), "what may have been sent before a kill says so"


async def _all_sent(house: House, wanted: set[str]) -> bool:
    """Whether each message has an answer that Telegram has taken."""
    replies = (await house.run("outbox", "list", "--limit", "200"))["replies"]
    return len(replies) == len(wanted) and all(one["state"] == "sent" for one in replies)
