"""What butlers are writing, as connectors read it: of whom, by whom, and in Telegram."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from switchboard.app.access import Principal
from switchboard.connectors.kernel.accounts import Configured
from switchboard.connectors.kernel.intake import Handling
from switchboard.connectors.telegram.manifest import MANIFEST as TELEGRAM
from switchboard.domain.json_values import JsonObject
from switchboard.ports.connector import Account
from switchboard.ports.engine import Answer, Delta, EngineFailure, Turn, TurnResult
from switchboard.testing.bot_api import ANN, TOKEN, BotApi
from tests.integration.test_files_arrive import serving
from tests.integration.test_streams import Writing, a_server
from tests.lab import envelope_json
from tests.servers import Opened
from tests.waiting import eventually

BOT = Principal("connector", "bot", "telegram", "bot:house")
WRITTEN = "/v1/connectors/written"


def chat(text: str, kind: str, thread: str, **more: Any) -> JsonObject:
    """A message in a chat of this kind."""
    envelope = envelope_json(text, thread=thread, **more)
    envelope["sender"]["chat_type"] = kind
    envelope["event"]["reply_address"] = {"chat": thread}
    return envelope


class Pen:
    """A butler that writes when it is told to."""

    def __init__(self) -> None:
        self.tell: dict[str, Callable[[Delta], None]] = {}
        self.attempts: list[int] = []
        self.fails = asyncio.Event()
        self.ends = asyncio.Event()

    async def play(self, turn: Turn, tell: Callable[[Delta], None]) -> TurnResult:
        self.tell[turn.text] = tell
        self.attempts.append(turn.attempt)
        if turn.text == "private" and turn.attempt == 1:
            await self.fails.wait()
            raise EngineFailure("once", error_class="timeout")
        await self.ends.wait()
        return Answer("It is done.")


async def read(server: Opened, headers: Any, **account: str) -> Any:
    body = {"channel": "telegram", "endpoint": "bot:house"} | account
    answer = await server.http.post(WRITTEN, json=body, headers=headers)
    return answer.json().get("texts", answer.status_code)


async def test_only_private_drafts_are_read_and_only_by_their_connector(database_url: str, tmp_path: Path) -> None:
    pen = Pen()
    async with a_server(database_url, tmp_path, Writing(pen.play)) as server:
        mine = await server.token_for(BOT)
        assert await read(server, mine) == []
        for kind in ("private", "group"):
            await server.submit(chat(kind, kind, f"of-{kind}"))
        await eventually(lambda: wrote(pen, 2))
        for tell in pen.tell.values():
            tell(Delta(0, "On ", 1))
        await eventually(lambda: texts(server, mine, ["On "]))
        [found] = await read(server, mine)
        assert (found["address"], 1 <= found["number"] < 2**31) == ({"chat": "of-private"}, True)
        first = pen.tell["private"]
        first(Delta(3, "Tuesday", 1))
        await eventually(lambda: texts(server, mine, ["On Tuesday"]))
        first(Delta(3, "Wednesday. " * 1000, 1))
        await eventually(lambda: texts(server, mine, [("On " + "Wednesday. " * 1000)[:5000]]))
        others = await server.token_for(Principal("connector", "other", "telegram", "bot:other"))
        assert await read(server, others) == 403
        assert await read(server, others, endpoint="bot:other") == []
        pen.fails.set()
        await eventually(lambda: wrote(pen, 3))
        assert await read(server, mine) == [], "what an earlier attempt wrote is void"
        pen.tell["private"](Delta(0, "Again", 1))
        await eventually(lambda: texts(server, mine, ["Again"]))
        [again] = await read(server, mine)
        assert again["number"] == found["number"]
        pen.ends.set()
        await eventually(lambda: texts(server, mine, []))


async def wrote(pen: Pen, turns: int) -> bool:
    return len(pen.attempts) == turns


async def texts(server: Opened, headers: Any, wanted: list[str]) -> bool:
    return [one["text"] for one in await read(server, headers)] == wanted


async def test_a_telegram_answer_appears_while_it_is_written_and_is_sent_once(
    database_url: str, tmp_path: Path
) -> None:
    pen = Pen()
    async with a_server(database_url, tmp_path, Writing(pen.play)) as server, BotApi() as api:
        settings = TELEGRAM.settings.model_validate({"api_url": api.url, "poll_s": 1})
        account = Account("house", settings, {"token": TOKEN})
        async with serving(Configured(TELEGRAM, account, Handling(start="all")), server):
            api.people.say("when?")
            await eventually(lambda: wrote(pen, 1))
            pen.tell["when?"](Delta(0, "On **Tues", 1))
            await asyncio.wait_for(api.until(lambda: bool(api.world.drafts)), 30)
            pen.tell["when?"](Delta(9, "day** it", 1))
            await asyncio.wait_for(api.until(lambda: api.world.drafts[ANN["id"]][1] == "On Tuesday it"), 30)
            pen.ends.set()
            await asyncio.wait_for(api.until(lambda: bool(api.sent)), 30)
            await eventually(lambda: all_are_sent(server))
        assert api.texts == ["It is done."]
        assert api.world.drafts == {}
        numbers = {call.params.number("draft_id") for call in api.called("sendMessageDraft")}
        assert len(numbers) == 1
        assert await server.lab.count("select count(*) from outbox_part") == 1, "drafts are recorded nowhere"


async def all_are_sent(server: Opened) -> bool:
    return bool(await server.lab.count("select count(*) from outbox where state = 'sent'") == 1)
