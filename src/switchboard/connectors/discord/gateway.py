"""The gateway of Discord: keeps a socket open, resumes its session on the next one, and passes its events on.

Called by `channel.py`; `arriving.py` reads what `Gateway` has received. A socket is never closed with 1000 or 1001,
which would end the session: for some minutes Discord gives what came after an event again, to another process, too.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from urllib.parse import urlsplit

import structlog
from msgspec import Struct
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, WebSocketException

from switchboard.connectors.discord.rest import DiscordError, RestClient
from switchboard.domain.json_values import JsonObject
from switchboard.ports.connector import DEAF_S, SignInRefused
from switchboard.ports.raw import at, child, word
from switchboard.tasks import cancel_tasks

log = structlog.get_logger(__name__)
_quiet = logging.getLogger(f"{__name__}.frames")
_quiet.setLevel(logging.WARNING)  # below that, frames are logged, and one contains the token

GUILDS: Final = 1 << 0
MESSAGES: Final = 1 << 9 | 1 << 12
REACTIONS: Final = 1 << 10 | 1 << 13
CONTENT: Final = 1 << 15
TOKEN_REFUSED: Final = "Discord does not accept the token; get one with Reset Token, on the page Bot"  # noqa: S105
NO_CONTENT: Final = "Message Content Intent is off: switch it on under Bot, or set message_content = false"
_CLOSES: Final = {
    4004: TOKEN_REFUSED,
    4010: "Discord does not accept this connection (4010)",
    4011: "this bot is in too many servers for one connection (2500)",
    4012: "Discord no longer has this version of its gateway (4012)",
    4013: "Discord does not accept these intents (4013)",
    4014: NO_CONTENT,
}
_LOST: Final = frozenset({4003, 4007, 4009})
"""After these closes the session cannot be resumed."""
_LEAVE: Final = 4900
"""Our close code, after which the session can be resumed."""
_GATEWAYS: Final = ".discord.gg"
_HELLO_S: Final = 10.0
_RESUMED_S: Final = 20.0
_MOST_TRIES: Final = 2
_LEAST_SIGN_INS: Final = 50
"""Of a day that are left unused: after the last one Discord resets the token."""
_CLOSING_S: Final = 2.0
_MOST_BYTES: Final = 64 * 1024 * 1024
_MOST_WAITING: Final = 1000
_SHORT_S: Final = 60.0
_LONGEST_PAUSE_S: Final = 30.0


class Dispatch(Struct, frozen=True):
    """An event of a session: its number there, its name and its data. No name: the socket has shown to be alive."""

    name: str = ""
    data: JsonObject = {}
    number: int = 0
    session: str = ""
    url: str = ""


class GatewayPlace(Struct, frozen=True):
    """A session, where it is resumed, and the last event that was read of it."""

    session: str
    url: str
    number: int


class GatewayWanted(Struct, frozen=True):
    """What to sign in for, and where: at `url`, else where Discord says, if it is one of its hosts, or of `hosts`."""

    intents: int
    url: str | None
    hosts: frozenset[str | None]

    def is_gateway(self, url: str) -> bool:
        """Whether the token may go to this URL."""
        one = urlsplit(url)
        if one.hostname in self.hosts:
            return one.scheme in ("ws", "wss")
        return one.scheme == "wss" and (one.hostname or "").endswith(_GATEWAYS)


class _Over(Exception):
    """The socket is to be closed; `lost`: so is the session. Raised where another one may do better."""

    def __init__(self, why: str, *, lost: bool = False) -> None:
        super().__init__(why)
        self.lost = lost


class _Connecting(connect):
    """Follows no redirection, which would lead the token anywhere."""

    def process_redirect(self, exc: Exception) -> Exception | str:
        return exc


class Gateway:
    """Receives until cancelled. `received` holds at most so many events, and then the socket is not read.

    `at_once` is called with each event when it comes, though others may be waiting before it.
    """

    def __init__(
        self,
        rest: RestClient,
        token: str,
        wanted: GatewayWanted,
        place: GatewayPlace | None,
        at_once: Callable[[Dispatch], None],
    ) -> None:
        self.received: asyncio.Queue[Dispatch] = asyncio.Queue(_MOST_WAITING)
        self._rest, self._token, self._wanted, self._at_once = rest, token, wanted, at_once
        self._url = wanted.url
        self._place = place if place is not None and wanted.is_gateway(place.url) else None
        self._tries = self._short = 0
        self._resuming = False
        self._acknowledged = True
        self._heard = 0.0

    async def run(self) -> None:
        """Receive. Raises SignInRefused; OSError where signing in again later may help."""
        while True:
            began = asyncio.get_running_loop().time()
            try:
                await self._receive_over_a_socket()
            except _Over as over:
                log.info("the gateway is connected again", why=str(over))
                self._note_end(lost=over.lost)
            if asyncio.get_running_loop().time() - began > _SHORT_S:
                self._short = 0
            await asyncio.sleep(min(2.0**self._short - 1, _LONGEST_PAUSE_S) * random.uniform(0.8, 1.2))
            self._short += 1

    def _note_end(self, *, lost: bool) -> None:
        """What the end of a socket means for the session."""
        self._tries = self._tries + 1 if self._resuming else 0
        if lost or self._tries >= _MOST_TRIES:
            self._place, self._tries = None, 0

    async def _receive_over_a_socket(self) -> None:
        """Over one socket, until that is over. Raises _Over, SignInRefused, OSError."""
        self._resuming = self._place is not None
        url = self._place.url if self._place else await self._url_for_signing_in()
        async with _open_socket(url) as socket:
            try:
                interval = await _interval_of(socket)
                beating = asyncio.create_task(self._send_heartbeats(socket, interval))
                try:
                    await self._begin_session(socket)
                    await self._read(socket)
                finally:
                    await cancel_tasks(beating)
            except TimeoutError:
                raise _Over("nothing came in time") from None
            except ConnectionClosed as closed:
                self._after_close(closed)

    async def _url_for_signing_in(self) -> str:
        """Where to sign in, if as many sign-ins are left of this day. Raises SignInRefused, OSError."""
        about = await about_gateway(self._rest)
        limit = child(about, "session_start_limit")
        left, after = limit.get("remaining"), limit.get("reset_after")
        if isinstance(left, int) and left < _LEAST_SIGN_INS:
            until = datetime.now(UTC) + timedelta(milliseconds=after if isinstance(after, int) else 0)
            raise SignInRefused(
                f"signed in too often today: Discord permits {left} more times, and then resets the token; "
                f"all are there again at {until:%H:%M} UTC"
            )
        self._url = self._url or word(about.get("url"))
        if self._url is None or not self._wanted.is_gateway(self._url):
            raise OSError("Discord does not say where its gateway is")
        return self._url

    async def _begin_session(self, socket: ClientConnection) -> None:
        self._acknowledged = True
        self._heard = asyncio.get_running_loop().time()
        if self._place is None:
            about = {"os": "linux", "browser": "switchboard", "device": "switchboard"}
            data: JsonObject = {"token": self._token, "intents": self._wanted.intents, "properties": about}
            await _send_frame(socket, 2, data)
            return
        data = {"token": self._token, "session_id": self._place.session, "seq": self._place.number}
        await _send_frame(socket, 6, data)

    async def _read(self, socket: ClientConnection) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        while True:
            due = began + _RESUMED_S if self._resuming else self._heard + DEAF_S
            async with asyncio.timeout_at(due):
                frame = _frame_in(await socket.recv())
            await self._take(socket, frame)

    async def _take(self, socket: ClientConnection, frame: JsonObject) -> None:
        match frame.get("op"):
            case 0:
                await self._take_event(frame)
            case 1:
                await self._send_heartbeat(socket)
            case 7:
                raise _Over("Discord asks for another socket")
            case 9:
                await asyncio.sleep(random.uniform(1.0, 5.0))  # as Discord wants it
                raise _Over("the session is not valid", lost=frame.get("d") is not True)
            case 11:
                self._acknowledged = True
                await self.received.put(Dispatch())

    async def _take_event(self, frame: JsonObject) -> None:
        name, data, number = frame.get("t"), child(frame, "d"), frame.get("s")
        if not isinstance(name, str) or not isinstance(number, int):
            return
        if name == "READY":
            self._place = self._place_of(data)
        if name in ("READY", "RESUMED"):
            self._resuming, self._tries = False, 0
        self._heard = asyncio.get_running_loop().time()
        if self._place is None:
            return
        place = self._place = GatewayPlace(self._place.session, self._place.url, number)
        event = Dispatch(name, dict(data), number, place.session, place.url)
        self._at_once(event)
        await self.received.put(event)
        self._heard = asyncio.get_running_loop().time()  # perhaps there was no room for long

    def _place_of(self, ready: Any) -> GatewayPlace:
        """The session that has begun. The token goes nowhere else than to Discord."""
        session, url = word(ready.get("session_id")), word(ready.get("resume_gateway_url"))
        if session is None or self._url is None:
            raise _Over("Discord names no session", lost=True)
        return GatewayPlace(session, url if url and self._wanted.is_gateway(url) else self._url, 0)

    async def _send_heartbeats(self, socket: ClientConnection, interval: float) -> None:
        """Show that we are alive, and that Discord is."""
        await asyncio.sleep(interval * random.random())
        with suppress(ConnectionClosed):
            while self._acknowledged or self.received.full():
                await self._send_heartbeat(socket)
                await asyncio.sleep(interval)
            await socket.close(_LEAVE)

    async def _send_heartbeat(self, socket: ClientConnection) -> None:
        self._acknowledged = False
        await _send_frame(socket, 1, self._place.number if self._place else None)

    def _after_close(self, closed: ConnectionClosed) -> None:
        """What its code says. Raises _Over, SignInRefused, OSError."""
        code = closed.rcvd.code if closed.rcvd is not None else 1006
        if code in _CLOSES:
            raise SignInRefused(_CLOSES[code])
        if self._place is None:
            raise OSError(f"Discord has closed the gateway ({code})")
        raise _Over(f"the socket was closed ({code})", lost=code in _LOST)


async def about_gateway(rest: RestClient) -> JsonObject:
    """Where the gateway is, and how often one may still sign in. Raises SignInRefused, OSError."""
    return await ask_own(rest, "/gateway/bot")


async def ask_own(rest: RestClient, path: str) -> JsonObject:
    """What Discord says of ourselves. Raises SignInRefused, OSError."""
    try:
        return dict(child(await rest.read(path)))
    except DiscordError as error:
        if error.status == 401:
            raise SignInRefused(TOKEN_REFUSED) from None
        raise OSError(f"{path}: {error}") from None


@asynccontextmanager
async def _open_socket(url: str) -> AsyncIterator[ClientConnection]:
    """A socket, which is left so that its session can be resumed. Raises OSError."""
    where = f"{url}/?v=10&encoding=json" if not urlsplit(url).path else f"{url}?v=10&encoding=json"
    try:
        socket = await _Connecting(
            where,
            compression=None,
            proxy=True if url.startswith("wss") else None,
            open_timeout=_HELLO_S,
            close_timeout=_CLOSING_S,
            ping_interval=None,  # Discord has heartbeats of its own
            max_size=_MOST_BYTES,
            logger=_quiet,
        )
    except WebSocketException as error:
        raise OSError(f"the gateway cannot be opened: {error}") from None
    try:
        yield socket
    finally:
        await socket.close(_LEAVE)


async def _interval_of(socket: ClientConnection) -> float:
    """Seconds between two heartbeats, from the first frame."""
    async with asyncio.timeout(_HELLO_S):
        hello = _frame_in(await socket.recv())
    interval = at(hello, "d", "heartbeat_interval")
    if hello.get("op") != 10 or not isinstance(interval, int | float) or interval <= 0:
        raise _Over("Discord does not say hello")
    return float(interval) / 1000


async def _send_frame(socket: ClientConnection, op: int, data: object) -> None:
    await socket.send(json.dumps({"op": op, "d": data}))


def _frame_in(text: str | bytes) -> JsonObject:
    try:
        found = json.loads(text)  # not msgspec: text with a lone surrogate must not hide the frame
    except (ValueError, RecursionError):
        raise _Over("a frame is not JSON") from None
    return found if isinstance(found, dict) else {}
