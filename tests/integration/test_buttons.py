"""What people are asked, as buttons in Telegram: who may press, what a press decides, and that it decides once."""

from __future__ import annotations

import asyncio
import gc
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest

from switchboard.app.access import Principal
from switchboard.connectors.kernel.accounts import Configured
from switchboard.connectors.kernel.intake import Handling
from switchboard.connectors.telegram.manifest import MANIFEST as TELEGRAM
from switchboard.core.channels.registry import CHANNELS
from switchboard.core.people.readers import person_named
from switchboard.core.turns.choices import mark_of, press_of
from switchboard.domain.json_values import JsonObject
from switchboard.lanes import faults
from switchboard.ports.connector import Account
from switchboard.store.memory.history import StoredHistory, StoredReaders
from switchboard.store.messages.outbox import LEASE_S, expire_leases
from switchboard.store.work.approvals import StoredApprovals
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
from tests.routing import butler, rule, team_of
from tests.servers import NO_TLS, Opened, open_server
from tests.turning import Noting, a_model_engine
from tests.waiting import eventually

pytestmark = pytest.mark.filterwarnings(  # a connector that is killed within this process leaves its sockets behind
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)
BEN: Final[JsonObject] = {"id": 41, "is_bot": False, "first_name": "Ben"}
RULES: Final = (rule("System1/clerk"),)
GRANTS: Final = {"groups": ["ask_user"]}
ENDPOINT: Final = "bot:123456"
LEASED_S: Final = 2 * LEASE_S
"""How long a test waits for a reply. A connector that has ended has left a request for replies at the server, which may
hand one out to it after `process_ended`: nobody sends that one until its lease has run out.
"""
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
        await asyncio.wait_for(self.api.until(lambda: len(self.api.sent) > known), LEASED_S)
        return self.api.sent[known]

    async def toast(self, pressed: Pressed) -> str:
        """What the press is answered with."""
        await asyncio.wait_for(self.api.until(lambda: pressed.toast is not None), LEASED_S)
        return pressed.toast or ""

    async def press(self, message: JsonObject, label: str, user: JsonObject = ANN) -> str:
        return await self.toast(self.api.people.press(message, token(message, label), user=user))

    async def shows(self, message: JsonObject, *labels: str) -> None:
        """Wait until the buttons below a message are these."""
        await asyncio.wait_for(self.api.until(lambda: list(buttons(message)) == list(labels)), LEASED_S)

    async def decisions(self) -> list[str]:
        """What the audit log says of decisions, in order."""
        rows = await self.server.lab.database.rows(
            "select action from audit where action like '%approval%' order by at"
        )
        return [row["action"] for row in rows]

    async def process_ended(self) -> None:
        """What was leased is free, as after the time of the leases."""
        self.wire.process_ended()
        database = self.server.lab.database
        await database.run("update connector_account set lease_until = clock_timestamp()")
        await database.run("update lane set lease_until = clock_timestamp() where pool like 'pull:%' and owner is null")
        await expire_leases(database)
        await database.run("delete from connector")  # at most 16 processes of an account report


def buttons(message: JsonObject) -> dict[str, str]:
    """The tokens of the buttons below a message as it is now, by label."""
    rows = message.get("reply_markup", {}).get("inline_keyboard", [])
    return {one["text"]: one["callback_data"] for row in rows for one in row}


def token(message: JsonObject, label: str) -> str:
    return buttons(message)[label]


@asynccontextmanager
async def a_house(database_url: str, tmp_path: Path, *owners: str) -> AsyncIterator[House]:
    clerk = butler("clerk", "model", owners=list(owners) or [f"telegram:{ANN['id']}"], approve=["pay"], grants=GRANTS)
    tree = (team_of(clerk),), RULES
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
        assert "needs approval" in asked["text"]
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
        assert other.startswith("Nothing is changed: the call of pay was approved already")
        assert shown == "Approved by Ann."
        assert [said for _, said in house.pay.calls] == [{"text": "7"}]
        assert await house.decisions() == ["approval:approved"]
        assert len(house.api.sent) == answered + 1, "presses are answered by no messages"


async def test_several_requests_have_their_buttons_below_one_message(database_url: str, tmp_path: Path) -> None:
    async with a_house(database_url, tmp_path) as house, connector(house.configured, house.wire):
        asked = await house.asked("pay 7 and ask_user Which? and pay 8")
        first, red, blue, second = (id_in(label) for label in list(buttons(asked))[::2][:1] + list(buttons(asked))[2:5])
        assert list(buttons(asked)) == [
            *(f"{what} ({first})" for what in ("Approve", "Refuse")),
            *(f"{what} ({red})" for what in ("1. red", "2. blue")),
            *(f"{what} ({second})" for what in ("Approve", "Refuse")),
        ]
        assert red == blue
        await house.press(asked, f"2. blue ({red})")
        await house.press(asked, f"Refuse ({first})")
        ends = [f"Refused by Ann ({first})", f"Answered: blue by Ann ({red})"]
        await house.shows(asked, *ends, f"Approve ({second})", f"Refuse ({second})")
        await house.press(asked, f"Approve ({second})")
        await house.shows(asked, *ends, f"Approved by Ann ({second})")
        await eventually(lambda: nothing_is_on_its_way(house))
        assert [said for _, said in house.pay.calls] == [{"text": "8"}]


def id_in(label: str) -> str:
    """The beginning of a request's id in the label of a button."""
    return label.rpartition("(")[2].rstrip(")")


async def test_a_question_in_a_group_is_answered_only_by_whoever_was_asked(database_url: str, tmp_path: Path) -> None:
    async with a_house(database_url, tmp_path) as house, connector(house.configured, house.wire):
        group = house.api.people.group()
        asked = await house.asked("ask_user Which colour?", group)
        assert list(buttons(asked)) == ["1. red", "2. blue"]
        forged = token(asked, "1. red").replace(MARKS[ANN["id"]], MARKS[BEN["id"]])
        assert await house.press(asked, "1. red", BEN) == "Somebody else was asked that."
        pressed = house.api.people.press(asked, forged, user=BEN)
        assert await house.toast(pressed) == "Only who was asked can answer that."
        assert list(buttons(asked)) == ["1. red", "2. blue"]
        assert await house.decisions() == ["refused:approvals"] * 2
        answered = len(house.api.sent)
        assert (await house.press(asked, "2. blue")).startswith("Answered: blue (")
        await house.shows(asked, "Answered: blue by Ann")
        assert "blue" in (await house._next(answered))["text"]
        assert await house.press(asked, "Answered: blue by Ann", BEN) == "Somebody else was asked that."
        assert list(buttons(asked)) == ["Answered: blue by Ann"]


async def test_a_token_that_is_guessed_or_of_elsewhere_decides_nothing(database_url: str, tmp_path: Path) -> None:
    """An app can send any data: of another chat, another person, another account, or made up."""
    owners = [f"telegram:{one['id']}" for one in (ANN, BEN)]
    async with a_house(database_url, tmp_path, *owners) as house, connector(house.configured, house.wire):
        asked = await house.asked("pay 7")
        here = token(asked, "Approve")
        known = len(house.api.sent)
        house.api.people.say("hello", user=BEN)
        bens = await house._next(known)
        group = house.api.people.group()
        house.api.people.say("hello", group)
        shared = await house._next(known + 1)
        mine = here.replace(MARKS[ANN["id"]], MARKS[BEN["id"]])
        unknown = f"choice:{'A' * 22}.a.{MARKS[ANN['id']]}"
        other = here.replace(MARKS[ANN["id"]], mark_of(person_named("telegram", "bot:7", str(ANN["id"]))))
        for message, data, user, said in (
            (bens, here, BEN, "Nothing here waits for that any more."),
            (bens, mine, BEN, "Nothing here waits for that any more."),
            (shared, here, ANN, "Nothing here waits for that any more."),
            (shared, mine, BEN, "Nothing here waits for that any more."),
            (asked, unknown, ANN, "Nothing here waits for that any more."),
            (asked, other, ANN, "Somebody else was asked that."),
            (asked, here.replace(".a.", ".1."), ANN, "That is not a question: write /approve"),
        ):
            assert (await house.toast(house.api.people.press(message, data, user=user))).startswith(said), (data, user)
        for data in ("", "choice:", f"/approve {press_of(here)}", here + "x", here.upper(), "x" * 64):
            assert house.api.people.press(asked, data).toast is None
        assert list(buttons(asked)) == ["Approve", "Refuse"]
        assert "approval:approved" not in await house.decisions()
        assert house.pay.calls == []
        assert (await house.press(asked, "Refuse")).startswith("Refused: pay (")
        await house.shows(asked, "Refused by Ann")


async def test_what_others_decide_and_what_comes_too_late_is_said(database_url: str, tmp_path: Path) -> None:
    async with a_house(database_url, tmp_path) as house:
        async with connector(house.configured, house.wire):
            asked = await house.asked("pay 7")
            approval = press_of(token(asked, "Approve"))
            assert approval is not None
            known = len(house.api.sent)
            await house.server.http.post(f"/v1/approvals/{approval.approval_id}/approve")
            await house._next(known)
            decider = (await house.server.http.get(f"/v1/approvals/{approval.approval_id}")).json()["decided_by"]
            assert (await house.press(asked, "Refuse")).startswith(
                "Nothing is changed: the call of pay was approved already"
            )
            await house.shows(asked, f"Approved by {decider}")
            second = await house.asked("pay 8")
        late, early = (house.api.people.press(second, token(second, one)) for one in ("Approve", "Refuse"))
        late.at -= 3600
        early.at -= 3600
        await house.process_ended()
        known = len(house.api.sent)
        async with connector(house.configured, house.wire):
            await house.shows(second, "Approved by Ann")
            said = [one["text"] for one in (await house._next(known), await house._next(known + 1))]
        assert (late.toast, early.toast) == (None, None)
        assert sum("Nothing is changed" in one for one in said) == 0, "the buttons tell it"


DEATHS: Final = (
    *(one for one in RECEIVING_DEATHS if one.at not in {"/connectors/lease"}),
    Death("connector_fetched"),
    Death("connector_intended"),
    Death("connector_sent"),
    Death("connector_recorded"),
    Death("connector_unreported"),
    Death("connector_reported"),
    *(one for one in SENDING_DEATHS if one.at in {"/outbox/next", "/parts", "/receipt"}),
)


@pytest.mark.slow
async def test_a_press_whose_connector_is_killed_decides_once(database_url: str, tmp_path: Path) -> None:
    async with a_house(database_url, tmp_path) as house:
        for n, death in enumerate(DEATHS):
            async with connector(house.configured, house.wire):
                asked = await house.asked(f"pay {n}")
                await eventually(lambda: all_is_sent(house), within=LEASED_S)
            await house.process_ended()
            pressed = house.api.people.press(asked, token(asked, "Approve"))
            async with connector(house.configured, house.wire, death) as running:
                await asyncio.wait_for(running.dead.wait(), LEASED_S)
                await running.killed()
            await house.process_ended()
            async with connector(house.configured, house.wire):
                await house.shows(asked, "Approved by Ann")
                await eventually(lambda: nothing_is_on_its_way(house), within=LEASED_S)
            await house.process_ended()
            assert pressed.toast is not None, death
        assert await house.decisions() == ["approval:approved"] * len(DEATHS)
        assert [said["text"] for _, said in house.pay.calls] == [str(n) for n in range(len(DEATHS))]
        pays = [one["text"] for one in house.api.sent if one["text"].startswith("pay:")]
        assert len(set(pays)) == len(DEATHS)


@pytest.mark.parametrize("at", ["after_receive", "after_commit", "after_claim", "after_resume", "before_complete"])
async def test_a_server_that_fails_at_a_press_decides_once(at: str, database_url: str, tmp_path: Path) -> None:
    failed = asyncio.Event()

    def fail() -> None:
        failed.set()
        raise RuntimeError(f"planted at {at}")

    async with a_house(database_url, tmp_path) as house, connector(house.configured, house.wire):
        asked = await house.asked("pay 7")
        await eventually(lambda: all_is_sent(house))
        faults.arm(f"{at}:1", fail)
        assert (await house.press(asked, "Approve")).startswith("Approved: pay (")
        assert failed.is_set()
        await house.shows(asked, "Approved by Ann")
        await eventually(lambda: nothing_is_on_its_way(house))
        assert await house.decisions() == ["approval:approved"]
        assert len(house.pay.calls) == 1


async def all_is_sent(house: House) -> bool:
    """Whether no reply is on its way."""
    return not await house.server.lab.count("select count(*) from outbox where state not in ('sent', 'failed')")


async def nothing_is_on_its_way(house: House) -> bool:
    """Whether all messages are answered, and all replies sent."""
    waiting = await house.server.lab.count("select count(*) from delivery where state = 'pending'")
    return not waiting and await all_is_sent(house)
