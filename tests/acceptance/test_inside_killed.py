"""Accounts in the server's process: everything is killed in the middle of a turn, and the person has one answer."""

from __future__ import annotations

import asyncio
import json
from contextlib import ExitStack
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
    with ExitStack() as living:
        await _killed_and_answered(place, channels, env, living)


async def _killed_and_answered(place: Path, channels: Path, env: dict[str, str], living: ExitStack) -> None:
    async with BotApi() as api, asyncio.timeout(120):
        account = (
            *('channel = "telegram"', 'endpoint = "telegram/bot:123456"', 'strangers = "open"'),
            *(f"settings = {{api_url = {json.dumps(api.url)}, poll_s = 2}}", 'secrets.token.file = "token"'),
        )
        (channels / "house.toml").write_text("\n".join(account))
        await asyncio.to_thread(living.enter_context, killed_at_the_end(env, place))
        api.people.say("Please wait", user=BEN)
        await asyncio.to_thread(until, (place / "begun").exists)
        assert not any(" connect " in command for command in that_know(place)), "no process of a connector"
        await asyncio.to_thread(living.close)
        assert not api.sent
        up = await asyncio.to_thread(living.enter_context, running(env, "up"))
        (place / "go").touch()
        await api.until(lambda: bool(api.sent))
        api.people.say("Thank you", user=BEN)
        await api.until(lambda: len(api.sent) >= 2)
        await asyncio.to_thread(living.close)
        assert up.process.returncode == 0, "it drains and ends as it was told"
        assert api.texts == ["done", "done"]
