"""The other sides of Telegram, e-mail and a folder, for the checks of connectors."""

from __future__ import annotations

import asyncio
import imaplib
import smtplib
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email import message_from_bytes, policy
from email.message import EmailMessage
from email.utils import format_datetime
from pathlib import Path
from typing import Final

import pytest
from msgspec.structs import replace

from switchboard.connectors.email.manifest import MANIFEST as EMAIL
from switchboard.connectors.email.settings import EmailAccountSettings
from switchboard.connectors.kernel.accounts import Configured
from switchboard.connectors.kernel.intake import Handling
from switchboard.connectors.telegram.manifest import MANIFEST as TELEGRAM
from switchboard.domain.json_values import JsonObject
from switchboard.ports.connector import Account, Manifest
from switchboard.testing.bot_api import TOKEN, BotApi
from switchboard.testing.bot_api.world import Chat
from switchboard.testing.connectors import Received, Shown
from switchboard.transport.mail_servers.server import Server
from tests.mail_servers import OWN, PASSWORD, Dovecot, Imap, Postfix
from tests.waiting import eventually

ANSWERED: Final = Handling(start="all", on_uncertain="resend_marked", on_stale="answer")
_HOUSE: Final = "House"


def without_pauses(manifest: Manifest, text_limit: int | None = None) -> Manifest:
    """As fast as it goes; with a lower limit of a text, if one is given."""
    able = manifest.capabilities
    quick = replace(
        able, per_account_s=0.0, per_conversation_s=0.0, brake=None, text_limit=text_limit or able.text_limit
    )
    return replace(manifest, capabilities=quick)


@dataclass(slots=True)
class TelegramDriver:
    """People who write to a bot, each in a chat of their own."""

    api: BotApi
    last: dict[str, JsonObject] = field(default_factory=dict)
    threads: list[str] = field(default_factory=list)
    longest: int = 4096
    places: dict[str, Chat] = field(default_factory=dict)
    topics: dict[tuple[int, int], str] = field(default_factory=dict)
    """The names of topics, by the ids of their group and of themselves, which are numbered anew in each group."""
    heard: list[JsonObject] = field(default_factory=list)
    """The updates that there were before the platform started over."""

    @property
    def configured(self) -> Configured:
        settings = TELEGRAM.settings.model_validate({"api_url": self.api.url, "poll_s": 50})
        return Configured(without_pauses(TELEGRAM), Account("house", settings, {"token": TOKEN}), ANSWERED)

    async def says(self, thread: str, text: str) -> None:
        self.last[thread] = self.api.people.say(text, user=self._person(thread))
        self.heard += self.api.world.updates[-1:]

    async def buttons(self, thread: str) -> Sequence[str]:
        return [one["text"] for row in self._keyboard(thread)[1] for one in row]

    async def presses(self, thread: str, label: str) -> None:
        message, rows = self._keyboard(thread)
        data = next(one["callback_data"] for row in rows for one in row if one["text"] == label)
        self.api.people.press(message, data, user=self._person(thread))

    def _keyboard(self, thread: str) -> tuple[JsonObject, list[list[JsonObject]]]:
        message = next(one for one in reversed(self.api.sent) if self._thread_of(one) == thread)
        return message, message["reply_markup"]["inline_keyboard"]

    async def calls(self, place: str, thread: str, text: str) -> None:
        """In a topic of a forum."""
        people, bot = self.api.people, self.api.world.bot
        if place not in self.places:
            self.places[place] = people.group(-1000 - len(self.places), title=place)
        group, chat = self.places[place], self.places[place].about["id"]
        topic = next((topic for (there, topic), name in self.topics.items() if (there, name) == (chat, thread)), None)
        if topic is None:
            topic = people.topic(group, thread)
            self.topics[chat, topic] = thread
        name = f"@{bot['username']}"
        mention = {"type": "mention", "offset": 0, "length": len(name)}
        people.say(f"{name} {text}", group, user=self._person("somebody"), topic=topic, entities=[mention])

    async def splits(self, thread: str, text: str) -> None:
        for start in range(0, len(text), self.longest):
            await self.says(thread, text[start : start + self.longest])

    async def brings(self, thread: str, text: str, data: bytes) -> None:
        self.api.people.document(data, "a.bin", "application/octet-stream", user=self._person(thread), caption=text)

    def loses_files(self) -> None:
        self.api.people.lose_files()

    async def edits(self, thread: str, text: str) -> None:
        self.api.people.edit(self.last[thread], text)

    async def own_says(self, thread: str, text: str) -> None:
        """As in a channel that it writes to."""
        chat = self.api.world.private(self._person(thread))
        self.api.people.say(text, chat, user=self.api.world.bot)

    async def bot_says(self, thread: str, text: str) -> None:
        self.api.people.say(text, user=self._person(thread) | {"is_bot": True})

    async def starts_over(self) -> None:
        """What was confirmed is given again, with a field more; later, ids begin at a random number, which is low."""
        if self.api.world.next_update > 1_000_000 and self.heard:
            again = [one | {"message": one["message"] | {"has_protected_content": True}} for one in self.heard]
            self.api.world.updates[:0] = again
            self.heard = []
        else:
            self.api.world.next_update = 1_000
            self.api.world.updates.clear()

    async def shown(self) -> Sequence[Shown]:
        return [Shown(self._thread_of(one), _words(one)) for one in self.api.sent]

    def _thread_of(self, message: JsonObject) -> str:
        """A message outside its topic is in none."""
        chat = message["chat"]["id"]
        return (
            self.threads[chat - 1000] if chat > 0 else self.topics.get((chat, message.get("message_thread_id", 0)), "")
        )

    async def received(self) -> Sequence[Received]:
        return [Received(_words(one), self._files(one)) for one in self.api.sent]

    def _files(self, message: JsonObject) -> tuple[tuple[str, bytes], ...]:
        about = message.get("document")
        return ((str(about["file_name"]), self.api.world.files[about["file_id"]]),) if about else ()

    @asynccontextmanager
    async def away(self) -> AsyncIterator[None]:
        async with self.api.closed():
            yield

    def asked(self) -> int:
        return sum(call.method != "getUpdates" for call in self.api.calls)

    def _person(self, thread: str) -> JsonObject:
        if thread not in self.threads:
            self.threads.append(thread)
        return {"id": 1000 + self.threads.index(thread), "is_bot": False, "first_name": thread}


def _words(message: JsonObject) -> str:
    return str(message.get("text") or message.get("caption") or "")


@dataclass(slots=True)
class Relay:
    """Before a server on loopback; it can be out of reach. `said`: all that its clients have said."""

    port: int
    _behind: int
    said: bytearray = field(default_factory=bytearray)
    _writers: set[asyncio.StreamWriter] = field(default_factory=set)
    _server: asyncio.Server | None = None

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Connections are refused; those that are open end."""
        assert self._server is not None
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        theirs, ours = await asyncio.open_connection("127.0.0.1", self._behind)
        self._writers |= {writer, ours}
        await asyncio.gather(_carried(reader, ours, self.said), _carried(theirs, writer, bytearray()))
        self._writers -= {writer, ours}


async def _carried(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, said: bytearray) -> None:
    with suppress(OSError):
        while piece := await reader.read(65536):
            said += piece
            writer.write(piece)
            await writer.drain()
    writer.close()


@dataclass(slots=True)
class MailDriver:
    """People who write mails to a folder of a mailbox, and get answers by SMTP."""

    imap: Imap
    client: imaplib.IMAP4
    delivered: list[bytes]
    ways: tuple[Relay, Relay]
    """To IMAP and SMTP."""
    said: Counter[str] = field(default_factory=Counter)
    read: list[tuple[str, Received]] = field(default_factory=list)
    """The answers that were looked at already."""
    returned: bytes = b""
    """The last notice that a mail was not delivered."""
    longest: int = 200_000  # what is longer is cut, and says so

    @property
    def configured(self) -> Configured:
        imap, smtp = (Server(host="127.0.0.1", port=way.port, tls="none") for way in self.ways)
        settings = EmailAccountSettings(
            address=OWN, user=self.imap.user, imap=imap, smtp=smtp, idle_s=0.1, folder=_HOUSE
        )
        manifest = without_pauses(EMAIL, text_limit=20_000)
        return Configured(manifest, Account("desk", settings, {"password": PASSWORD}), ANSWERED)

    async def says(self, thread: str, text: str) -> None:
        await self._sends(thread, text)

    async def brings(self, thread: str, text: str, data: bytes) -> None:
        await self._sends(thread, text, data)

    async def _sends(self, thread: str, text: str, data: bytes | None = None) -> None:
        mail = EmailMessage(policy=policy.SMTP)
        mail["From"], mail["To"] = f"{thread}@x.example", OWN  # no subject: it would be part of the text
        first, before = f"<{thread}@x.example>", self.said[thread]
        mail["Message-ID"] = f"<{thread}.{before}@x.example>" if before else first
        if before:
            mail["References"] = first
        self.said[thread] += 1
        mail.set_content(text)
        if data is not None:
            mail.add_attachment(data, maintype="application", subtype="octet-stream", filename="a.bin")
        await self._append(mail.as_bytes())

    async def own_says(self, thread: str, text: str) -> None:
        """A mail that was sent from the account, and lies in its folder."""
        await self._append(f"From: {OWN}\r\nTo: {thread}@x.example\r\nMessage-ID: <own@x>\r\n\r\n{text}\r\n".encode())

    async def bot_says(self, thread: str, text: str) -> None:
        """An automatic mail."""
        about = f"From: {thread}@x.example\r\nTo: {OWN}\r\nAuto-Submitted: auto-replied\r\nMessage-ID: <bot@x>\r\n"
        await self._append(f"{about}\r\n{text}\r\n".encode())

    async def fails_later(self, *, again: bool = False) -> None:
        """The server of the recipient returns the last mail."""
        if not again:
            original = message_from_bytes(self.delivered[-1], policy=policy.default)["Message-ID"]
            self.returned = (
                f"From: MAILER-DAEMON@mx.example\r\nReturn-Path: <>\r\nTo: {OWN}\r\nMIME-Version: 1.0\r\n"
                f"Date: {format_datetime(datetime.now(UTC))}\r\nMessage-ID: <returned@mx.example>\r\n"
                'Content-Type: multipart/report; report-type=delivery-status; boundary="b"\r\n\r\n'
                "--b\r\nContent-Type: text/plain\r\n\r\nSorry.\r\n"
                "--b\r\nContent-Type: message/delivery-status\r\n\r\nReporting-MTA: dns; mx\r\n\r\n"
                "Action: failed\r\nStatus: 5.2.2\r\n"
                f"--b\r\nContent-Type: text/rfc822-headers\r\n\r\nMessage-ID: {original}\r\n\r\n--b--\r\n"
            ).encode()
        await self._append(self.returned)

    async def starts_over(self) -> None:
        """The folder is made again, with another UIDVALIDITY, and its mails have the UIDs of others."""
        await asyncio.to_thread(self._made_anew)

    async def shown(self) -> Sequence[Shown]:
        return [Shown(thread, one.text) for thread, one in self._looked_at()]

    async def received(self) -> Sequence[Received]:
        return [one for _, one in self._looked_at()]

    def _looked_at(self) -> list[tuple[str, Received]]:
        for one in self.delivered[len(self.read) :]:
            mail = message_from_bytes(one, policy=policy.default)
            files = tuple(map(_file, mail.iter_attachments()))
            self.read.append((str(mail["To"]).partition("@")[0], Received(_text(mail), files)))
        return list(self.read)

    @asynccontextmanager
    async def away(self) -> AsyncIterator[None]:
        for way in self.ways:
            await way.close()
        yield
        for way in self.ways:
            await way.open()

    async def _append(self, mail: bytes) -> None:
        status, told = await asyncio.to_thread(self.client.append, _HOUSE, "", "", mail)
        assert status == "OK", told

    def _made_anew(self) -> None:
        self.client.select(_HOUSE)
        count = int(self.client.response("EXISTS")[1][0] or b"0")
        mails = [self.client.fetch(str(number), "(BODY.PEEK[])")[1][0] for number in range(count, 0, -1)]
        self.client.close()
        for command in (self.client.delete, self.client.create):
            status, told = command(_HOUSE)
            assert status == "OK", told
        for mail in mails:
            assert isinstance(mail, tuple)
            self.client.append(_HOUSE, "", "", b"X-Moved: yes\r\n" + mail[1])


def _text(mail: EmailMessage) -> str:
    plain = mail.get_body(("plain",))
    assert isinstance(plain, EmailMessage)
    return str(plain.get_content()).strip()


def _file(attached: EmailMessage) -> tuple[str, bytes]:
    data = attached.get_payload(decode=True)
    assert isinstance(data, bytes)
    return attached.get_filename() or "", data


@asynccontextmanager
async def mail_driver(imap: Imap, delivered: list[bytes], smtp_port: int) -> AsyncIterator[MailDriver]:
    """With a folder of its own, which is empty; `delivered` is where the SMTP server puts what it takes."""
    client, ways = await asyncio.to_thread(imap.login), (Relay(0, imap.port), Relay(0, smtp_port))
    await asyncio.to_thread(client.delete, _HOUSE)
    await asyncio.to_thread(client.create, _HOUSE)
    for way in ways:
        await way.open()
    try:
        yield MailDriver(imap, client, delivered, ways)
    finally:
        for way in ways:
            await way.close()
        await asyncio.to_thread(client.logout)


@dataclass(slots=True)
class PostfixDriver:
    """Ada, who writes mails by Postfix and reads the answers by Dovecot. It has the methods for kills alone."""

    dovecot: Dovecot
    postfix: Postfix
    said: int = 0
    longest: int = 200_000

    @property
    def configured(self) -> Configured:
        imap = Server(host="127.0.0.1", port=self.dovecot.tls_port)
        smtp = Server(host="127.0.0.1", port=self.postfix.port, tls="starttls")
        settings = EmailAccountSettings(address=OWN, user=self.dovecot.user, imap=imap, smtp=smtp, idle_s=0.2)
        manifest = without_pauses(EMAIL, text_limit=20_000)
        return Configured(manifest, Account("desk", settings, {"password": PASSWORD}), ANSWERED)

    async def says(self, thread: str, text: str) -> None:
        await asyncio.to_thread(self._written, thread, text)
        await self._delivered()

    async def shown(self) -> Sequence[Shown]:
        await self._delivered()
        mails = await asyncio.to_thread(self.dovecot.mails, "ada")
        return [Shown("t", _text(message_from_bytes(one.as_bytes(), policy=policy.default))) for one in mails]

    def _written(self, thread: str, text: str) -> None:
        self.said += 1
        about = f"From: ada@x.example\r\nTo: {OWN}\r\nMessage-ID: <{thread}.{self.said}@x.example>\r\n"
        threaded = f"References: <{thread}.1@x.example>\r\n" if self.said > 1 else ""
        with smtplib.SMTP("127.0.0.1", self.postfix.port) as client:
            client.starttls(context=ssl.create_default_context())
            client.login("ada", PASSWORD)
            client.sendmail("ada@x.example", [OWN], f"{about}{threaded}\r\n{text}\r\n".encode())

    async def _delivered(self) -> None:
        await eventually(lambda: asyncio.to_thread(lambda: not self.postfix.is_busy), within=60)


@asynccontextmanager
async def postfix_driver(dovecot: Dovecot, postfix: Postfix) -> AsyncIterator[PostfixDriver]:
    """Its certificate is one of those that this machine trusts meanwhile."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", str(dovecot.certificate))
        yield PostfixDriver(dovecot, postfix)


@dataclass(slots=True)
class FolderDriver:
    """People who put files into a folder."""

    root: Path
    manifest: Manifest
    said: int = 0
    longest: int = 1_000_000

    @property
    def configured(self) -> Configured:
        settings = self.manifest.settings.model_validate({"path": self.root})
        return Configured(self.manifest, Account("folder", settings, {}), Handling(start="all"))

    async def says(self, thread: str, text: str) -> None:
        self._puts(thread, text)

    async def brings(self, thread: str, text: str, data: bytes) -> None:
        self._puts(thread, text, data)

    def _puts(self, thread: str, text: str, *files: bytes) -> None:
        self.said += 1
        put(self.root, thread, f"{self.said:06}", text, *files)

    def loses_files(self) -> None:
        for file in self.root.glob("inbox/*/*.files/*"):
            file.unlink()
            file.symlink_to("gone")

    async def shown(self) -> Sequence[Shown]:
        return [Shown("", text) for text in replies_in(self.root)]

    async def received(self) -> Sequence[Received]:
        texts = sorted(self.root.glob("outbox/*/*.txt"), key=lambda file: file.stat().st_mtime_ns)
        return [Received(one.read_text(), _files_of(one)) for one in texts]


def _files_of(text: Path) -> tuple[tuple[str, bytes], ...]:
    """What came with it, in its order."""
    files = sorted(text.with_suffix(".files").glob("*"))
    return tuple((one.name.partition("-")[2], one.read_bytes()) for one in files)


def put(root: Path, who: str, name: str, text: str, *files: bytes) -> None:
    """A message, whole or not at all."""
    place = root / "inbox" / who
    beside = place / f"{name}.files"
    beside.mkdir(parents=True)
    for number, data in enumerate(files):
        (beside / f"{number}.bin").write_bytes(data)
    (place / f"{name}.draft").write_text(text)
    (place / f"{name}.draft").rename(place / f"{name}.txt")


def replies_in(root: Path) -> list[str]:
    """What was answered, oldest first."""
    files = sorted(root.glob("outbox/*/*.txt"), key=lambda file: file.stat().st_mtime_ns)
    return [file.read_text() for file in files]
