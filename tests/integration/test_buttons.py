"""What people are asked, as buttons in Telegram: who may press, what a press decides, and that it decides once."""

from __future__ import annotations

import asyncio
import gc
import warnings
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import httpx2
import pytest

from switchboard.app.access import Principal
from switchboard.connectors.kernel.accounts import Configured
from switchboard.connectors.kernel.intake import Handling
from switchboard.connectors.telegram.manifest import MANIFEST as TELEGRAM
from switchboard.core.channels.registry import CHANNELS
from switchboard.core.readers import person_named
from switchboard.core.turns.choices import mark_of, press_of
from switchboard.domain.json_values import JsonObject
from switchboard.domain.routing import Team
from switchboard.ports.connector import Account
from switchboard.store.approvals import StoredApprovals
from switchboard.store.history import StoredHistory, StoredReaders
from switchboard.store.outbox import expire_leases
from switchboard.testing.bot_api import ANN, TOKEN, BotApi
from switchboard.testing.bot_api.world import Chat, Pressed
from switchboard.testing.connectors.killing import RECEIVING_DEATHS, SENDING_DEATHS
from switchboard.testing.connectors.running import Death, connector
from switchboard.testing.connectors.switchboard import ScriptedSwitchboard
from switchboard.testing.scripted_llm import ScriptedLlm
from switchboard.tools.ask import AskUser
from tests.drivers import without_pauses
from tests.hands import at_work
from tests.integration.test_approvals import brain
from tests.lab import ROOT, butler, rule, to
from tests.servers import NO_TLS, Opened, open_server
from tests.turning import Noting, a_model_engine
from tests.waiting import eventually

pytestmark = pytest.mark.filterwarnings(  # a connector that is killed within this process leaves its sockets behind
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)
BEN: Final[JsonObject] = {"id": 41, "is_bot": False, "first_name": "Ben"}
RULES: Final = (rule(ROOT, [to("System1/clerk")]),)
ENDPOINT: Final = "bot:123456"
MARKS: Final = {one["id"]: mark_of(person_named("telegram", ENDPOINT, str(one["id"]))) for one in (ANN, BEN)}


class Wired(ScriptedSwitchboard):
    """The wire to a real server, which ends with the connector at its end."""

    def __init__(self, url: str, headers: dict[str, str]) -> None:
        super().__init__(asyncio.get_running_loop().time)
        self._url, self._headers = url, headers
        self._wire = httpx2.AsyncHTTPTransport(verify=NO_TLS)

    async def aclose(self) -> None:
        """Close its connections; those of a connector that was killed go with it."""
        await self._wire.aclose()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()

    def client(self, dead: asyncio.Event | None = None) -> httpx2.AsyncClient:
        wire = _Wire(self, self._wire, dead or asyncio.Event())
        return httpx2.AsyncClient(transport=wire, base_url=self._url, headers=self._headers)


class _Wire(httpx2.AsyncBaseTransport):
    def __init__(self, switchboard: Wired, inner: httpx2.AsyncHTTPTransport, dead: asyncio.Event) -> None:
        self._switchboard, self._inner, self._dead = switchboard, inner, dead

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        dies = self._switchboard.dies_at
        here = dies is not None and request.url.path.endswith(dies[0])
        if self._dead.is_set() or (here and dies is not None and not dies[1]):
            self._dead.set()
            raise httpx2.ConnectError("the connector is dead")
        response = await self._inner.handle_async_request(request)
        if here:
            self._dead.set()
        if self._dead.is_set():
            await response.aclose()
            raise httpx2.ReadError("the connector is dead")
        return response


@dataclass
class House:
    """A bot with a butler that pays after approval only."""

    server: Opened
    api: BotApi
    wire: Wired
    pay: Noting

    @property
    def configured(self) -> Configured:
        settings = TELEGRAM.settings.model_validate({"api_url": self.api.url, "poll_s": 1})
        account = Account("house", settings, {"token": TOKEN})
        return Configured(without_pauses(TELEGRAM), account, Handling(start="all", groups="all"))

    async def asked(self, text: str, chat: Chat | None = None) -> JsonObject:
        """The message of the bot that asks, once Ann has said this."""
        known = len(self.api.sent)
        self.api.people.say(text, chat)
        return await self._next(known)

    async def _next(self, known: int) -> JsonObject:
        await asyncio.wait_for(self.api.until(lambda: len(self.api.sent) > known), 60)
        return self.api.sent[known]

    async def toast(self, pressed: Pressed) -> str:
        """What the press is answered with."""
        await asyncio.wait_for(self.api.until(lambda: pressed.toast is not None), 60)
        return pressed.toast or ""

    async def press(self, message: JsonObject, label: str, user: JsonObject = ANN) -> str:
        return await self.toast(self.api.people.press(message, token(message, label), user=user))

    async def shows(self, message: JsonObject, *labels: str) -> None:
        """Wait until the buttons below a message are these."""
        await asyncio.wait_for(self.api.until(lambda: list(buttons(message)) == list(labels)), 60)

    async def decisions(self) -> list[str]:
        return [
            row["action"]
            for row in await self.server.lab.database.rows("select action from audit where action like '%approval%' order by at, audit_id")
        ]

    async def process_ended(self) -> None:
        """What was leased is free, as after the time of the leases."""
        self.wire.process_ended()
        database = self.server.lab.database
        await database.run("update connector_account set lease_until = clock_timestamp()")
        await database.run(
            "update lane set lease_until = clock_timestamp() where state = 'running' and owner is null and pool like 'pull:%'"
        )
        await expire_leases(database)


def buttons(message: JsonObject) -> dict[str, str]:
    """The tokens of the buttons below a message as it is now, by label."""
    rows = message.get("reply_markup", {}).get("inline_keyboard", [])
    return {one["text"]: one["callback_data"] for row in rows for one in row}


def token(message: JsonObject, label: str) -> str:
    return buttons(message)[label]


@asynccontextmanager
async def a_house(database_url: str, tmp_path: Path, *owners: str) -> AsyncIterator[House]:
    clerk = butler("clerk", "model", owners=list(owners) or [f"telegram:{ANN['id']}"], approve=["pay"])
    tree = (Team(ROOT, None, members=(clerk,)),), RULES
    pay = Noting("pay", "effectful")
    async with (
        open_server(database_url, tmp_path / "data", tree=tree) as server,
        ScriptedLlm(brain, strict=True) as llm,
        BotApi() as api,
    ):
        database = server.lab.database
        readers = StoredReaders(database, CHANNELS)
        context: dict[str, Any] = {"readers": readers, "approvals": StoredApprovals(database), "workspaces": tmp_path}
        context["history"] = StoredHistory(database, readers)
        async with (
            a_model_engine(llm, [pay, AskUser()], **context) as (engine, _),
            at_work(server.lab.worker({"model": engine})),
        ):
            principal = Principal("connector", "c", "telegram", ENDPOINT)
            wire = Wired(server.url, dict(await server.token_for(principal)))
            try:
                yield House(server, api, wire, pay)
            finally:
                await wire.aclose()


async def test_a_press_decides_like_the_command_and_only_once(database_url: str, tmp_path: Path) -> None:
    async with a_house(database_url, tmp_path) as house, connector(house.configured, house.wire):
        asked = await house.asked("pay 7")
        assert "needs an approval" in asked["text"]
        assert "/approve" in asked["text"], "who sees no buttons can write it"
        assert list(buttons(asked)) == ["Approve", "Refuse"]
        approve, refuse = buttons(asked).values()
        text = asked["text"]
        answered = len(house.api.sent)
        assert (await house.press(asked, "Approve")).startswith("Approved: pay (")
        assert (await house._next(answered))["text"] == "pay: {'text': '7'}"
        await house.shows(asked, "Approved by Ann")
        assert asked["text"] == text
        again = await house.toast(house.api.people.press(asked, approve))
        other = await house.toast(house.api.people.press(asked, refuse))
        shown = await house.press(asked, "Approved by Ann")
        assert again.startswith("Approved: pay (")
        assert other.startswith("Nothing is changed: pay was approved already")
        assert shown == "Approved by Ann."
        assert [said for _, said in house.pay.calls] == [{"text": "7"}]
        assert await house.decisions() == ["approval:approved"]
        assert len(house.api.sent) == answered + 1, "presses are answered by no messages"
