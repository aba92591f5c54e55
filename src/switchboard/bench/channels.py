"""Measures the time from a message at a platform to its reply there, with a connector and an engine that does nothing.

Called by `switchboard bench channels`. Telegram is our strict Bot API server, in this process; the baseline is a bare
bot at another server of this kind. Mail is pymap and an SMTP server, if they are installed.
"""

from __future__ import annotations

import asyncio
import imaplib
import socket
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from email import message_from_bytes
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter
from typing import Any, Final

import httpx2
from msgspec import Struct

from switchboard.bench import lab
from switchboard.testing.bot_api import TOKEN, BotApi

PER_SECOND: Final = 30
"""Messages per second that Telegram accepts from a bot, and that are sent here."""
_ADDRESS, _PASSWORD = "bot@home.example", "of nobody"
_MAIL_NEEDS: Final = ("imap_tools", "pymap", "aiosmtpd")
_CHATS_IN_A_BURST: Final = 100
_WITHIN_S: Final = 120.0
_FIRST_USER: Final = 1000
_PAUSE_S: Final = 0.05
"""Pause after each message, so that work after an answer, such as its receipt, does not count for the next message."""
_MAIL_PAUSE_S: Final = 0.5
"""Pause before each mail: pymap does not announce one that arrives before the connector waits again."""


class ChannelsWorkload(Struct, frozen=True):
    """The number of messages sent one by one, of messages sent at once, and of mails sent one by one."""

    messages: int = 200
    burst: int = 1000
    mails: int = 20
    starts: bool = True
    """Whether to also start without accounts, for comparison."""


class Burst(Struct, frozen=True):
    """The fate of messages that were written at once; seconds until all were stored, and until all were answered."""

    messages: int
    stored_s: float
    answered_s: float
    answered: int
    out_of_order: int


class ChannelsResult(Struct, frozen=True):
    """Milliseconds from a message to its reply, at the platform; memory of connectors in 10^6 bytes, by account, before
    and after the burst.

    If mail cannot be measured, `mail_ms` is empty and `missing` says why.
    """

    bare_ms: Sequence[float]
    telegram_ms: Sequence[float]
    burst: Burst
    mail_ms: Sequence[float]
    missing: str
    memory_mb: Mapping[str, tuple[float | None, float | None]]
    ready_s: Mapping[str, float]
    """Seconds until `switchboard up` accepts messages, with and without accounts, and until Telegram is polled."""


async def measure(plan: ChannelsWorkload) -> ChannelsResult:
    """Run all measurements, with one `switchboard up` for both accounts."""
    missing = ", ".join(name for name in _MAIL_NEEDS if find_spec(name) is None)
    bare = await _bare(plan.messages)
    with lab.home() as place:
        ready = await _without_accounts(place) if plan.starts else {}
        async with BotApi() as api, _mail(place, missing) as mail:
            telegram_account(place, api)
            began = perf_counter()
            channels = {"SWITCHBOARD_CHANNELS_DIR": str(place / "channels.d")}
            polling = asyncio.create_task(polled_s(api, began))
            async with lab.switchboard(place, "up", more=channels) as up:
                polled = await polling
                telegram = await one_by_one(api, plan.messages)
                if mail is not None:
                    await _receives(up, "email")
                mails = await mail.one_by_one(plan.mails) if mail is not None else []
                connectors = _connectors(up.pid)
                before = {name: lab.resident_mb(pid) for name, pid in connectors.items()}
                burst = await _burst(api, plan.burst)
                memory = {name: (before[name], lab.resident_mb(pid)) for name, pid in connectors.items()}
    ready |= {"with accounts": up.ready_s, "with accounts, until Telegram is polled": polled}
    return ChannelsResult(bare, telegram, burst, mails, missing, memory, ready)


async def polled_s(api: BotApi, began: float) -> float:
    """Seconds from `began` until the connector polls, which may be before the server is ready."""
    await asyncio.wait_for(api.until(lambda: api.polling), _WITHIN_S)
    return perf_counter() - began


async def _without_accounts(place: Path) -> dict[str, float]:
    async with lab.switchboard(place, "up"):
        pass  # creates the database
    async with lab.switchboard(place, "up") as up:
        return {"without accounts": up.ready_s}


async def _bare(messages: int) -> list[float]:
    async with AsyncExitStack() as stack:
        api = await stack.enter_async_context(BotApi())
        await stack.enter_async_context(lab.program({}, "-m", "switchboard.bench.bare_bot", f"{api.url}/bot{TOKEN}"))
        await asyncio.wait_for(api.until(lambda: api.polling), _WITHIN_S)
        return await one_by_one(api, messages)


def telegram_account(place: Path, api: BotApi) -> None:
    """Write the account of the bot, open to everybody, into `channels.d`."""
    settings = f'settings = {{api_url = "{api.url}"}}'
    _account(place, "telegram", f"telegram/bot:{api.world.bot['id']}", "token", TOKEN, settings)


def _account(place: Path, name: str, endpoint: str, secret: str, value: str, settings: str) -> None:
    directory = place / "channels.d"
    directory.mkdir(exist_ok=True)
    (directory / secret).touch(mode=0o600)
    (directory / secret).write_text(value, encoding="utf-8")
    lines = (f'channel = "{name}"', f'endpoint = "{endpoint}"', 'strangers = "open"', settings)
    account = "\n".join((*lines, f'secrets.{secret}.file = "{secret}"'))
    (directory / f"{name}.toml").write_text(account, encoding="utf-8")


async def one_by_one(api: BotApi, messages: int) -> list[float]:
    """Milliseconds for each; every message is from a different chat, since a chat gets only one message a second."""
    times = []
    for n in range(messages):
        before, began = len(api.sent), perf_counter()
        _write(api, f"hello {n}", n)
        await asyncio.wait_for(api.until(lambda: len(api.sent) > before), _WITHIN_S)  # noqa: B023  awaited at once
        times.append((perf_counter() - began) * 1000)
        await asyncio.wait_for(api.until(lambda: api.polling and not api.world.updates), _WITHIN_S)
        await asyncio.sleep(_PAUSE_S)
    return times


async def _burst(api: BotApi, messages: int) -> Burst:
    before, began = len(api.sent), perf_counter()
    chats = min(messages, _CHATS_IN_A_BURST)
    for n in range(messages):
        _write(api, f"{n}", _CHATS_IN_A_BURST * 1000 + n % chats)
    await asyncio.wait_for(api.until(lambda: not api.world.updates), _WITHIN_S)
    stored = perf_counter() - began
    await asyncio.wait_for(api.until(lambda: len(api.sent) >= before + messages), _WITHIN_S)
    answers = api.sent[before:]
    latest: dict[int, int] = {}
    disorder = 0
    for answer in answers:
        chat, number = answer["chat"]["id"], int(answer["text"].split()[0])
        disorder += number <= latest.get(chat, -1)
        latest[chat] = number
    answered = len({answer["text"] for answer in answers})
    return Burst(messages, stored, perf_counter() - began, answered, disorder)


def _write(api: BotApi, text: str, person: int) -> None:
    number = _FIRST_USER + person
    api.people.say(text, user={"id": number, "is_bot": False, "first_name": f"Person {number}"})


@dataclass(slots=True)
class _Mail:
    """A mailbox into which mails are put, and the mails sent from it."""

    imap: int
    sent: list[bytes] = field(default_factory=list)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)

    async def one_by_one(self, mails: int) -> list[float]:
        """Milliseconds for each, from a new mail to its answer."""
        times = []
        for n in range(mails):
            await asyncio.sleep(_MAIL_PAUSE_S)
            self.arrived.clear()
            began = perf_counter()
            await asyncio.to_thread(self._deliver, n)
            await asyncio.wait_for(self.arrived.wait(), _WITHIN_S)
            times.append((perf_counter() - began) * 1000)
            answered = message_from_bytes(self.sent[-1])["In-Reply-To"]
            if answered != _message_id(n):
                raise RuntimeError(f"the answer to {answered} came instead of that to {_message_id(n)}")
        return times

    def _deliver(self, n: int) -> None:
        mail = (
            f"From: p{n}@x.example\r\nTo: {_ADDRESS}\r\nMessage-ID: {_message_id(n)}\r\nSubject: {n}\r\n\r\nhello\r\n"
        )
        client = imaplib.IMAP4("127.0.0.1", self.imap)
        client.login("bot", _PASSWORD)
        client.append("INBOX", "", "", mail.encode())
        client.logout()


def _message_id(n: int) -> str:
    return f"<bench-{n}@x.example>"


@asynccontextmanager
async def _mail(place: Path, missing: str) -> AsyncIterator[_Mail | None]:
    """The servers and the account; None if packages are missing."""
    if missing:
        yield None
        return
    from aiosmtpd.smtp import SMTP  # noqa: PLC0415  of the extra `dev`, which may be missing

    mail, loop = _Mail(_free_port()), asyncio.get_running_loop()
    smtp = await loop.create_server(lambda: SMTP(_Postbox(mail), hostname="localhost", loop=loop), "127.0.0.1", 0)
    where = ("--no-tls", "--host", "127.0.0.1", "--port", str(mail.imap), "--no-service", "admin")
    user = ("dict", "--demo-data", "--demo-user", "bot", "--demo-password", _PASSWORD)
    pymap = await asyncio.create_subprocess_exec(
        Path(sys.executable).with_name("pymap"),
        *(*where, *user),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        await _listens(mail.imap)
        servers = {"imap": mail.imap, "smtp": smtp.sockets[0].getsockname()[1]}
        lines = (f'{name} = {{host = "127.0.0.1", port = {port}, tls = "none"}}' for name, port in servers.items())
        settings = ", ".join((f'address = "{_ADDRESS}", user = "bot", idle_s = 5', *lines))
        _account(place, "email", f"email/{_ADDRESS}", "password", _PASSWORD, f"settings = {{{settings}}}")
        yield mail
    finally:
        smtp.close()
        pymap.kill()
        await pymap.wait()


class _Postbox(Struct, frozen=True):
    """The handler to which aiosmtpd passes mails."""

    mail: _Mail

    async def handle_DATA(self, _server: Any, _session: Any, envelope: Any) -> str:  # noqa: N802
        self.mail.sent.append(envelope.content)
        self.mail.arrived.set()
        return "250 OK"


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


async def _listens(port: int) -> None:
    async with asyncio.timeout(_WITHIN_S):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.05)
                continue
            writer.close()
            return


async def _receives(up: lab.ReadyProcess, channel: str) -> None:
    """Wait until the channel's account has looked for messages: it does not answer those that arrived before."""
    async with (
        asyncio.timeout(_WITHIN_S),
        httpx2.AsyncClient(base_url=up.url, headers=up.headers) as client,
    ):
        while True:
            found = (await client.get("/v1/connectors")).raise_for_status().json()["connectors"]
            if any(one["channel"] == channel and one["state"] == "healthy" for one in found):
                return
            await asyncio.sleep(_PAUSE_S)


def _connectors(pid: int) -> dict[str, int]:
    """The accounts' processes that are children of this one, by name; empty if the system does not report them."""
    found = {}
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    except OSError:
        return {}
    for child in map(int, children):
        words = Path(f"/proc/{child}/cmdline").read_bytes().decode().split("\0")
        if "connect" in words:
            found[words[-2]] = child
    return found
