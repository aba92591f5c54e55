"""One person on two channels, with real processes: linked by an operator and by a code, and unlinked again."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from email import message_from_bytes
from pathlib import Path
from typing import Any, Final

import pytest

from switchboard.testing.bot_api import TOKEN, BotApi
from tests.mail_servers import OWN, PASSWORD, Imap, Postbox, running_pymap, running_smtp
from tests.places import passable
from tests.processes import butler, environment, running, told, write_teams
from tests.waiting import eventually

pytestmark = pytest.mark.slow
ANN: Final[dict[str, Any]] = {"id": 41, "is_bot": False, "first_name": "Ann"}
MAIL: Final = (
    "Authentication-Results: mx.example; dmarc=pass header.from=x.example\r\nFrom: Ann <ann@x.example>\r\n"
    f"To: {OWN}\r\nMessage-ID: <{{n}}@x.example>\r\nSubject: note\r\n\r\n{{text}}\r\n"
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


@pytest.fixture
async def api() -> AsyncIterator[BotApi]:
    async with BotApi() as opened:
        yield opened


class House:
    """`switchboard up` with an account of Telegram and a mailbox, and what Ann does."""

    def __init__(self, env: dict[str, str], api: BotApi, imap: Imap, postbox: Postbox) -> None:
        self._env = env
        self._api = api
        self._imap = imap
        self._postbox = postbox
        self._numbers = itertools.count()

    async def run(self, *arguments: str) -> dict[str, Any]:
        return await asyncio.to_thread(lambda: told(self._env, *arguments))

    async def say(self, text: str) -> str:
        """In the chat with the bot; returns the reply."""
        before = len(self._api.texts)
        self._api.people.say(text, user=ANN, chat=None)
        await asyncio.wait_for(self._api.until(lambda: len(self._api.texts) > before), 60)
        return self._api.texts[before]

    async def write(self, text: str) -> str:
        """By mail; returns the reply."""
        before = len(self._postbox.mails)
        self._imap.deliver(MAIL.format(n=next(self._numbers), text=text).encode())

        async def is_answered() -> bool:
            return len(self._postbox.mails) > before

        await eventually(is_answered, within=60)
        parts = message_from_bytes(self._postbox.mails[before]).walk()
        [payload] = [one.get_payload(decode=True) for one in parts if one.get_content_type() == "text/plain"]
        assert isinstance(payload, bytes)
        return " ".join(payload.decode().split())

    async def receiver(self, channel: str) -> tuple[str, str | None]:
        """Which butler gets Ann's next message on a channel, and whose `explain` says that it was."""
        await (self.say("a note") if channel == "telegram" else self.write("a note"))
        [newest] = (await self.run("messages", "list", "--limit", "1", "--channel", channel))["messages"]
        explained = await self.run("explain", newest["request_id"])
        [decision] = explained["decisions"]
        [branch] = explained["deliveries"]
        return branch["delivery"]["system_id"], decision["facts"].get("person")

    async def goes_to(self, channel: str, name: str, person: str | None) -> bool:
        """Whether that is so; a message may be on its way while a change becomes known."""
        return await self.receiver(channel) == (f"System1/{name}", person)


@contextmanager
def opened_house(place: Path, api: BotApi) -> Iterator[House]:
    teams = write_teams(place / "teams", {"team": {"name": "root"}, "systems": [butler("hers"), butler("others")]})
    accounts = place / "channels.d"
    accounts.mkdir()
    with running_pymap() as imap, running_smtp() as (postbox, smtp):
        (accounts / "house.toml").write_text(TELEGRAM.format(url=api.url))
        (accounts / "desk.toml").write_text(DESK.format(own=OWN, user=imap.user, imap=imap.port, smtp=smtp))
        trusted = json.dumps({"*": ["mx.example"]})
        ours = {"TEAMS_DIR": str(teams), "CHANNELS_DIR": str(accounts), "EMAIL__TRUSTED_SERVERS": trusted}
        secrets = {"BOT_TOKEN": TOKEN, "MAIL_PASSWORD": PASSWORD}
        with running(environment(place / "data", **ours) | secrets, "up") as up:
            yield House(dict(up.environment), api, imap, postbox)


async def test_a_person_is_one_on_two_channels_until_unlinked(api: BotApi) -> None:
    with passable("switchboard people ") as place:
        starting = opened_house(place, api)
        house = await asyncio.to_thread(starting.__enter__)
        try:
            await tell_story(house)
        finally:
            await asyncio.to_thread(starting.__exit__, None, None, None)


async def tell_story(house: House) -> None:
    to = ("rules", "create", "--team", "root", "--channel", "*", "--reason", "test", "--to")
    await house.run(*to, "others", "--name", "all")
    await house.run(*to, "hers", "--name", "Ann's", "--filter", "person=ann")
    assert await house.receiver("telegram") == ("System1/others", None)
    assert "Nobody has said yet" in await house.say("/link")
    await house.run("people", "add", "ann", "--name", "Ann")
    await house.run("people", "link", "ann", "telegram", "41")
    await eventually(lambda: house.goes_to("telegram", "hers", "ann"), within=60)
    assert await house.receiver("email") == ("System1/others", None)

    code = re.search(r"^/link \S+$", await house.say("/link"), re.MULTILINE)
    assert code is not None
    assert "count as one person" in await house.write(code[0])
    await eventually(lambda: house.goes_to("email", "hers", "ann"), within=60)
    linked = (await house.run("people", "show", "ann"))["person"]["handles"]
    assert [(one["channel"], one["linked_by"]) for one in linked] == [
        ("email", "code of telegram:41"),
        ("telegram", linked[1]["linked_by"]),
    ]

    await house.run("people", "unlink", "ann", "email", "ann@x.example")
    await eventually(lambda: house.goes_to("email", "others", None), within=60)
    assert await house.receiver("telegram") == ("System1/hers", "ann")
    erased = (await house.run("people", "erase", "ann", "--dry-run"))["erasure"]["erased"]
    assert {one["kept_in"]: one["count"] > 0 for one in erased}["messages"]
