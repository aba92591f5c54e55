"""Measures the time from a message at a platform to its reply there, with a connector and an engine that does nothing.

Called by `switchboard bench channels`. The platforms are our strict servers, in this process; the baseline is a bare
bot at another Bot API server. Mail is pymap and an SMTP server, if they are installed. Next: `platforms.py`.
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
from switchboard.bench.platforms import TELEGRAM, TRIED, PlatformAccount, put_account
from switchboard.bench.processes import proportional_mb
from switchboard.testing.bot_api import TOKEN, BotApi
from switchboard.testing.platform_process import Platform
from switchboard.testing.platform_server import PlatformServer

PER_SECOND: Final = 30
"""Messages per second that Telegram accepts from a bot, and that are sent here."""
_ADDRESS, _PASSWORD = "bot@home.example", "of nobody"
_MAIL_NEEDS: Final = ("imap_tools", "pymap", "aiosmtpd")
_CHATS_IN_A_BURST: Final = 100
_WITHIN_S: Final = 120.0
_FIRST_IN_A_BURST: Final = 100_000
_PAUSE_S: Final = 0.1
"""Pause after each message, so that work after an answer, such as its receipt, does not count for the next message."""
_MAIL_PAUSE_S: Final = 0.5
"""Pause before each mail: pymap does not announce one that arrives before the connector waits again."""


class ChannelsWorkload(Struct, frozen=True):
    """The number of messages sent one by one on each channel, of messages sent at once, and of mails one by one."""

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
    """Milliseconds from a message to its reply, at the platform, by channel.

    If mail cannot be measured, `mail_ms` is empty and `missing` says why.
    """

    bare_ms: Sequence[float]
    chat_ms: Mapping[str, Sequence[float]]
    burst: Burst
    mail_ms: Sequence[float]
    missing: str
    memory_mb: Mapping[str, tuple[float, float]]
    """Of connectors (PSS) in 10^6 bytes, by account, when all channels have been measured, and after the burst."""
    ready_s: Mapping[str, float]
    """Seconds until `switchboard up` accepts messages, with and without accounts, and until Telegram is polled."""


async def measure(plan: ChannelsWorkload) -> ChannelsResult:
    """Run all measurements, with one `switchboard up` for all accounts."""
    missing = ", ".join(name for name in _MAIL_NEEDS if find_spec(name) is None)
    bare = await _bare(plan.messages)
    with lab.home() as place:
        ready = await _without_accounts(place) if plan.starts else {}
        async with _open_servers(place) as servers, _mail(place, missing) as mail:
            telegram = servers[TELEGRAM.channel]
            began = perf_counter()
            port = _free_port()
            channels = {
                "SWITCHBOARD_CHANNELS_DIR": str(place / "channels.d"),
                "SWITCHBOARD_PORT": f"{port}",
                "SWITCHBOARD_PUBLIC_URL": f"http://127.0.0.1:{port}",
            }
            polling = asyncio.create_task(polled_s(telegram, began))
            async with lab.switchboard(place, "up", more=channels) as up:
                polled = await polling
                await _wait_healthy(up, len(servers) + (mail is not None))
                chats = {
                    tried.channel: await one_by_one(tried.platform, servers[tried.channel], plan.messages)
                    for tried in TRIED
                }
                mails = await mail.one_by_one(plan.mails) if mail is not None else []
                connectors = _connectors(up.pid)
                before = {name: proportional_mb(pid) for name, pid in connectors.items()}
                burst = await _burst(telegram, plan.burst)
                memory = {name: (before[name], proportional_mb(pid)) for name, pid in connectors.items()}
    ready |= {"with accounts": up.ready_s, "with accounts, until Telegram is polled": polled}
    return ChannelsResult(bare, chats, burst, mails, missing, memory, ready)


@asynccontextmanager
async def _open_servers(place: Path) -> AsyncIterator[dict[str, Any]]:
    """The servers of all platforms, by channel, with an account for each."""
    async with AsyncExitStack() as stack:
        servers = {}
        for tried in TRIED:
            server = await stack.enter_async_context(tried.platform.make_server(0))
            servers[tried.channel] = server
            put_account(place, tried.account_at(server.url))
        yield servers


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
        return await one_by_one(TELEGRAM.platform, api, messages)


async def one_by_one(platform: Platform, server: PlatformServer[Any], messages: int) -> list[float]:
    """Milliseconds for each; every message is from a different person, since a chat gets only one message a second."""
    times = []
    for n in range(messages):
        before, began = len(server.texts), perf_counter()
        platform.say(server, f"hello {n}", n)
        await asyncio.wait_for(server.until(lambda: len(server.texts) > before), _WITHIN_S)  # noqa: B023  awaited at once
        times.append((perf_counter() - began) * 1000)
        await asyncio.sleep(_PAUSE_S)
    return times


async def _burst(api: BotApi, messages: int) -> Burst:
    before, began = len(api.sent), perf_counter()
    chats = min(messages, _CHATS_IN_A_BURST)
    for n in range(messages):
        TELEGRAM.platform.say(api, f"{n}", _FIRST_IN_A_BURST + n % chats)
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
        settings = {name: {"host": "127.0.0.1", "port": port, "tls": "none"} for name, port in servers.items()}
        account = PlatformAccount(
            channel="email",
            endpoint=_ADDRESS,
            secrets={"password": _PASSWORD},
            settings={"address": _ADDRESS, "user": "bot", "idle_s": 5, **settings},
        )
        put_account(place, account)
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


async def _wait_healthy(up: lab.ReadyProcess, accounts: int) -> None:
    """Wait until all accounts have looked for messages: mail that arrived before is not answered."""
    async with (
        asyncio.timeout(_WITHIN_S),
        httpx2.AsyncClient(base_url=up.url, headers=up.headers) as client,
    ):
        while True:
            found = (await client.get("/v1/connectors")).raise_for_status().json()["connectors"]
            if [one["state"] for one in found] == ["healthy"] * accounts:
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
