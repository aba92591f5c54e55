"""Everything is killed in the middle of turns, and started again: people see at once that answers are worked on."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import pytest

from switchboard.testing.bot_api import TOKEN, BotApi
from tests.processes import Server, butler, environment, running, that_know, until, write_teams

pytestmark = pytest.mark.slow
SOON_S: Final = 2
"""How long a poll lasts: by the end of the first, typing has been shown."""
WAITING: Final = "while [ ! -e {go} ]; do sleep 0.05; done; echo done"


def person(number: int) -> dict[str, Any]:
    return {"id": number, "is_bot": False, "first_name": f"Person {number}"}


@contextmanager
def killed_at_the_end(env: Mapping[str, str], place: Path) -> Iterator[Server]:
    """`up`, which is killed with all of its processes, the database included."""
    with running(env, "up") as up:
        yield up
        up.process.kill()
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                known = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
                if bytes(place) in known and int(process.name) != os.getpid():
                    os.kill(int(process.name), signal.SIGKILL)
        until(lambda: not that_know(place))


async def test_typing_is_shown_again_at_once_for_every_turn_that_was_running(place: Path) -> None:
    go = place / "go"
    team = {
        "team": {"name": "root"},
        "systems": [butler("slow", ["sh", "-c", WAITING.format(go=go)])],
        "routing_rules": [{"name": "all", "channel": "*", "targets": [{"system_id": "System1/slow"}]}],
    }
    teams, channels = write_teams(place / "teams", team), place / "channels.d"
    channels.mkdir()
    (channels / "token").touch(mode=0o600)
    (channels / "token").write_text(TOKEN)
    env = environment(place / "data", TEAMS_DIR=str(teams), CHANNELS_DIR=str(channels), LOG_LEVEL="error")
    chats = {41, 42, 43}
    async with BotApi() as api, asyncio.timeout(240):
        account = (
            *('channel = "telegram"', 'endpoint = "telegram/bot:123456"', 'strangers = "open"'),
            *(f'settings = {{api_url = "{api.url}", poll_s = {SOON_S}}}', 'secrets.token.file = "token"'),
        )
        (channels / "house.toml").write_text("\n".join(account))

        def typed(since: int) -> set[int | None]:
            """The chats where typing was shown."""
            calls = [call for call in api.calls[since:] if call.method == "sendChatAction"]
            return {call.params.number("chat_id") for call in calls}

        living = killed_at_the_end(env, place)
        await asyncio.to_thread(living.__enter__)
        await api.until(lambda: api.polling)
        for chat in chats:
            api.people.say("Please wait", user=person(chat))
        await api.until(lambda: typed(0) >= chats)
        await asyncio.to_thread(living.__exit__, None, None, None)
        before = len(api.calls)
        living = running(env, "up")
        await asyncio.to_thread(living.__enter__)
        await api.until(lambda: typed(before) >= chats)
        polls = [call for call in api.calls[before:] if call.method == "getUpdates"]
        assert len(polls) <= 2, "the first asks without waiting"
        assert not api.sent
        go.touch()
        await api.until(lambda: len(api.sent) == len(chats))
        await asyncio.to_thread(living.__exit__, None, None, None)
