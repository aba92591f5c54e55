"""“Remember that Noor is allergic to hazelnuts” on Telegram is known by mail a month later, to the same person only.

`switchboard up` with real connectors; the model is scripted. The month passes in the database: while nothing runs, all
that is stored gets older.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email import message_from_bytes
from pathlib import Path
from typing import Any, Final

import pytest

from switchboard.store.database import Database
from switchboard.testing.bot_api import ANN, TOKEN, BotApi
from switchboard.testing.scripted_llm import Call, Reply, Request, ScriptedLlm
from tests.mail_servers import OWN, PASSWORD, Imap, Postbox, running_pymap, running_smtp
from tests.processes import environment, running, switchboard, write_teams
from tests.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
FACT: Final = "Noor is allergic to hazelnuts"
ASKED: Final = "What may Noor not have?"
MONTH: Final = timedelta(days=31)
BOB: Final[dict[str, Any]] = {"id": 41, "is_bot": False, "first_name": "Bob"}
LINKED: Final = (("ann", ANN["id"]), ("bob", BOB["id"]))
MAIL: Final = (
    "Authentication-Results: mx.example; dmarc={auth} header.from=x.example\r\nFrom: {who}@x.example\r\n"
    "To: {own}\r\n{cc}Message-ID: <{number}@x.example>\r\nSubject: Lunch\r\n\r\n{text}\r\n"
)
TELEGRAM: Final = (
    'channel = "telegram"\nsecrets = {{token = {{env = "BOT_TOKEN"}}}}\n[settings]\napi_url = "{url}"\npoll_s = 1\n'
    '[handling]\ngroups = "all"\n'
)
DESK: Final = (
    'channel = "email"\nsecrets = {{password = {{env = "MAIL_PASSWORD"}}}}\n'
    '[settings]\naddress = "{own}"\nuser = "{user}"\nidle_s = 0.2\n'
    'imap = {{host = "127.0.0.1", port = {imap}, tls = "none"}}\n'
    'smtp = {{host = "127.0.0.1", port = {smtp}, tls = "none"}}\n'
)
BUTLER: Final[dict[str, Any]] = {
    "name": "cook",
    "type": "operation",
    "engine": "model",
    "config": {"grants": {name: ["remember", "memory_search"] for name in ("others", "groups")}},
}
TIMES: Final = """
select c.table_name, string_agg(format('%1$I = %1$I - $1::interval', c.column_name), ', ') as sets
from information_schema.columns c join information_schema.tables t using (table_schema, table_name)
where c.table_schema = 'switchboard' and t.table_type = 'BASE TABLE' and c.data_type = 'timestamp with time zone'
      and c.is_generated = 'NEVER'
group by c.table_name"""


def cook(request: Request) -> Reply:
    """Has remembered what it is asked to, looks for what it is asked, and repeats what it found."""
    said = request.messages[-1].text
    if request.results:
        return Reply(request.results[-1].text)
    if "remember" in said:
        return Reply(calls=(Call("remember", {"quote": FACT}),))
    return Reply(calls=(Call("memory_search", {"query": ASKED}),))


@dataclass
class House:
    """An installation, and the servers of the platforms."""

    settings: Mapping[str, str]
    api: BotApi
    imap: Imap
    postbox: Postbox
    llm: ScriptedLlm
    mails: int = 0

    @asynccontextmanager
    async def up(self) -> AsyncIterator[None]:
        with ExitStack() as stack:
            server = await asyncio.to_thread(stack.enter_context, running(self.settings, "up"))
            self.settings = server.environment
            yield
            assert await asyncio.to_thread(server.stop) == 0

    def run(self, *arguments: str) -> None:
        done = switchboard(self.settings, *arguments)
        assert done.returncode == 0, done.stderr

    def introduce(self) -> None:
        """Say who writes from where."""
        for person, number in LINKED:
            self.run("people", "add", person, "--name", person.title())
            self.run("people", "link", person, "telegram", str(number))
            self.run("people", "link", person, "email", f"{person}@x.example")

    async def on_telegram(self, text: str = ASKED, user: Any = ANN, **more: Any) -> str:
        """What is answered there."""
        known = len(self.api.sent)
        self.api.people.say(text, user=user, **more)
        await asyncio.wait_for(self.api.until(lambda: len(self.api.sent) > known), 60)
        return self.api.texts[known]

    async def by_mail(self, who: str = "ann", auth: str = "pass", cc: str = "") -> str:
        """The same of a mail, each of a conversation of its own."""
        known = len(self.postbox.mails)
        self.mails += 1
        head = {"who": who, "auth": auth, "own": OWN, "cc": f"Cc: {cc}\r\n" if cc else "", "number": self.mails}
        self.imap.deliver(MAIL.format(**head, text=ASKED).encode())

        async def is_answered() -> bool:
            return len(self.postbox.mails) > known

        await eventually(is_answered, within=60)
        [part] = [
            one for one in message_from_bytes(self.postbox.mails[-1]).walk() if one.get_content_type() == "text/plain"
        ]
        text = part.get_payload(decode=True)
        assert isinstance(text, bytes)
        return " ".join(text.decode().split())


@contextmanager
def built_house(place: Path, database_url: str, api: BotApi, llm: ScriptedLlm) -> Iterator[House]:
    rule = {"name": "all", "channel": "*", "targets": [{"system_id": "System1/cook"}]}
    teams = write_teams(place / "teams", {"team": {"name": "root"}, "systems": [BUTLER], "routing_rules": [rule]})
    channels = place / "channels.d"
    channels.mkdir()
    with running_pymap() as imap, running_smtp() as (postbox, smtp):
        (channels / "house.toml").write_text(TELEGRAM.format(url=api.url))
        (channels / "desk.toml").write_text(DESK.format(own=OWN, user=imap.user, imap=imap.port, smtp=smtp))
        model = {"name": "own", "kind": "openai", "model": "scripted-1", "base_url": f"{llm.url}/v1"}
        ours = {
            "DATABASE_URL": database_url,
            "TEAMS_DIR": str(teams),
            "CHANNELS_DIR": str(channels),
            "EMAIL__TRUSTED_SERVERS": json.dumps({"*": ["mx.example"]}),
            "MODELS": json.dumps([model]),
        }
        secrets = {"BOT_TOKEN": TOKEN, "MAIL_PASSWORD": PASSWORD}
        yield House(environment(place / "data", **ours) | secrets, api, imap, postbox, llm)


async def pass_time(database_url: str, time: timedelta) -> None:
    """All that is stored is so much older."""
    database = await Database.connect(database_url, size=1)
    try:
        async with database.transaction() as one:
            await one.run("select facts_open(true)")
            for table in await one.rows(TIMES):
                await one.run(f'update "{table["table_name"]}" set {table["sets"]}', time)  # noqa: S608 - names of columns
    finally:
        await database.close()


async def test_what_was_said_on_telegram_is_known_by_mail_a_month_later(place: Path, database_url: str) -> None:
    said_on = datetime.now(UTC) - MONTH
    async with BotApi() as api, ScriptedLlm(cook) as llm:
        building = built_house(place, database_url, api, llm)
        house = await asyncio.to_thread(building.__enter__)
        try:
            async with house.up():
                await asyncio.to_thread(house.introduce)
                assert FACT in await house.on_telegram(f"Please remember that {FACT}.")
            await pass_time(database_url, MONTH)
            async with house.up():
                first = len(llm.requests)
                found = await house.by_mail()
                assert FACT in found
                assert FACT in llm.requests[first].messages[-1].text, "before it has looked for it"
                assert f"{said_on:%Y-%m-%d}" in found
                await others_are_told_nothing(house)
                assert FACT in await house.on_telegram()
        finally:
            await asyncio.to_thread(building.__exit__, None, None, None)


async def others_are_told_nothing(house: House) -> None:
    """Neither in an answer nor in anything that the model is sent for it."""
    home = house.api.people.group()
    ways: tuple[Callable[[], Any], ...] = (
        lambda: house.on_telegram(user=BOB),
        lambda: house.by_mail("bob"),
        lambda: house.by_mail(cc="bob@x.example"),
        lambda: house.by_mail(auth="fail"),
        lambda: house.on_telegram(chat=home),
        lambda: house.on_telegram(user=BOB, chat=home),
    )
    first = len(house.llm.requests)
    for way in ways:
        assert "hazelnut" not in await way()
    sent = [json.dumps(dict(one.body)) for one in house.llm.requests[first:]]
    assert len(sent) >= len(ways)
    assert not [one for one in sent if "hazelnut" in one]
