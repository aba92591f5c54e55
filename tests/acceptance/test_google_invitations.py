"""“Am I free on Thursday afternoon? If so, invite Ben for an hour”, with calendar and contacts at Google, and killed.

The strict server of tests/google_servers.py counts the mails. The model is scripted, as in test_invitations.py.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from switchboard.testing.bot_api import TOKEN, BotApi
from switchboard.testing.google import ApiCall, GoogleServer
from switchboard.testing.platform_server import BrokenOff
from switchboard.testing.scripted_llm import ScriptedLlm
from tests.acceptance.test_invitations import (
    ANN,
    ASKED,
    BEN,
    BUTLER,
    FRIENDS,
    TELEGRAM,
    asked_for,
    introduce,
    next_day,
    secretary,
)
from tests.google_house import google_account
from tests.google_servers import strict_google
from tests.places import passable
from tests.processes import environment, running, write_teams

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


@pytest.fixture
async def api() -> AsyncIterator[BotApi]:
    async with BotApi() as opened:
        yield opened


@dataclass
class House:
    """An installation that can be killed."""

    place: Path
    settings: Mapping[str, str]

    @contextmanager
    def up(self) -> Iterator[None]:
        """`switchboard up`, until the end of the block, if it is not killed."""
        with running(self.settings, "up") as server:
            self.settings = server.environment
            yield

    def kill(self) -> None:
        """`kill -9` of everything, its database included."""
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                known = (process / "environ").read_bytes() + (process / "cmdline").read_bytes()
                if str(self.place / "data").encode() in known:
                    os.kill(int(process.name), signal.SIGKILL)


def build_house(place: Path, api: BotApi, llm: ScriptedLlm, google: GoogleServer) -> House:
    team = {"team": {"name": "root"}, "systems": [BUTLER]}
    team["routing_rules"] = [{"name": "all", "channel": "*", "targets": [{"system_id": "System1/hers"}]}]
    channels = place / "channels.d"
    channels.mkdir()
    (channels / "house.toml").write_text(TELEGRAM.format(url=api.url))
    account = google_account(google.url, place)
    table = {"provider": "google", "url": google.url, "user": account.user, "token_file": str(account.token_file)}
    accounts = {"accounts": {"ann": {**table, "person": "ann", "sends": "server"}}}
    ours = {
        "TEAMS_DIR": str(write_teams(place / "teams", team)),
        "CHANNELS_DIR": str(channels),
        "MODULES": json.dumps({"calendar": accounts, "contacts": accounts}),
        "MODELS": json.dumps([{"name": "own", "kind": "openai", "model": "scripted-1", "base_url": f"{llm.url}/v1"}]),
    }
    return House(place, environment(place / "data", **ours) | {"BOT_TOKEN": TOKEN})


def add_friends(google: GoogleServer) -> None:
    for name, mail in FRIENDS.items():
        given, _, family = name.partition(" ")
        names = [{"displayName": name, "givenName": given, "familyName": family}]
        google.contacts.create({"names": names, "emailAddresses": [{"value": mail}]})
    google.contacts.settle()


async def test_ben_is_invited_by_google_once(api: BotApi) -> None:
    with passable("switchboard asks Google ") as place:
        async with ScriptedLlm(secretary) as llm, strict_google() as google:
            add_friends(google)
            house = build_house(place, api, llm, google)
            try:
                await invite_and_kill(house, api, google)
                await find_what_was_done(house, api, google)
            finally:
                house.kill()


async def invite_and_kill(house: House, api: BotApi, google: GoogleServer) -> None:
    """Everything is killed after Google has written and invited, and before it could say so."""
    written = asyncio.Event()

    def kill(call: ApiCall) -> None:
        if call.name == "events.insert":
            written.set()
            house.kill()
            raise BrokenOff

    with ExitStack() as stack:
        await asyncio.to_thread(stack.enter_context, house.up())
        await introduce(house.settings)
        api.people.say(ASKED.format(day="Thursday"), user=ANN)
        await asyncio.wait_for(api.until(lambda: bool(api.texts)), 60)
        request = api.texts[0]
        assert BEN in request
        assert f"Thursday {next_day(3)} 14:00-15:00" in request
        assert google.mails.total() == 0
        google.after = kill
        api.people.say(f"/approve {asked_for(request)}", user=ANN)
        await asyncio.wait_for(written.wait(), 60)
        google.after = lambda _: None
        assert told(google) == [(BEN, "REQUEST")]


def told(google: GoogleServer) -> list[tuple[str, str]]:
    return [(mail.to, mail.method) for mail in google.mails.elements()]


async def find_what_was_done(house: House, api: BotApi, google: GoogleServer) -> None:
    said = len(api.texts)

    def is_answered() -> bool:
        return any(text.startswith("Thursday: ") for text in api.texts[said:])

    with ExitStack() as stack:
        await asyncio.to_thread(stack.enter_context, house.up())
        await asyncio.wait_for(api.until(is_answered), 120)
        assert '"created":"An hour with Ann"' in api.texts[-1]
        before = len(api.texts)
        api.people.say("And on Thursday once more?", user=ANN)
        await asyncio.wait_for(api.until(lambda: len(api.texts) > before), 60)
        assert f"Free times: Thursday {next_day(3)} 15:00-16:00" in api.texts[-1]
        assert told(google) == [(BEN, "REQUEST")]
        assert [one["summary"] for one in google.calendar.events.values()] == ["An hour with Ann"]
        await asyncio.to_thread(stack.close)
