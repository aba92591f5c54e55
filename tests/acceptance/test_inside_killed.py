"""Accounts in the server's process: everything is killed in the middle of a turn, and the person has one answer."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, Final

import pytest

from switchboard.testing.bot_api import TOKEN, BotApi
from tests.acceptance.test_typing_after_a_kill import killed_at_the_end
from tests.processes import butler, environment, running, that_know, until, write_teams

pytestmark = pytest.mark.slow
SLOW: Final = "echo begun >> {place}/begun; while [ ! -e {place}/go ]; do sleep 0.05; done; echo done"
BEN: Final[dict[str, Any]] = {"id": 41, "is_bot": False, "first_name": "Ben"}


async def test_a_turn_that_is_killed_with_its_account_is_answered_once(place: Path) -> None:
    team = {
        "team": {"name": "root"},
        "systems": [butler("slow", ["sh", "-c", SLOW.format(place=place)])],
        "routing_rules": [{"name": "all", "channel": "*", "targets": [{"system_id": "System1/slow"}]}],
    }
    teams, channels = write_teams(place / "teams", team), place / "channels.d"
    channels.mkdir()
    (channels / "token").touch(mode=0o600)
    (channels / "token").write_text(TOKEN)
    more = {"TEAMS_DIR": str(teams), "CHANNELS_DIR": str(channels), "CONNECTORS": "inside", "LOG_LEVEL": "error"}
    env = environment(place / "data", **more)
    async with BotApi() as api, asyncio.timeout(120):
        account = (
            *('channel = "telegram"', 'endpoint = "telegram/bot:123456"', 'strangers = "open"'),
            *(f"settings = {{api_url = {json.dumps(api.url)}, poll_s = 2}}", 'secrets.token.file = "token"'),
        )
        (channels / "house.toml").write_text("\n".join(account))
        living = killed_at_the_end(env, place)
        await asyncio.to_thread(living.__enter__)
        api.people.say("Please wait", user=BEN)
        await asyncio.to_thread(until, (place / "begun").exists)
        assert not any(" connect " in command for command in that_know(place)), "no process of a connector"
        await asyncio.to_thread(living.__exit__, None, None, None)
        assert not api.sent
        again = running(env, "up")
        up = await asyncio.to_thread(again.__enter__)
        (place / "go").touch()
        await api.until(lambda: bool(api.sent))
        api.people.say("Thank you", user=BEN)
        await api.until(lambda: len(api.sent) >= 2)
        await asyncio.to_thread(again.__exit__, None, None, None)
        assert up.process.returncode == 0, "it drains and ends as it was told"
        assert api.texts == ["done", "done"]
