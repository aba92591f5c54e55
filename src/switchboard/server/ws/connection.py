"""One connection of the gateway: requests come in, answers and events go out.

`endpoint.py` makes a `GatewayConnection` of a socket with a valid token. Requests are handled one after the other, so
that messages are stored in order, and those of one token at a pace, on however many connections; each awaited answer
has a task. Nothing is read ahead, and nothing is sent before the client takes it. Next: `app/messages/chat.py`,
`streams.py`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, aclosing, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Final, TypeVar, cast
from uuid import UUID

import msgspec
import structlog
from msgspec import Struct
from pydantic import ValidationError
from starlette.websockets import WebSocket, WebSocketDisconnect

from switchboard.app.access import Action, Principal
from switchboard.app.approvals.service import APPROVALS
from switchboard.app.messages.chat import (
    CHAT,
    PAGE_BYTES,
    ChatInput,
    ChatService,
    NoAnswer,
    Outcome,
    Speaker,
    WholeReply,
)
from switchboard.app.messages.intake import ErrorDetail, refusal_from_error
from switchboard.app.messages.stream import Reset, StreamEvent, TextDelta, ToolEnd, ToolUse, TurnStatus, Waiting
from switchboard.app.messages.views import MessageReplies
from switchboard.core.text.words import near, or_list
from switchboard.domain.errors import (
    Forbidden,
    InvalidInput,
    NotJson,
    Overloaded,
    SwitchboardError,
    Unauthenticated,
    Unavailable,
)
from switchboard.domain.shown import ReplyView
from switchboard.server.contracts.approvals import DecideApproval, ListApprovals
from switchboard.server.contracts.base import Body
from switchboard.server.contracts.gateway import (
    METHODS,
    Aborted,
    AbortParams,
    Decided,
    ErrorFrame,
    EventFrame,
    EventName,
    Failed,
    Frame,
    HistoryPage,
    HistoryParams,
    Payload,
    PingParams,
    Pong,
    RequestFrame,
    ResultFrame,
    Resumed,
    ResumeParams,
    SendParams,
    Sent,
    Told,
)
from switchboard.server.contracts.problems import first_problem
from switchboard.server.http.approvals import APPROVAL_SERVICE
from switchboard.server.http.streams import STREAM_SERVICE
from switchboard.server.services import ServiceFactory, Services
from switchboard.server.turns import TokenPaces
from switchboard.server.ws.protocol import FRAME_BYTES
from switchboard.server.ws.streams import ChatStream, ChatStreams
from switchboard.tasks import cancel_tasks

TOKEN_PACES: Final = ServiceFactory(lambda _: TokenPaces(time.monotonic))
CHAT_SERVICE: Final = ServiceFactory(lambda s: ChatService(s.runtime, s.access, s.intake, s.views))
log = structlog.get_logger(__name__)

SLOW_S: Final = 20.0
"""Seconds within which a client must take what was sent before."""
_AGAIN_S: Final = 0.5
"""Pause while the database is unavailable."""
_LONGEST_S: Final = 3600.0
_REST: Final = 4096
"""Bytes of a frame around its outcome."""
_PIECE: Final = 131_072
"""Characters of a delta: as JSON they fit a frame, whatever they are."""
_CLOSED: Final = (WebSocketDisconnect, RuntimeError)
"""What Starlette raises when the client has gone, and after we have closed."""
_ACTIONS: Final[Mapping[str, Action]] = {"chat": CHAT, "approvals": APPROVALS}
"""What a token needs for the methods that begin so."""
_T = TypeVar("_T", bound=Body)


class Gone(Exception):
    """The client has disconnected, so nothing can be sent."""


@dataclass(frozen=True, slots=True)
class GatewayCaller:
    """The caller, and for whom it speaks. `authorization` is checked repeatedly, since tokens are revoked.

    `given` null: it decides about approvals, and chats with nobody.
    """

    principal: Principal
    given: Speaker | None
    authorization: str = field(repr=False)

    @property
    def speaker(self) -> Speaker:
        """The speaker. Raises Forbidden if the caller may not chat."""
        if self.given is None:
            raise Forbidden(f"a token with the role {self.principal.role} may not use chat")
        return self.given


class OutgoingFrames:
    """Sends frames to the client one after the other, each when there is room for it."""

    def __init__(self, socket: WebSocket) -> None:
        self._socket = socket
        self._sending = asyncio.Lock()

    async def send(self, frame: Frame) -> None:
        """Send a frame. Raises Gone. A client that does not read is cut off."""
        text = msgspec.json.encode(frame).decode()
        async with self._sending:
            try:
                async with asyncio.timeout(SLOW_S):
                    await self._socket.send({"type": "websocket.send", "text": text})
            except TimeoutError:
                log.info("a client of the gateway was too slow")
                self._socket.scope["state"]["connection"].abort()
                raise Gone from None
            except _CLOSED as error:
                raise Gone from error

    async def fail(self, request_id: str | None, error: SwitchboardError) -> None:
        """Answer a request with an error. Raises Gone."""
        await self.send(ErrorFrame(request_id, _detail_of(error)))

    async def close(self, code: int, reason: str) -> None:
        """Close the connection. Raises Gone."""
        try:
            await self._socket.close(code, reason)
        except _CLOSED as error:
            raise Gone from error


def read_request(text: str) -> RequestFrame:
    """The request in a frame. Raises InvalidInput, NotJson."""
    try:
        return RequestFrame.model_validate_json(text)
    except ValidationError as error:
        problems = error.errors(include_url=False)
        if problems[0]["type"] == "json_invalid":
            raise NotJson(f"a frame must be one JSON object: {problems[0]['ctx']['error']}") from None
        raise first_problem(problems, 0, RequestFrame.model_fields) from None


def read_params(kind: type[_T], request: RequestFrame) -> _T:
    """The parameters of a request. Raises InvalidInput."""
    try:
        return kind.model_validate(request.params)
    except ValidationError as error:
        problem = first_problem(error.errors(include_url=False), 0, kind.model_fields)
        raise InvalidInput(problem.message, code=problem.code, field=f"params.{problem.field}") from None


def unknown_method(name: str) -> InvalidInput:
    """The error for a method that does not exist."""
    meant = near(name, METHODS)
    hint = f"did you mean {or_list(meant)}?" if meant else f"there are {or_list(list(METHODS))}"
    return InvalidInput(f"there is no method {name!r}; {hint}", code="unknown_method", field="method")


class GatewayConnection:
    """One client."""

    def __init__(
        self, parts: Services, streams: ChatStreams, socket: WebSocket, out: OutgoingFrames, caller: GatewayCaller
    ) -> None:
        self._parts = parts
        self._streams = streams
        self._socket = socket
        self._out = out
        self._caller = caller
        self._gone = asyncio.Event()
        self._answering: set[asyncio.Task[None]] = set()
        self._methods: Mapping[str, Callable[[RequestFrame], Awaitable[None]]] = {
            "chat.send": self._send,
            "chat.resume": self._resume_stream,
            "chat.abort": self._answer_abort,
            "chat.history": self._answer_history,
            "approvals.list": self._answer_approvals,
            "approvals.decide": self._answer_decision,
            "ping": self._answer_ping,
        }

    async def run(self) -> None:
        """Run until the client disconnects, or must."""
        try:
            while (text := await self._next_text()) is not None:
                await self._parts.of(TOKEN_PACES).take(self._caller.principal.name)
                await self._carry_out(text)
        except Gone:
            pass
        finally:
            self._gone.set()
            await cancel_tasks(*self._answering)

    async def _next_text(self) -> str | None:
        message = await self._socket.receive()
        if message["type"] == "websocket.disconnect":
            return None
        if (text := message.get("text")) is None:
            await self._out.close(1003, "frames are text: one JSON object each")
            return None
        return cast(str, text)

    def _find_method(self, name: str) -> Callable[[RequestFrame], Awaitable[None]]:
        """Raises InvalidInput."""
        if name not in self._methods:
            raise unknown_method(name)
        return self._methods[name]

    async def _carry_out(self, text: str) -> None:
        request: RequestFrame | None = None
        try:
            request = read_request(text)
            await self._parts.access.authenticate(self._caller.authorization)
            method = self._find_method(request.method)
            if (action := _ACTIONS.get(request.method.partition(".")[0])) is not None:
                await self._parts.access.check(self._caller.principal, action)
            await method(request)
        except Unauthenticated as error:
            await self._out.fail(request.id if request else None, error)
            await self._out.close(1008, error.message)
            raise Gone from None
        except SwitchboardError as error:
            await self._out.fail(request.id if request else None, error)
        except Gone:
            raise
        except Exception:
            log.exception("unexpected error in a request to the gateway")
            await self._out.fail(request.id if request else None, _internal_error())

    # The methods ------------------------------------------------------------------------------------------------------

    async def _answer_ping(self, request: RequestFrame) -> None:
        read_params(PingParams, request)
        await self._send_result(request, Pong(datetime.now(UTC)))

    async def _answer_history(self, request: RequestFrame) -> None:
        asked = read_params(HistoryParams, request)
        page = await self._parts.of(CHAT_SERVICE).history(
            self._caller.speaker, asked.session, limit=asked.limit, cursor=asked.cursor
        )
        await self._send_result(request, HistoryPage(*page))

    async def _answer_approvals(self, request: RequestFrame) -> None:
        asked = read_params(ListApprovals, request)
        page = await self._parts.of(APPROVAL_SERVICE).fitting(
            PAGE_BYTES, asked.state, limit=asked.limit, cursor=asked.cursor
        )
        await self._send_result(request, page)

    async def _answer_decision(self, request: RequestFrame) -> None:
        asked = read_params(DecideApproval, request)
        decided = await self._parts.of(APPROVAL_SERVICE).decide(
            self._caller.principal, asked.approval_id, asked.decision, asked.text
        )
        await self._send_result(request, Decided(decided.approval_id, decided.state))

    async def _answer_abort(self, request: RequestFrame) -> None:
        asked = read_params(AbortParams, request)
        stopped = await self._parts.of(CHAT_SERVICE).abort(
            self._caller.principal, self._caller.speaker, asked.session, asked.request_id
        )
        await self._send_result(request, Aborted(stopped))

    async def _send(self, request: RequestFrame) -> None:
        """The message is stored before any answer, and its stream is reserved before it is stored."""
        asked = read_params(SendParams, request)
        with ExitStack() as held:
            held.enter_context(self._take_place())
            message = ChatInput(asked.session, asked.text, asked.key, asked.model)
            accepted = await self._parts.of(CHAT_SERVICE).send(self._caller.principal, self._caller.speaker, message)
            if not asked.stream:
                self._start(self._answer_whole(request, accepted.request_id), held.pop_all())
                return
            stream = self._streams.open(self._caller.speaker, accepted.request_id)
            await self._send_result(request, Sent(accepted.request_id, accepted.duplicate, stream.stream))
            stream.reader = self._start(self._tell_stream(stream), held.pop_all())

    async def _resume_stream(self, request: RequestFrame) -> None:
        asked = read_params(ResumeParams, request)
        stream = self._streams.find(self._caller.speaker, asked.stream)
        # The previous reader's place is free, and it numbers no more events, before anything is taken back.
        while stream is not None and stream.reader is not None and not stream.reader.done():
            stream.reader.cancel()
            await asyncio.wait([stream.reader])
        if stream is None or not stream.go_back(asked.seq):
            await self._send_result(request, Resumed(resumed=False))
            return
        with ExitStack() as held:
            held.enter_context(self._take_place())
            await self._send_result(request, Resumed(resumed=True))
            if not stream.ended:
                stream.reader = self._start(self._tell_stream(stream), held.pop_all())

    def _take_place(self) -> AbstractContextManager[None]:
        return self._parts.of(STREAM_SERVICE).place(self._caller.principal)

    async def _send_result(self, request: RequestFrame, payload: Payload) -> None:
        await self._out.send(ResultFrame(request.id, payload))

    # What is waited for -----------------------------------------------------------------------------------------------

    def _start(self, work: Coroutine[None, None, None], held: ExitStack) -> asyncio.Task[None]:
        """Run alongside the requests. `held` is released at the end, however that comes."""

        def ended(task: asyncio.Task[None]) -> None:
            self._answering.discard(task)
            held.close()
            if not task.cancelled() and (error := task.exception()) is not None:
                log.error("unexpected error in an answer of the gateway", exc_info=error)

        task = asyncio.create_task(work)
        self._answering.add(task)
        task.add_done_callback(ended)
        return task

    async def _answer_whole(self, request: RequestFrame, request_id: UUID) -> None:
        """The answer to `chat.send` in one piece."""
        with suppress(Gone):
            try:
                outcome = await self._follow_outcome(request_id, _nothing, lambda: None)
            except SwitchboardError as error:
                await self._out.fail(request.id, error)
                return
            if isinstance(outcome.result, NoAnswer):
                await self._out.fail(request.id, _failure_of(outcome.result))
            else:
                await self._send_result(request, fitting(outcome.result))

    async def _tell_stream(self, stream: ChatStream) -> None:
        """The events of a stream up to its end."""

        async def tell(event: StreamEvent) -> None:
            pieces = list(events_of(event))
            for name, told in pieces[:-1]:
                await self._send_event(stream, name, told, "")
            for name, told in pieces[-1:]:
                await self._send_event(stream, name, told, event.id)

        with suppress(Gone):
            try:
                outcome = await self._follow_outcome(stream.request_id, tell, lambda: stream.place)
            except SwitchboardError as error:
                await self._end_stream(stream, Failed(stream.request_id, "unknown", error.code, error.message), "")
                return
            match outcome.result:
                case NoAnswer(state, code, message):
                    await self._end_stream(stream, Failed(stream.request_id, state, code, message), outcome.place)
                case result:
                    await self._end_stream(stream, fitting(result), outcome.place)

    async def _end_stream(self, stream: ChatStream, told: Outcome | Failed, place: str) -> None:
        stream.ended = True
        await self._send_event(stream, "chat.error" if isinstance(told, Failed) else "chat.done", told, place)

    async def _send_event(self, stream: ChatStream, name: EventName, told: Told, place: str) -> None:
        self._streams.touch(stream)
        await self._out.send(EventFrame(name, told, stream.stream, stream.number(place)))

    async def _follow_outcome(
        self, request_id: UUID, tell: Callable[[StreamEvent], Awaitable[None]], place: Callable[[], str | None]
    ) -> _Settled:
        """The outcome of a message; `tell` receives each event from `place` on. Raises Gone, NotFound.

        While the database is unavailable this waits, and continues where it was.
        """
        principal, allowed = self._caller.principal, partial(self._parts.admits, self._caller.authorization)
        while True:
            try:
                stream = await self._parts.of(STREAM_SERVICE).open(principal, request_id, place())
                async with aclosing(stream.follow(self._gone, _LONGEST_S, allowed)) as events:
                    async for event in events:
                        if isinstance(event.data, MessageReplies):
                            return _Settled(
                                await self._parts.of(CHAT_SERVICE).outcome(request_id, event.data), event.id
                            )
                        await tell(event)
                if not await allowed():
                    await self._out.close(1008, "the token is not valid any more")
                    raise Gone
            except Unavailable:
                await asyncio.sleep(_AGAIN_S)
            if self._gone.is_set():
                raise Gone


class _Settled(Struct, frozen=True):
    """The outcome of a message, and the place after it."""

    result: Outcome | NoAnswer
    place: str


async def _nothing(_: StreamEvent) -> None:
    pass


def events_of(event: StreamEvent) -> Iterator[tuple[EventName, Told]]:
    """An event of a stream in gateway form: a long delta in pieces, a reply without its text, no pings."""
    match event.data:
        case TextDelta(system_id, attempt, step, offset, text):
            for start in range(0, max(len(text), 1), _PIECE):
                yield "chat.delta", TextDelta(system_id, attempt, step, offset + start, text[start : start + _PIECE])
        case ToolUse() as told:
            yield "chat.tool", told
        case ToolEnd() as told:
            yield "chat.tool_end", told
        case TurnStatus() as told:
            yield "chat.status", told
        case Reset() as told:
            yield "chat.reset", told
        case Waiting() as told:
            yield "chat.waiting", told
        case ReplyView() as reply:
            yield "chat.reply", WholeReply(reply.system_id, reply.outbox_id, reply.files)


def fitting(outcome: Outcome) -> Outcome:
    """The outcome without a text that is too long for a frame."""
    if len(msgspec.json.encode(outcome)) <= FRAME_BYTES - _REST:
        return outcome
    return replace(outcome, content=None)


def _detail_of(error: SwitchboardError) -> ErrorDetail:
    detail = refusal_from_error(error).error
    if isinstance(error, Overloaded) and detail.details is None:
        return msgspec.structs.replace(detail, details={"retry_after_s": error.retry_after})
    return detail


def _failure_of(result: NoAnswer) -> SwitchboardError:
    return SwitchboardError(result.message, code=result.code)


def _internal_error() -> SwitchboardError:
    return SwitchboardError("internal error; see the server's log")
