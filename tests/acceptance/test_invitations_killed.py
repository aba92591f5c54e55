"""Invitations by mail, by a real server of calendars that sends none and a real one for mails: each message once.

Wherever the worker is killed: before and after the calendar has the event, and before and after each mail is queued.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from email import message_from_bytes
from pathlib import Path
from typing import Any, Final

import icalendar
import pytest

from switchboard.store.connectors.accounts import Holder, lease_account
from tests.acceptance.inviting_node import TREE
from tests.calendar_house import DAY
from tests.dav_servers import PASSWORD, USER, Answered, Asked, DavProxy, dav_proxy, radicale
from tests.forked import Forked, ForkedCommand, Forks
from tests.mail_servers import PASSWORD as MAIL_PASSWORD
from tests.mail_servers import Postbox, running_pymap, running_smtp
from tests.postgres import Postgres
from tests.processes import environment
from tests.servers import Opened, open_server
from tests.waiting import eventually
from tests.width import wide

pytestmark = pytest.mark.slow

BEN, ZOE = "ben@work.example", "zoe@work.example"
BEFORE_PUT, AFTER_PUT = "before the request", "after the request"
POINTS: Final = (
    *(BEFORE_PUT, AFTER_PUT, "mail_begun:1", "mail_written:1", "mail_queued:1", "mail_begun:2", "mail_queued:2"),
    *("before_journal:1", "before_complete:1", "after_complete:1"),
)
TOOLS: Final = ("create", "update", "delete")
ROUNDS: Final = wide(20, 1)

Key = tuple[str, str, int, str, str]


@dataclass(frozen=True)
class House:
    """A switchboard whose workers invite for Ann."""

    server: Opened
    url: str
    place: Path
    environment: dict[str, str]
    forks: Forks
    diary: DavProxy

    async def ask(self, name: str, tool: str, arguments: Mapping[str, object]) -> None:
        """A message that asks for a call."""
        await self.server.submit(
            {
                "schema_version": "ingest.v1",
                "source": {"channel": "api", "provider": "http", "endpoint_identity": "x"},
                "event": {"external_event_id": name, "observed_at": "2026-11-21T12:00:00Z"},
                "sender": {"identity": "x"},
                "payload": {"normalized_text": json.dumps([tool, arguments])},
            }
        )

    async def work(self, point: str = "") -> None:
        """A worker until all is done, or until it is killed at a point."""
        child: list[Forked] = []
        of_server = point in (BEFORE_PUT, AFTER_PUT)
        self.diary.behave()
        if of_server:
            kill_at(self.diary, point, child)
        env = os.environ | {"SWITCHBOARD_CRASH_AT": "" if of_server else point, "CALENDAR_PASSWORD": PASSWORD}
        words = (self.url, str(self.place), str(self.diary.port))
        errors = self.place / "errors"
        child.append(self.forks.start("tests.acceptance.inviting_node", *words, env=env, errors=errors))
        assert await child[0].wait() == (-signal.SIGKILL if point else 0), errors.read_text()[-3000:]
        self.diary.behave()

    async def send(self) -> None:
        """The connector for e-mail, until nothing is left to be sent; the limits of a day do not count here."""
        with ForkedCommand(["switchboard", "connect", "desk"], env=self.environment, stdin=subprocess.DEVNULL) as one:
            try:
                await eventually(self.is_settled, within=90)
            finally:
                one.kill()
        await self.server.lab.database.run("update mail set created_at = created_at - interval '2 days'")

    async def is_settled(self) -> bool:
        return await self.server.lab.count("select count(*) from outbox where state in ('pending', 'sending')") == 0


def kill_at(diary: DavProxy, point: str, child: list[Forked]) -> None:
    """Kill the worker when it writes an event, before or after the server has it."""

    def is_write(asked: Asked) -> bool:
        return asked.method in ("PUT", "DELETE")

    def kill_before(asked: Asked) -> Answered | None:
        if not is_write(asked):
            return None
        child[0].kill()
        return Answered(500)

    def kill_after(asked: Asked, answered: Answered) -> Answered | None:
        if not is_write(asked):
            return answered
        child[0].kill()
        return None

    if point == BEFORE_PUT:
        diary.before = kill_before
    else:
        diary.after = kill_after


def mailed(postbox: Postbox) -> Counter[Key]:
    """What has arrived, as another implementation reads it."""
    found = Counter[Key]()
    for raw, recipients in zip(postbox.mails, postbox.recipients, strict=True):
        mail = message_from_bytes(raw)
        [part] = [one for one in mail.walk() if one.get_content_type() == "text/calendar"]
        data = part.get_payload(decode=True)
        assert isinstance(data, bytes)
        calendar = icalendar.Calendar.from_ical(data)
        assert calendar["METHOD"] == part.get_param("method")
        events: Any = calendar.walk("VEVENT")
        assert mail["from"].endswith(USER)
        [recipient] = recipients
        found[str(events[0]["UID"]), "", int(events[0]["SEQUENCE"]), str(calendar["METHOD"]), recipient] += 1
    return found


@pytest.fixture
def servers() -> Iterator[tuple[DavProxy, Postbox, Mapping[str, str]]]:
    """Calendars, and what arrives by mail; the settings of the account from which it is sent."""
    with ExitStack() as stack:
        diary = stack.enter_context(dav_proxy(stack.enter_context(radicale())))
        imap, (postbox, smtp) = stack.enter_context(running_pymap()), stack.enter_context(running_smtp())
        yield diary, postbox, {"user": imap.user, "imap": str(imap.port), "smtp": str(smtp)}


@pytest.mark.timeout(3600)
async def test_everybody_is_mailed_once_wherever_the_worker_is_killed(
    postgres: Postgres, tmp_path: Path, forks: Forks, servers: tuple[DavProxy, Postbox, Mapping[str, str]]
) -> None:
    diary, postbox, account = servers
    channels = tmp_path / "channels.d"
    channels.mkdir()
    (channels / "desk.toml").write_text(
        'channel = "email"\nsecrets = {password = {env = "MAIL_PASSWORD"}}\n'
        f'[settings]\naddress = "{USER}"\nuser = "{account["user"]}"\nreceive = false\nsent_copy = "never"\n'
        f'imap = {{host = "127.0.0.1", port = {account["imap"]}, tls = "none"}}\n'
        f'smtp = {{host = "127.0.0.1", port = {account["smtp"]}, tls = "none"}}\n'
    )
    database = await postgres.create()
    url = postgres.url(database)
    try:
        async with open_server(url, tmp_path / "data", tree=TREE) as server:
            known = environment(tmp_path / "data", URL=server.url, CHANNELS_DIR=str(channels))
            known |= {"MAIL_PASSWORD": MAIL_PASSWORD}
            await lease_account(server.lab.database, "email", USER, Holder("nobody", restarted=True))
            house = House(server, url, tmp_path, known, forks, diary)
            expected = Counter[Key]()
            for number in range(ROUNDS):
                expected += await invited_under_kills(house, number)
    finally:
        await postgres.drop(database)
    assert mailed(postbox) == expected
    assert set(expected.values()) == {1}


async def invited_under_kills(house: House, number: int) -> Counter[Key]:
    """One call at each point, of a tool in turn; those that need an event have one. Returns what has to be mailed."""
    expected = Counter[Key]()
    calls = [(at, point, TOOLS[(at + number) % len(TOOLS)]) for at, point in enumerate(POINTS)]
    for at, _, tool in calls:
        if tool != "create":
            await house.ask(f"new {number} {at}", "create", meeting(number, at))
    await house.work()
    await house.send()
    for at, point, tool in calls:
        title = str(meeting(number, at)["title"])
        if tool == "create":
            await house.ask(f"{number} {at}", "create", meeting(number, at))
        else:
            event = uid_of(house, title)
            expected += told(event, "REQUEST", 0)
            place = {"place": "Garden"} if tool == "update" else {}
            await house.ask(f"{number} {at}", tool, {"event": event} | place)
        await house.work(point)
        await house.work()
        event = uid_of(house, title) if tool == "create" else event
        expected += told(event, *{"create": ("REQUEST", 0), "update": ("REQUEST", 1), "delete": ("CANCEL", 1)}[tool])
    await house.send()
    return expected


def meeting(number: int, at: int) -> dict[str, object]:
    """At a time of its own."""
    day = f"{DAY:%Y-%m-%d}"
    return {
        "title": f"Meeting {number} {at}",
        "start": f"{day} {at + 8}:00",
        "invite": [BEN, ZOE],
        "conflicts": "allow",
    }


def uid_of(house: House, title: str) -> str:
    """The UID of the only event with this title."""
    found = []
    for data in house.diary.server.of_events().objects().values():
        events: Any = icalendar.Calendar.from_ical(data).walk("VEVENT")
        found += [str(one["UID"]) for one in events if str(one["SUMMARY"]) == title]
    [uid] = found
    return uid


def told(uid: str, method: str, sequence: int) -> Counter[Key]:
    """A message to both."""
    return Counter({(uid, "", sequence, method, one): 1 for one in (BEN, ZOE)})
