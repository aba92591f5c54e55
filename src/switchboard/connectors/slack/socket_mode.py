"""Socket Mode: events over a web socket, each acknowledged once it is kept. Called by `channel.py`.

Frames are handled one after the other, so events keep their order. A socket that Slack is about to close, that answers
no pings, or that brings nothing for half an hour is replaced; the next one is open before the old one is closed.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from typing import Final, Literal

import structlog
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, WebSocketException

from switchboard.connectors.slack.api import SlackApi, SlackRefusal
from switchboard.connectors.slack.refusals import words_of_sign_in
from switchboard.domain.json_values import JsonObject
from switchboard.ports.connector import DEAF_S, Busy, SignInRefused
from switchboard.ports.raw import Raw, child, word
from switchboard.tasks import first_of

log = structlog.get_logger(__name__)

_PING_S: Final = 10.0
_UNANSWERED_S: Final = 20.0
_OPEN_S: Final = 15.0
_CLOSE_S: Final = 1.0
_SHORT_S: Final = 5.0
"""A socket that breaks sooner is not replaced at once."""
_GAP_S: Final = 60.0
"""What was said for so long without a socket, Slack may not send again."""
_MOST_PAUSE_S: Final = 60.0
"""Nobody knows of a pause that there is no socket, so a longer one is an error."""
_KEPT: Final = ("events_api", "interactive")
"""The types of frames whose payload is kept; others are acknowledged, so that Slack forgets them."""
_MAX_FRAME: Final = 16 * 1024 * 1024


class SocketMode:
    """The socket of one app. `take` has an event kept; `missed` is called when events may have got lost."""

    def __init__(
        self, api: SlackApi, take: Callable[[JsonObject], Awaitable[None]], missed: Callable[[], None]
    ) -> None:
        self._api, self._take, self._missed = api, take, missed
        self._alive = 0.0

    async def run(self) -> None:
        """Receive until a socket cannot be replaced. Raises SignInRefused, Busy, OSError, and what `take` raises."""
        frames = await self._open_next()
        try:
            while True:
                await self._receive(frames)
                following = await self._open_next()
                await _close_socket(frames)
                frames = following
        finally:
            await _close_socket(frames)

    async def _open_next(self) -> ClientConnection:
        """A socket over which Slack has said hello."""
        url = await open_socket(self._api)
        try:
            async with asyncio.timeout(_OPEN_S):
                # The real Slack may have to be reached by a proxy.
                proxy: Literal[True] | None = None if url.startswith("ws://") else True
                frames = await connect(
                    url, ping_interval=None, close_timeout=_CLOSE_S, max_size=_MAX_FRAME, compression=None, proxy=proxy
                )
                await _hear_hello(frames)
        except (WebSocketException, ValueError, TimeoutError) as error:  # also of a URL that is none
            raise OSError(f"no socket: {type(error).__name__} {error}".strip()) from error
        self._alive = time.time()
        return frames

    async def _receive(self, frames: ClientConnection) -> None:
        """Return when another socket is wanted."""
        began = asyncio.get_running_loop().time()
        try:
            await first_of(self._take_frames(frames), self._ping_often(frames))
        except ConnectionClosed as error:
            if asyncio.get_running_loop().time() - began < _SHORT_S:
                raise OSError("the socket broke at once") from error
            log.info("a socket broke", why=str(error))
        if time.time() - self._alive > _GAP_S:
            self._missed()

    async def _take_frames(self, frames: ClientConnection) -> None:
        while True:
            try:
                async with asyncio.timeout(DEAF_S):
                    frame = _object_in(await frames.recv())
            except TimeoutError:
                self._missed()
                return
            self._alive = time.time()
            if frame.get("type") == "disconnect":
                _check_disconnect(frame)
                return
            if frame.get("type") in _KEPT:
                await self._take(dict(child(frame, "payload")))
            if envelope := word(frame.get("envelope_id")):
                await frames.send(json.dumps({"envelope_id": envelope}))

    async def _ping_often(self, frames: ClientConnection) -> None:
        """Return when two pings in a row have no answer."""
        while True:
            await asyncio.sleep(_PING_S)
            answered = await frames.ping()
            try:
                async with asyncio.timeout(_UNANSWERED_S):
                    await answered
            except TimeoutError:
                log.info("a socket answers no pings")
                return
            self._alive = time.time()


async def open_socket(api: SlackApi) -> str:
    """The URL of a socket. Raises SignInRefused, OSError."""
    try:
        return await api.open_socket()
    except SlackRefusal as error:
        if (why := words_of_sign_in(error, "app_token")) is not None:
            raise SignInRefused(why) from None
        if error.retry_after is not None:
            await asyncio.sleep(min(error.retry_after, _MOST_PAUSE_S))
        raise OSError(f"Slack opens no socket: {error}") from None


async def _hear_hello(frames: ClientConnection) -> None:
    try:
        _check_hello(_object_in(await frames.recv()))
    except BaseException:
        frames.transport.abort()
        raise


def _check_hello(frame: Raw) -> None:
    if frame.get("type") == "disconnect":
        _check_disconnect(frame)
    if frame.get("type") != "hello":
        raise OSError("Slack does not say hello")


async def _close_socket(frames: ClientConnection) -> None:
    try:
        await frames.close()
    finally:
        frames.transport.abort()


def _check_disconnect(frame: Raw) -> None:
    """Raises unless it is a socket that only has to be replaced."""
    match frame.get("reason"):
        case "link_disabled":
            raise SignInRefused("Socket Mode is off: switch it on in the settings of the app, under Socket Mode")
        case "too_many_websockets":
            raise Busy("the app has ten sockets already: other programs receive its events, too")


def _object_in(frame: str | bytes) -> Raw:
    try:
        return child(json.loads(frame))
    except (ValueError, RecursionError):
        return {}
