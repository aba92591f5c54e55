"""The other side of WhatsApp, for the checks of connectors."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from msgspec.structs import replace

from switchboard.connectors.kernel.accounts import Configured
from switchboard.connectors.whatsapp.channel import open_number
from switchboard.connectors.whatsapp.manifest import MANIFEST as WHATSAPP
from switchboard.domain.json_values import JsonObject
from switchboard.ports.connector import Account, Session
from switchboard.testing.connectors import Received, Shown
from switchboard.testing.loopback import bound
from switchboard.testing.whatsapp import (
    APP_SECRET,
    NUMBER,
    TOKEN,
    BusinessMessage,
    CloudPerson,
    GraphError,
    WhatsAppServer,
)
from tests.drivers import ANSWERED, without_pauses

SECRETS: Final = {"token": TOKEN, "app_secret": APP_SECRET}
_AGAIN: Final = 3
_BATCH: Final = 10


@dataclass(slots=True)
class WhatsAppDriver:
    """People who write to a number. Meta posts the last messages again behind each new one."""

    server: WhatsAppServer
    hook_url: str
    settings: JsonObject = field(default_factory=dict)
    people: dict[str, CloudPerson] = field(default_factory=dict)
    last: dict[str, JsonObject] = field(default_factory=dict)
    reported: JsonObject = field(default_factory=dict)
    """The last report of a failure."""
    longest: int = 65_536
    captionless: str = "a.ogg"

    @property
    def configured(self) -> Configured:
        known = {"phone_number_id": NUMBER, "api_url": self.server.url, **self.settings}
        account = Account("house", WHATSAPP.settings.model_validate(known), SECRETS, self.hook_url)
        return Configured(replace(without_pauses(WHATSAPP), open=self._open), account, ANSWERED)

    async def _open(self, account: Account) -> Session:
        """By the clock of the server, which a test can move."""
        return await open_number(account, self.server.clock)

    async def says(self, thread: str, text: str) -> None:
        self.last[thread] = self.server.people.say(text, self.person(thread))
        self.server.hooks.post_again(_AGAIN)

    async def brings(self, thread: str, text: str, data: bytes) -> None:
        kind, about = "application/octet-stream", {"caption": text, "filename": "a.bin"}
        self.server.people.send_file("document", data, kind, self.person(thread), **about)

    def loses_files(self) -> None:
        self.server.people.lose_files()

    async def edits(self, thread: str, text: str) -> None:
        self.server.people.edit(self.last[thread], text, self.person(thread))

    async def deletes(self, thread: str) -> None:
        self.server.people.revoke(self.last[thread], self.person(thread))

    async def buttons(self, thread: str) -> Sequence[str]:
        return [one["reply"]["title"] for one in self._asked(thread).content["interactive"]["action"]["buttons"]]

    async def presses(self, thread: str, label: str) -> None:
        self.server.people.press(self._asked(thread), label)

    def _asked(self, thread: str) -> BusinessMessage:
        return next(one for one in reversed(self.server.sent) if one.person == self.people[thread])

    async def fails_later(self, *, again: bool = False) -> None:
        """As of somebody who has blocked the number."""
        if again:
            self.server.hooks.add(self.reported)
        else:
            self.reported = self.server.people.report(self.server.sent[-1], "failed", 131026)

    async def shown(self) -> Sequence[Shown]:
        return [Shown(self._thread_of(one), one.text) for one in self.server.sent]

    async def received(self) -> Sequence[Received]:
        return [Received(one.text, self._files(one)) for one in self.server.sent]

    def _files(self, message: BusinessMessage) -> tuple[tuple[str, bytes], ...]:
        media = self.server.business.media.get(str((message.content.get(str(message.content["type"])) or {}).get("id")))
        return ((media.filename, media.data),) if media else ()

    def _thread_of(self, message: BusinessMessage) -> str:
        return next(thread for thread, one in self.people.items() if one == message.person)

    def puts_off(self, times: int, seconds: float) -> None:
        """Meta names no time: of a limit of somebody we wait for 4 s first, of a failure of its own for 15 s."""
        code = 131056 if seconds <= 4 else 131016
        self.server.spoil("POST messages", *(GraphError(code) for _ in range(times)))

    def given_keys(self) -> Sequence[str]:
        return [call.request.body["biz_opaque_callback_data"] for call in self.server.calls_of("POST messages")]

    def limits_account(self, seconds: float) -> None:
        self.server.graph.limit_account(seconds)

    def hasty(self) -> int:
        return self.server.graph.hasty

    @asynccontextmanager
    async def away(self) -> AsyncIterator[None]:
        async with self.server.closed():
            yield

    def asked(self) -> int:
        return len(self.server.calls)

    def person(self, thread: str) -> CloudPerson:
        number = len(self.people)
        return self.people.setdefault(thread, CloudPerson(f"US.{1000 + number}", f"1650555{number:04}", thread))


@asynccontextmanager
async def whatsapp_driver(server: WhatsAppServer) -> AsyncIterator[WhatsAppDriver]:
    """With a port for its hook, which nothing else gets meanwhile. What waits is posted in batches."""
    server.hooks.batch = _BATCH
    with bound(0) as kept:
        yield WhatsAppDriver(server, f"http://127.0.0.1:{kept.getsockname()[1]}/hooks/house")
