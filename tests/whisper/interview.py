"""The example of the routing document, spoken: a voice message of an onboarding interview reaches the interviewer.

Telegram chat 5488423581 belongs to somebody who is being interviewed; rules of two teams send what comes from there to
the interviewer, whatever it says. In: a server that transcribes, and a spoken file; out: what the interviewer replied,
and what `explain` says. Called with a scripted server by `tests/acceptance`, and with a real one by `test_whisper.py`.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from switchboard.core.voice.recordings import seconds_of_ogg
from switchboard.testing.bot_api import TOKEN, BotApi
from tests.documents import HOME
from tests.processes import environment, running, told

SPOKEN: Final = HOME / "tests/fixtures/voice/interview.oga"
"""espeak-ng says: There are four people in our house, and two of them are children."""
PERSON: Final[dict[str, Any]] = {"id": 5488423581, "is_bot": False, "first_name": "Noor"}
_TEAMS: Final = HOME / "src/switchboard/examples/teams"
_ACCOUNT: Final = """
channel = "telegram"
secrets = {{token = {{env = "BOT_TOKEN"}}}}
handling = {{start = "all"}}
[settings]
api_url = "{url}"
poll_s = 1
"""


class Interview(Struct, frozen=True):
    """The reply of the interviewer, and everything on record about what it answers."""

    reply: str
    explained: dict[str, Any]
    doctor: dict[str, Any]


async def interview(place: Path, url: str, model: str = "whisper-1", within: float = 60.0) -> Interview:
    """Say it to the bot of an installation that transcribes at `url`, within that many seconds."""
    accounts = place / "channels.d"
    accounts.mkdir()
    ours = {"TEAMS_DIR": str(_TEAMS), "CHANNELS_DIR": str(accounts)}
    hearing = {"TRANSCRIPTION__URL": url, "TRANSCRIPTION__MODEL": model, "TRANSCRIPTION__TIMEOUT": str(within)}
    async with BotApi() as api:
        (accounts / "house.toml").write_text(_ACCOUNT.format(url=api.url))
        env = environment(place / "data", **ours, **hearing) | {"BOT_TOKEN": TOKEN, "THINK_SECONDS": "0"}
        starting = running(env, "up")
        up = await asyncio.to_thread(starting.__enter__)
        try:
            data = SPOKEN.read_bytes()
            api.people.voice(data, seconds=seconds_of_ogg(data) or 0, user=PERSON)
            await asyncio.wait_for(api.until(lambda: bool(api.texts)), within + 60)
            return await asyncio.to_thread(_what_happened, dict(up.environment), api.texts[-1])
        finally:
            await asyncio.to_thread(starting.__exit__, None, None, None)


def _what_happened(env: dict[str, str], reply: str) -> Interview:
    [message] = told(env, "messages", "list", "--limit", "1", "--channel", "telegram")["messages"]
    return Interview(reply, told(env, "explain", message["request_id"]), told(env, "doctor"))
