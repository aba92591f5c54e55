"""One message over the gateway, and its answer while it is written.

Called by `chat.py`. In: the server's address, the speaker, and a text; out: events for the screen, and a
`MessageProgress`. A lost connection is restored, and the answer continues where it was. Next: `server/ws/`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from itertools import count
from typing import Final

from msgspec import Struct
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus, InvalidURI

from switchboard import __version__
from switchboard.cli.client import ServerPlace, is_here, no_server
from switchboard.cli.messages.talk import MessageProgress, Take
from switchboard.cli.output import Json, NoServer
from switchboard.domain.errors import (
    ConfigurationError,
    Conflict,
    Forbidden,
    InvalidInput,
    Overloaded,
    SwitchboardError,
    TooLarge,
    Unauthenticated,
    Unavailable,
)

_AGAIN_S: Final = 0.5
"""Pause before a connection is made again."""
_CLOSE_S: Final = 1.0
_FAILURES: Final = 20
"""Failures in a row after which it is abandoned."""
_KINDS: Final[Mapping[str, type[SwitchboardError]]] = {
    "unauthenticated": Unauthenticated,
    "forbidden": Forbidden,
    "conflict": Conflict,
    "too_large": TooLarge,
    "unavailable": Unavailable,
    "internal_error": SwitchboardError,
}
"""What the server may say; everything else is about the input."""
_SERVER_ERROR: Final = 500
_BUSY: Final = frozenset({"overloaded", "sender_over_rate"})
_CLOSED: Final[Mapping[int, type[SwitchboardError]]] = {1008: Unauthenticated, 1009: TooLarge}
"""Close codes that another connection would end with, too."""


class ChatLine(Struct, frozen=True):
    """A text and its thread, which the gateway calls a session. The same `key` means the same message."""

    thread: str
    text: str
    key: str


class Exchange:
    """A line and its answer. `speaker`: for whom the terminal speaks, if not for its token. Close it by `async with`.

    Call `send` first, then `follow`, during which `stop` may be called. `follow` may be called again in another `async
    with`: nothing is shown twice.
    """

    def __init__(self, place: ServerPlace, speaker: Json | None, line: ChatLine, take: Take) -> None:
        self._place = place
        self._speaker = speaker
        self._line = line
        self._take = take
        self._socket: ClientConnection | None = None
        self._open = asyncio.Event()
        self._ids = count(1)
        self._asked: dict[str, asyncio.Future[Json]] = {}
        self._sent: Json = {}
        self._seq = 0
        self._texts: dict[str, str] = {}
        self._replies: list[Json] = []
        self._shown: set[str] = set()
        """The replies that were shown."""
        self._again: set[str] = set()
        """Those of them that a stream which is told from the beginning has not told again yet."""
        self._behind: set[str] = set()
        """Butlers of whose texts something was not shown, because it was told again."""
        self._waiting: Json = {}
        """What was shown last of what its turn waits for."""

    async def __aenter__(self) -> Exchange:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._close()

    async def send(self) -> Json:
        """Have it stored; returns {request_id, duplicate}. Raises NoServer, and the server's errors."""
        await self._connect()
        return {name: self._sent[name] for name in ("request_id", "duplicate")}

    async def follow(self, wait: float, *, until_asked: bool = False) -> MessageProgress:
        """Wait up to `wait` seconds, across lost connections. Raises NoServer or Unavailable if there is no new one.

        `until_asked`: return once its turn waits for people (`MessageProgress.asked`).
        """
        limit = asyncio.timeout(wait)
        try:
            async with limit:
                return await self._to_the_end(until_asked=until_asked)
        except TimeoutError:
            if not limit.expired():
                raise
        return self._answer("in_flight")

    async def stop(self) -> None:
        """End the turns of the message, keeping what they have written. Raises Unavailable and the server's errors."""
        await self._open.wait()
        params = {"session": self._line.thread, "request_id": self._sent["request_id"]}
        future = asyncio.get_running_loop().create_future()
        await self._say("chat.abort", params, future)
        await future

    async def _to_the_end(self, *, until_asked: bool) -> MessageProgress:
        failures = 0
        while True:
            try:
                if self._socket is None:
                    await self._connect()
                failures = 0
                return await self._receive_answer(until_asked=until_asked)
            except (NoServer, Unavailable, ConnectionClosed) as error:
                await self._close()
                failures += 1
                if failures == _FAILURES:
                    raise _connection_error(error, self._place) from error
            await asyncio.sleep(_AGAIN_S)

    async def _receive_answer(self, *, until_asked: bool) -> MessageProgress:
        while True:
            frame = await self._frame()
            if frame["type"] == "res":
                self._settle(frame)
            elif frame["stream"] == self._sent["stream"]:
                self._seq = frame["seq"]
                answer = self._event(frame["event"], frame["payload"])
                if answer is not None and (answer.settled or until_asked):
                    return answer

    def _event(self, name: str, told: Json) -> MessageProgress | None:
        kind = name.removeprefix("chat.")
        match kind:
            case "delta":
                before = self._texts.get(told["system_id"], "")
                self._texts[told["system_id"]] = before[: told["offset"]] + told["text"]
            case "reset":
                self._texts[told["system_id"]] = ""
            case "reply":
                told = {**told, "text": self._texts.get(told["system_id"], "")}
                self._replies.append(told)
            case "waiting" if told.get("asked"):  # a server of an earlier release does not say
                if told != self._waiting:
                    self._waiting = told
                    self._take(kind, told)
                return self._answer("in_flight", asked=True)
            case "done" | "error":
                self._take("done", told)
                reasons = (f"{told['code']}: {told['message']}",) if kind == "error" else ()
                return self._answer(told["state"], reasons)
        self._show(kind, told)
        return None

    def _show(self, kind: str, told: Json) -> None:
        """Show the new part."""
        name = told["system_id"]
        if kind == "reply":
            self._again.discard(told["outbox_id"])
            if told["outbox_id"] in self._shown:
                return
            self._shown.add(told["outbox_id"])
        elif self._again:
            self._behind.add(name)
            return
        if kind in {"delta", "reply"} and name in self._behind:
            self._behind.remove(name)
            self._take("delta", {"system_id": name, "offset": 0, "text": self._texts.get(name, "")})
            if kind == "delta":
                return
        self._take(kind, told)

    def _answer(self, state: str, reasons: tuple[str, ...] = (), *, asked: bool = False) -> MessageProgress:
        settled = state != "in_flight"
        return MessageProgress(self._sent["request_id"], state, settled, tuple(self._replies), reasons, asked)

    # The connection ---------------------------------------------------------------------------------------------------

    async def _connect(self) -> None:
        """Connect, and send the message or resume its stream."""
        self._socket = await _open_connection(self._place)
        if self._place.token is None:
            raise Unauthenticated(f"a token is required: {self._place.hint}")
        speaker = {} if self._speaker is None else {"speaker": self._speaker}
        await self._ask("connect", {"token": self._place.token, **speaker})
        if self._sent:
            place = {"stream": self._sent["stream"], "seq": self._seq}
            if (await self._ask("chat.resume", place))["resumed"]:
                self._open.set()
                return
        line = {"session": self._line.thread, "text": self._line.text, "key": self._line.key, "stream": True}
        # From the beginning: repeated events are shown once.
        self._sent, self._seq, self._texts, self._replies = await self._ask("chat.send", line), 0, {}, []
        self._again = set(self._shown)
        self._open.set()

    async def _ask(self, method: str, params: Json) -> Json:
        """Ask a request before any events arrive."""
        future: asyncio.Future[Json] = asyncio.get_running_loop().create_future()
        await self._say(method, params, future)
        while not future.done():
            self._settle(await self._frame())
        return await future

    async def _say(self, method: str, params: Json, future: asyncio.Future[Json]) -> None:
        if self._socket is None:
            raise Unavailable("the connection is lost", code="connection")
        request = str(next(self._ids))
        self._asked[request] = future
        frame = json.dumps({"type": "req", "id": request, "method": method, "params": params}, ensure_ascii=False)
        # Invalid bytes come from a terminal as lone surrogates, which nobody else can read as text either.
        await self._socket.send(frame.encode(errors="replace").decode())

    def _settle(self, frame: Json) -> None:
        future = self._asked.pop(str(frame.get("id")), None)
        if future is None or future.done():
            return
        if frame["ok"]:
            future.set_result(frame["payload"])
        else:
            future.set_exception(_error(frame["error"]))

    async def _frame(self) -> Json:
        """The next frame. Raises ConnectionClosed, or the error that it reports."""
        if self._socket is None:
            raise Unavailable("the connection is lost", code="connection")
        try:
            frame = json.loads(await self._socket.recv())
        except ConnectionClosed as error:
            kind = _CLOSED.get(error.rcvd.code if error.rcvd else 0)
            if kind is not None and error.rcvd is not None:
                raise kind(f"{self._place.url} closed the connection: {error.rcvd.reason}") from error
            raise
        if not isinstance(frame, dict):
            raise _not_ours(self._place)
        return frame

    async def _close(self) -> None:
        self._open.clear()
        for future in self._asked.values():
            if not future.done():
                future.set_exception(Unavailable("the connection was lost", code="connection"))
                future.exception()  # nobody may wait for it any longer
        self._asked.clear()
        socket, self._socket = self._socket, None
        if socket is not None:
            await socket.close()


async def _open_connection(place: ServerPlace) -> ClientConnection:
    """Raises NoServer, Unavailable, ConfigurationError, and the server's errors."""
    url = f"{place.url.replace('http', 'ws', 1)}/v1/ws"
    agent = f"switchboard-cli/{__version__}"
    try:
        return await connect(
            url,
            proxy=None if is_here(place.url) else True,  # a proxy must not see local traffic
            user_agent_header=agent,
            compression=None,
            close_timeout=_CLOSE_S,
        )
    except InvalidURI as error:
        raise ConfigurationError(f"{place.url!r} is not the URL of a switchboard: {error}") from error
    except InvalidStatus as error:
        raise _refusal(error, place) from error
    except InvalidHandshake as error:
        raise _not_ours(place) from error
    except OSError as error:
        raise no_server(place) from error


def _refusal(error: InvalidStatus, place: ServerPlace) -> SwitchboardError:
    if error.response.status_code >= _SERVER_ERROR:
        return Unavailable(f"{place.url} answered {error.response.status_code}", code="connection")
    try:
        return _error(json.loads(error.response.body or b"")["error"])
    except (ValueError, LookupError, TypeError):
        return _not_ours(place)


def _not_ours(place: ServerPlace) -> SwitchboardError:
    return SwitchboardError(f"what answers at {place.url} is not the gateway of a switchboard", code="not_ours")


def _error(told: Json) -> SwitchboardError:
    """The error of a frame, as one of our tree."""
    code, message = str(told["code"]), str(told["message"])
    if code in _BUSY:
        return Overloaded(message, retry_after=float((told.get("details") or {}).get("retry_after_s", 1.0)))
    return _KINDS.get(code, InvalidInput)(message, code=code, field=told.get("field"))


def _connection_error(error: Exception, place: ServerPlace) -> SwitchboardError:
    if isinstance(error, SwitchboardError):
        return error
    return Unavailable(f"the connection to {place.url} failed: {error}", code="connection")
