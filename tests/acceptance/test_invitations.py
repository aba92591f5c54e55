"""“Am I free on Thursday afternoon? If so, invite Ben for an hour”, on Telegram and by mail, and killed in the middle.

A real server of calendars and address books sends the invitations: Cyrus. The model is scripted.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from email import message_from_bytes
from email.message import Message
from email.utils import parseaddr
from pathlib import Path
from typing import Any, Final

import pytest

from switchboard.testing.bot_api import TOKEN, BotApi
from switchboard.testing.scripted_llm import Call, Reply, Request, ScriptedLlm
from tests.cyrus_server import cyrus
from tests.dav_servers import PASSWORD as DIARY_PASSWORD
from tests.dav_servers import USER, Answered, Asked, DavProxy, SendingServer, dav_proxy
from tests.mail_servers import OWN, PASSWORD, Imap, Postbox, running_pymap, running_smtp
from tests.places import passable
from tests.processes import environment, running, switchboard, write_teams
from tests.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
ANN: Final[dict[str, Any]] = {"id": 41, "is_bot": False, "first_name": "Ann"}
ASKED: Final = "Am I free on {day} afternoon? If so, invite Ben for an hour."
BEN: Final = "ben.baker@friends.example"
FRIENDS: Final = {"Ben Baker": BEN, "Benedict Stone": "stone@friends.example", "Mia Novak": "mia@friends.example"}
CARD: Final = (
    "BEGIN:VCARD\r\nVERSION:3.0\r\nUID:{uid}\r\nFN:{name}\r\nN:{last};{first};;;\r\nEMAIL:{mail}\r\nEND:VCARD\r\n"
)
MAIL: Final = (
    "Authentication-Results: mx.example; dmarc=pass header.from=x.example\r\nFrom: Ann <ann@x.example>\r\n"
    "To: {to}\r\nMessage-ID: <{number}@x.example>\r\nIn-Reply-To: {about}\r\nSubject: note\r\n\r\n{text}\r\n"
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
    "config": {"owners": ["person:ann"], "modules": ["calendar", "contacts"]},
}


def next_day(weekday: int) -> date:
    """The next day with this weekday (Monday is 0), tomorrow at the earliest."""
    today = datetime.now(UTC).date()
    return today + timedelta(days=(weekday - today.weekday() - 1) % 7 + 1)


def secretary(request: Request) -> Reply:
    """Does what it is asked: who Ben is and whether Ann is free, then the invitation, then the answer."""
    asked = [said.text for said in request.messages if said.role == "user"][-1]
    day = "Friday" if "Friday" in asked else "Thursday"
    results = [said.text for said in request.results]
    if not results:
        looked = Call("calendar_free_busy", {"day": day.lower(), "part": "afternoon"})
        return Reply(calls=(Call("contacts_resolve", {"who": "Ben"}), looked))
    if len(results) == 2:
        when = f"{day} {next_day(3 if day == 'Thursday' else 4)} 14:00"
        meeting = {"title": "An hour with Ann", "start": when, "end": "15:00", "invite": ["Ben"]}
        return Reply(calls=(Call("calendar_create", meeting),))
    return Reply(text=f"{day}: {results[0]}")


@pytest.fixture
async def api() -> AsyncIterator[BotApi]:
    async with BotApi() as opened:
        yield opened


@dataclass
class House:
    """An installation that can be killed; `diary` is before the server of calendars, which is `cyrus`."""

    place: Path
    settings: Mapping[str, str]
    imap: Imap
    postbox: Postbox
    diary: DavProxy
    cyrus: SendingServer

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

    @property
    def invited(self) -> list[tuple[str, str]]:
        """To whom the server of calendars has sent mails, and what each asks for."""
        return [(parseaddr(mail["to"])[1], method_of(mail)) for mail in self.cyrus.mails]


def method_of(mail: Message) -> str:
    """What the mail of a calendar asks for."""
    [part] = [one for one in mail.walk() if one.get_content_type() == "text/calendar"]
    return str(part.get_param("method"))


@contextmanager
def built_house(place: Path, api: BotApi, llm: ScriptedLlm) -> Iterator[House]:
    team = {"team": {"name": "root"}, "systems": [BUTLER]}
    team["routing_rules"] = [{"name": "all", "channel": "*", "targets": [{"system_id": "System1/hers"}]}]
    teams = write_teams(place / "teams", team)
    channels = place / "channels.d"
    channels.mkdir()
    with ExitStack() as stack:
        imap, (postbox, smtp) = stack.enter_context(running_pymap()), stack.enter_context(running_smtp())
        server = stack.enter_context(cyrus())
        diary = stack.enter_context(dav_proxy(server))
        for number, (name, mail) in enumerate(FRIENDS.items()):
            first, _, last = name.partition(" ")
            server.put(f"{number}.vcf", CARD.format(uid=number, name=name, first=first, last=last, mail=mail).encode())
        (channels / "house.toml").write_text(TELEGRAM.format(url=api.url))
        (channels / "desk.toml").write_text(DESK.format(own=OWN, user=imap.user, imap=imap.port, smtp=smtp))
        url = f"http://127.0.0.1:{diary.port}/"
        account = {"url": url, "user": USER, "password": {"env": "DIARY_PASSWORD"}, "person": "ann", "sends": "server"}
        modules = {name: {"accounts": {"ann": account}} for name in ("calendar", "contacts")}
        model = {"name": "own", "kind": "openai", "model": "scripted-1", "base_url": f"{llm.url}/v1"}
        ours = {
            "TEAMS_DIR": str(teams),
            "CHANNELS_DIR": str(channels),
            "EMAIL__TRUSTED_SERVERS": json.dumps({"*": ["mx.example"]}),
            "MODULES": json.dumps(modules),
            "MODELS": json.dumps([model]),
        }
        secrets = {"BOT_TOKEN": TOKEN, "MAIL_PASSWORD": PASSWORD, "DIARY_PASSWORD": DIARY_PASSWORD}
        settings = environment(place / "data", **ours) | secrets
        yield House(place, settings, imap, postbox, diary, server)


async def introduce(settings: Mapping[str, str]) -> None:
    """Say who Ann is, and wait until the modules have read her account."""

    def run(*arguments: str) -> str:
        done = switchboard(settings, *arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def link() -> None:
        run("people", "add", "ann", "--name", "Ann")
        run("people", "link", "ann", "telegram", "41")
        run("people", "link", "ann", "email", "ann@x.example")

    def is_read() -> bool:
        listed = json.loads(run("modules", "list", "--json"))["modules"]
        chores = [one for module in listed for one in module["chores"] if one["account"] and one["name"] == "sync"]
        return len(chores) == 2 and all(one["last_at"] and not one["error"] for one in chores)

    await asyncio.to_thread(link)

    async def have_read() -> bool:
        return await asyncio.to_thread(is_read)

    await eventually(have_read, within=60)


def asked_for(text: str) -> str:
    """The id in a request for an approval."""
    found = re.search(r"/approve ([0-9a-f]{8})", text)
    assert found, text
    return found[1]


async def test_ben_is_invited_once_whatever_is_killed(api: BotApi) -> None:
    with passable("switchboard invites ") as place:
        async with ScriptedLlm(secretary) as llm:
            building = built_house(place, api, llm)
            house = await asyncio.to_thread(building.__enter__)
            try:
                await invite_on_telegram(house, api)
                await invite_by_mail(house)
            finally:
                house.kill()
                await asyncio.to_thread(building.__exit__, None, None, None)


async def invite_on_telegram(house: House, api: BotApi) -> None:
    """The process is killed after the server has written and invited, and before it could say so."""
    written, gone = threading.Event(), threading.Event()

    def hold(asked: Asked, answered: Answered) -> Answered | None:
        if asked.method == "PUT":
            written.set()
            gone.wait(60)
            return None
        return answered

    with ExitStack() as stack:
        await asyncio.to_thread(stack.enter_context, house.up())
        await introduce(house.settings)
        api.people.say(ASKED.format(day="Thursday"), user=ANN)
        await asyncio.wait_for(api.until(lambda: bool(api.texts)), 60)
        request = api.texts[0]
        assert BEN in request
        assert f"Thursday {next_day(3)} 14:00-15:00" in request
        assert house.invited == []
        house.diary.after = hold
        api.people.say(f"/approve {asked_for(request)}", user=ANN)
        assert await asyncio.to_thread(written.wait, 60)
        assert house.invited == [(BEN, "REQUEST")]
        house.kill()
        gone.set()
        house.diary.behave()
    said = len(api.texts)
    with ExitStack() as stack:
        await asyncio.to_thread(stack.enter_context, house.up())

        def is_answered() -> bool:
            return any(text.startswith("Thursday: ") for text in api.texts[said:])

        await asyncio.wait_for(api.until(is_answered), 120)
        assert '"created":"An hour with Ann"' in api.texts[-1]
        assert house.invited == [(BEN, "REQUEST")]
        assert len(house.cyrus.of_events().names()) == 1
        # The same hour is taken now: others are proposed, and nobody is asked or invited.
        before = len(api.texts)
        api.people.say("And on Thursday once more?", user=ANN)
        await asyncio.wait_for(api.until(lambda: len(api.texts) > before), 60)
        assert f"Free times: Thursday {next_day(3)} 15:00-16:00" in api.texts[-1]
        assert house.invited == [(BEN, "REQUEST")]
        await asyncio.to_thread(stack.close)


async def invite_by_mail(house: House) -> None:
    """For another day; approved by mail, too."""

    def written(number: int, about: str, text: str) -> bytes:
        return MAIL.format(to=OWN, number=number, about=about, text=text).encode()

    async def is_asked() -> bool:
        return len(house.postbox.mails) > 0

    async def is_answered() -> bool:
        return any('Friday: {"created"' in text_of(message_from_bytes(one)) for one in house.postbox.mails)

    with ExitStack() as stack:
        await asyncio.to_thread(stack.enter_context, house.up())
        house.imap.deliver(written(1, "", ASKED.format(day="Friday")))
        await eventually(is_asked, within=60)
        [asked] = map(message_from_bytes, house.postbox.mails)
        request = text_of(asked)
        assert BEN in request
        assert f"Friday {next_day(4)} 14:00-15:00" in request
        house.imap.deliver(written(2, asked["message-id"], f"/approve {asked_for(request)}"))
        await eventually(is_answered, within=60)
        assert house.invited == [(BEN, "REQUEST")] * 2
        assert len(house.cyrus.of_events().names()) == 2
        answer = "".join(text_of(message_from_bytes(house.postbox.mails[-1])).split())
        [change] = re.findall(r'"change":"([0-9a-f]{12})"', answer)
        await asyncio.to_thread(undo_at_the_terminal, house, change)
        assert house.invited == [(BEN, "REQUEST"), (BEN, "REQUEST"), (BEN, "CANCEL")]
        assert len(house.cyrus.of_events().names()) == 1
        await asyncio.to_thread(stack.close)


def undo_at_the_terminal(house: House, change: str) -> None:
    """As docs/calendar-writing.md says; approved, as Ben is told."""

    def run(*arguments: str) -> Mapping[str, Any]:
        done = switchboard(house.settings, *arguments, "--json")
        assert done.returncode == 0, done.stderr
        said: Mapping[str, Any] = json.loads(done.stdout)
        return said

    call = ("modules", "call", "hers", "calendar_undo", json.dumps({"change": change}), "--as", "ann", "--key", "undo")
    asked = run(*call)
    assert asked["state"] == "pending", asked
    shown = json.dumps(run("approvals", "show", asked["approval_id"]))
    assert "An hour with Ann" in shown
    assert f"The server mails: {BEN}" in shown
    run("approvals", "approve", asked["approval_id"])
    ended = run(*call)
    assert ended["state"] == "done", ended
    assert json.loads(ended["text"])["undone"] == change


def text_of(mail: Message) -> str:
    """The text of a mail."""
    [part] = [one for one in mail.walk() if one.get_content_type() == "text/plain"]
    payload = part.get_payload(decode=True)
    assert isinstance(payload, bytes)
    return payload.decode()
