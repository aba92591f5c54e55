"""Workers are killed wherever a notice to operators is: it is sent once, or counted in the next, and never lost."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest

from switchboard.lanes.faults import Point
from switchboard.ports.connector import SignInRefused
from switchboard.testing.bot_api import TOKEN, BotApi
from switchboard.testing.oauth import OAuthServer
from switchboard.transport.oauth.token_file import write_tokens
from switchboard.transport.oauth.tokens import TokenFile
from tests.forked import ForkedCommand
from tests.oauth import signed_in
from tests.processes import EXECUTABLE, butler, environment, running, told, write_teams

pytestmark = pytest.mark.slow
POINTS: Final[tuple[Point, ...]] = ("notice_taken", "notice_made", "after_claim", "before_complete", "after_complete")
EXAMINED: Final = ("notify", "notice", "books")
OPERATOR, PERSON, STRANGER = 41, 42, 43
ACCOUNT: Final = "telegram/bot:123456"
TEAM: Final[dict[str, Any]] = {
    "team": {"name": "root"},
    "systems": [butler("clerk", ["sh", "-c", "echo Hello"])],
    "routing_rules": [
        {
            "name": "of the operator",
            "channel": "telegram",
            "filters": {"sender": str(OPERATOR)},
            "targets": [{"system_id": "System1/clerk"}],
        }
    ],
}


def person(number: int) -> dict[str, Any]:
    return {"id": number, "is_bot": False, "first_name": f"Person {number}"}


async def start(env: Mapping[str, str], *command: str, **more: str) -> ForkedCommand[bytes]:
    return await asyncio.to_thread(ForkedCommand, [EXECUTABLE, *command], env={**env, **more})


async def ended(process: ForkedCommand[bytes]) -> int:
    return await asyncio.to_thread(process.wait, 60)


async def end(process: ForkedCommand[bytes]) -> None:
    process.terminate()
    assert await ended(process) == 0


async def ended_account(provider: OAuthServer, place: Path) -> dict[str, Any]:
    """A calendar at Google, signed in to a week ago, whose end was found out when its tokens were to be renewed."""
    kept, week = await signed_in(provider), timedelta(days=7)
    expired = replace(kept, expires_at=kept.expires_at - week, consented_at=kept.consented_at - week)
    write_tokens(place / "ann.token", expired)
    provider.end_consents()
    with pytest.raises(SignInRefused):
        await TokenFile(place / "ann.token").access_token()
    account = {"provider": "google", "url": provider.url, "user": kept.user, "person": "ann"}
    return {"accounts": {"ann": {**account, "token_file": str(place / "ann.token")}}}


async def test_operators_are_told_once_of_each_despite_kills(place: Path) -> None:
    """Of a dead letter, a stranger, and the end of a sign-in."""
    channels = place / "channels.d"
    channels.mkdir()
    # Six workers start one after the other.
    async with BotApi() as api, OAuthServer() as provider, asyncio.timeout(200):
        (channels / "token").touch(mode=0o600)
        (channels / "token").write_text(TOKEN)
        (channels / "house.toml").write_text(
            f'channel = "telegram"\nsettings = {{api_url = "{api.url}", poll_s = 1}}\nsecrets.token.file = "token"\n'
        )
        given = {"TEAMS_DIR": str(write_teams(place / "teams", TEAM)), "CHANNELS_DIR": str(channels)}
        given |= {"MODULES": json.dumps({"calendar": await ended_account(provider, place)})}
        given |= {"ENDPOINTS": json.dumps({ACCOUNT: {"strangers": "pair"}}), "LOG_LEVEL": "error"}
        env = environment(place / "data", NOTIFY=json.dumps([f"{ACCOUNT}/{OPERATOR}"]), **given)
        serving = running(env, "serve")
        server = await asyncio.to_thread(serving.__enter__)

        try:

            async def run(*arguments: str) -> dict[str, Any]:
                return await asyncio.to_thread(lambda: told(server.environment, *arguments))

            connecting = await start(server.environment, "connect", "house")
            await api.until(lambda: api.polling)  # what was written before is history
            for who in (OPERATOR, PERSON, STRANGER):
                api.people.say("my secret wish", user=person(who))
            await api.until(lambda: sum("operator must approve" in text for text in api.texts) == 3)
            for one in (await run("pairing", "list"))["contacts"]:
                if one["identity"] != str(STRANGER):
                    await run("pairing", "approve", one["contact_id"])

            for point in POINTS:
                assert await ended(await start(env, "work", SWITCHBOARD_CRASH_AT=point)) == -signal.SIGKILL, point
            working = await start(env, "work")
            await api.until(lambda: len(notices(api)) == 3)
            write_tokens(place / "ann.token", await signed_in(provider))
            sent = await run("doctor", "--notify")
            assert [one["status"] for one in sent["findings"] if one["name"].partition(":")[0] in EXAMINED] == [
                "ok"
            ] * 4
            await api.until(lambda: len(notices(api)) == 4)
            await end(working)
            await end(connecting)
        finally:
            await asyncio.to_thread(serving.__exit__, None, None, None)
        assert sorted(notices(api)) == [
            (OPERATOR, "Switchboard: 1 dead letter (no_route). See: switchboard dlq list"),
            (
                OPERATOR,
                "Switchboard: 1 sign-in that has ended (ann.token: after seven days, as all do while your Google "
                "project is in Testing: publish it first, under Audience, Publish app). See: switchboard doctor",
            ),
            (OPERATOR, f"Switchboard: 1 stranger who is not let in yet ({ACCOUNT}). See: switchboard pairing list"),
            (OPERATOR, "Switchboard: this is a test. What needs an operator is told here."),
        ]


def notices(api: BotApi) -> list[tuple[int, str]]:
    """The notices that were sent, with their chats."""
    return [(one["chat"]["id"], one["text"]) for one in api.sent if one.get("text", "").startswith("Switchboard: ")]
