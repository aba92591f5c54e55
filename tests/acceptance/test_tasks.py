"""“Remind me tonight to water the tomatoes”, on Telegram and by mail, with real processes and a scripted model."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email import message_from_bytes
from pathlib import Path
from typing import Any, Final

import pytest

from switchboard.testing.bot_api import TOKEN, BotApi
from switchboard.testing.scripted_llm import Call, Reply, Request, ScriptedLlm
from tests.mail_servers import OWN, PASSWORD, Imap, Postbox, running_pymap, running_smtp
from tests.places import passable
from tests.processes import environment, running, write_teams
from tests.waiting import eventually

pytestmark = pytest.mark.slow
ANN: Final[dict[str, Any]] = {"id": 41, "is_bot": False, "first_name": "Ann"}
ASKED: Final = "Remind me tonight to water the tomatoes"
SAID: Final = "water the tomatoes"
MAIL: Final = (
    "Authentication-Results: mx.example; dmarc=pass header.from=x.example\r\nFrom: Ann <ann@x.example>\r\n"
    f"To: {OWN}\r\nMessage-ID: <1@x.example>\r\nSubject: note\r\n\r\n{ASKED}\r\n"
)
TELEGRAM: Final = (
    'channel = "telegram"\nsecrets = {{token = {{env = "BOT_TOKEN"}}}}\n[settings]\napi_url = "{url}"\npoll_s = 1\n'
)
DESK: Final = (
    'channel = "email"\nsecrets = {{password = {{env = "MAIL_PASSWORD"}}}}\n'
    '[settings]\naddress = "{own}"\nuser = "{user}"\nidle_s = 0.2\n'
    'imap = {{host = "127.0.0.1", port = {imap}, tls = "none"}}\n'
    'smtp = {{host = "127.0.0.1", port = {smtp}, tls = "none"}}\n'
)
BUTLER: Final[dict[str, Any]] = {
    "name": "hers",
    "type": "operation",
    "engine": "model",
    "config": {"owners": ["telegram:41", "email:ann@x.example"], "modules": ["schedule"]},
}


@pytest.fixture
async def api() -> AsyncIterator[BotApi]:
    async with BotApi() as opened:
        yield opened


class TonightModel:
    """Makes the task that it is asked for: tonight is in a minute. `asked`: how often it was asked anything."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self, request: Request) -> Reply:
        self.asked += 1
        if request.results:
            return Reply(text="I will remind you tonight.")
        tonight = datetime.now(UTC) + timedelta(seconds=65)
        return Reply(calls=(Call("schedule_at", {"time": f"{tonight:%A %Y-%m-%d %H:%M}", "text": SAID}),))


@contextmanager
def opened_house(place: Path, api: BotApi, llm: ScriptedLlm) -> Iterator[tuple[Imap, Postbox]]:
    team = {"team": {"name": "root"}, "systems": [BUTLER]}
    team["routing_rules"] = [{"name": "all", "channel": "*", "targets": [{"system_id": "System1/hers"}]}]
    teams = write_teams(place / "teams", team)
    accounts = place / "channels.d"
    accounts.mkdir()
    with running_pymap() as imap, running_smtp() as (postbox, smtp):
        (accounts / "house.toml").write_text(TELEGRAM.format(url=api.url))
        (accounts / "desk.toml").write_text(DESK.format(own=OWN, user=imap.user, imap=imap.port, smtp=smtp))
        trusted = json.dumps({"*": ["mx.example"]})
        model = {"name": "own", "kind": "openai", "model": "scripted-1", "base_url": f"{llm.url}/v1"}
        ours = {"TEAMS_DIR": str(teams), "CHANNELS_DIR": str(accounts), "EMAIL__TRUSTED_SERVERS": trusted}
        secrets = {"BOT_TOKEN": TOKEN, "MAIL_PASSWORD": PASSWORD}
        with running(environment(place / "data", **ours, MODELS=json.dumps([model])) | secrets, "up"):
            yield imap, postbox


def mail_texts(postbox: Postbox) -> list[str]:
    """The texts of the mails that were sent."""
    found = []
    for mail in postbox.mails:
        parts = [one for one in message_from_bytes(mail).walk() if one.get_content_type() == "text/plain"]
        payload = parts[0].get_payload(decode=True)
        assert isinstance(payload, bytes)
        found.append(" ".join(payload.decode().split()))
    return found


async def test_a_reminder_comes_once_on_each_channel(api: BotApi) -> None:
    model = TonightModel()
    with passable("switchboard tasks ") as place:
        async with ScriptedLlm(model) as llm:
            starting = opened_house(place, api, llm)
            imap, postbox = await asyncio.to_thread(starting.__enter__)
            try:
                api.people.say(ASKED, user=ANN, chat=None)
                await asyncio.wait_for(api.until(lambda: bool(api.texts)), 60)
                imap.deliver(MAIL.encode())  # what lay there before the account was opened is history

                async def is_promised() -> bool:
                    return len(postbox.mails) > 0

                async def is_reminded() -> bool:
                    return len(api.texts) > 1 and len(postbox.mails) > 1

                await eventually(is_promised, within=60)
                asked = model.asked
                assert api.texts[0] == "I will remind you tonight."
                await eventually(is_reminded, within=120)
                assert api.texts[1:] == [SAID]
                assert [SAID in text for text in mail_texts(postbox)] == [False, True]
                assert model.asked == asked  # it is said without a model
            finally:
                await asyncio.to_thread(starting.__exit__, None, None, None)
