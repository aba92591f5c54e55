"""The paths of the scripted server: which path speaks which dialect, and how a reply is sent, faults included.

`server.py` serves `application(record, player)`. In: HTTP requests; out: the script's replies, and a `Record` of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Final, Literal

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from switchboard.tasks import unless
from switchboard.testing.loopback import Connection
from switchboard.testing.scripted_llm.answer import Answer, Json, answer
from switchboard.testing.scripted_llm.anthropic import Anthropic
from switchboard.testing.scripted_llm.dialect import BadRequest, Speaker, check_pairs
from switchboard.testing.scripted_llm.faults import ContentType, Cut, Disconnect, Empty, Garbage, Hang, Slow, Status
from switchboard.testing.scripted_llm.gemini import Gemini
from switchboard.testing.scripted_llm.habits import sent_as, type_of
from switchboard.testing.scripted_llm.local import CONTEXT, SLOTS, check_locally, within
from switchboard.testing.scripted_llm.openai_audio import OpenAiAudio
from switchboard.testing.scripted_llm.openai_chat import OpenAiChat
from switchboard.testing.scripted_llm.openai_embeddings import OpenAiEmbeddings
from switchboard.testing.scripted_llm.openai_responses import OpenAiResponses
from switchboard.testing.scripted_llm.record import Ending, Exchange, Record
from switchboard.testing.scripted_llm.request import Request, without_secrets
from switchboard.testing.scripted_llm.script import Player, Reply
from switchboard.testing.scripted_llm.spoil import spoil
from switchboard.testing.scripted_llm.strict import check_strictly, cut_head

LocalServer = Literal["ollama", "lm-studio", "llama.cpp", "vllm"]
Sleep = Callable[[float], Awaitable[None]]
Strictness = bool | Literal["local"]

_JSON: Final = "application/json"
_EVENTS: Final = "text/event-stream"
_GEMINI_VERSIONS: Final = ("v1beta", "v1alpha", "v1")


class _Left(Exception):
    """The client has disconnected."""


class Manners(Struct, frozen=True):
    """How the server behaves, whatever the script says. `context` in tokens."""

    sleep: Sleep
    strict: Strictness = False
    context: int | None = None
    server: LocalServer | None = None
    slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(SLOTS))

    @property
    def local(self) -> bool:
        """Whether it is a choosy local server."""
        return self.strict == "local"

    @property
    def window(self) -> int:
        """The context of a choosy local server."""
        return self.context or CONTEXT


def application(record: Record, player: Player, manners: Manners) -> Starlette:
    """The application with all paths. Any other path is answered with 404 and noted in `record.strays`."""

    def speak(paths: Iterable[str], speaker: Speaker) -> list[Route]:
        return [Route(path, _Endpoint(speaker, record, player, manners), methods=["POST"]) for path in paths]

    lists = _Lists(player.script.models)
    return Starlette(
        routes=[
            *speak(("/v1/chat/completions", "/chat/completions"), OpenAiChat()),
            *speak(("/v1/responses", "/responses"), OpenAiResponses()),
            *speak(("/v1/audio/transcriptions", "/audio/transcriptions"), OpenAiAudio()),
            *speak(("/v1/embeddings", "/embeddings"), OpenAiEmbeddings()),
            *speak(("/v1/messages",), Anthropic()),
            Route("/v1/messages/count_tokens", lists.count, methods=["POST"]),
            Route("/v1beta/models", lists.gemini),
            *(
                Route(f"/{version}/models/{{model}}:countTokens", lists.count, methods=["POST"])
                for version in _GEMINI_VERSIONS
            ),
            *speak((f"/{version}/models/{{model}}:generateContent" for version in _GEMINI_VERSIONS), Gemini()),
            *speak((f"/{version}/models/{{model}}:streamGenerateContent" for version in _GEMINI_VERSIONS), Gemini()),
            *_context_routes(manners, player.script.models),
            *(Route(path, lists.models) for path in ("/v1/models", "/models")),
            *_controls(record),
            Route("/{rest:path}", _Stray(record)),
        ]
    )


class _Endpoint:
    """One dialect at one path, as an ASGI application."""

    def __init__(self, speaker: Speaker, record: Record, player: Player, manners: Manners) -> None:
        self._speaker, self._record, self._player, self._manners = speaker, record, player, manners

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        http = HttpRequest(scope, receive)
        try:
            request = await self._read(http)
        except BadRequest as error:
            self._record.strays.append(f"{http.method} {http.url.path}: {error}")
            await _json(self._speaker.error(error.status, str(error)), error.status)(scope, receive, send)
            return
        except ClientDisconnect:
            self._record.strays.append(f"{http.method} {http.url.path}: the client disconnected while sending its body")
            return
        reply = self._reply(request)
        exchange = Exchange(request, reply if isinstance(reply, Reply) else None)
        await self._record.note(exchange)
        way = _Way(self._speaker, self._record, self._manners, scope, receive, send)
        ending: Ending = "cut"
        try:
            ending = await way.go(request, reply)
        except _Left:
            ending = "left"
        finally:
            await self._record.note(replace(exchange, ending=ending))

    def _reply(self, request: Request) -> Reply | str:
        """The reply, or why there is none."""
        try:
            return self._player.reply(request) or f"the script has no reply for request {request.number}"
        except Exception as error:  # a test's function may raise anything, and the test should see it
            return f"the script failed: {error!r}"

    async def _read(self, http: HttpRequest) -> Request:
        try:
            body = await self._speaker.body_of(http)
            conversation = self._speaker.read(body, http.url.path)
            if self._manners.strict:
                check_strictly(self._speaker.name, body, self._has_thought)
            if self._manners.local and self._speaker.name == "openai-chat":
                check_locally(body, conversation, self._manners.window)
            if "previous_response_id" not in body:  # otherwise the calls may be in the previous response
                check_pairs(conversation.messages)
        except (msgspec.DecodeError, KeyError, TypeError, AttributeError) as error:
            raise BadRequest(f"the body is invalid: {error!r}") from error
        if self._manners.context is not None and not self._manners.local:
            conversation = cut_head(conversation, self._manners.context)
        headers = without_secrets(http.headers.items())
        number = self._record.next_number()
        return Request(number, self._speaker.name, http.url.path, headers, conversation, body)

    def _has_thought(self, number: int) -> bool:
        exchange = self._record.exchanges.get(number)
        if exchange is None or exchange.reply is None or exchange.request.dialect != self._speaker.name:
            return False
        return bool(exchange.reply.thinking)


class _Way:
    """Sends one reply to its client."""

    def __init__(
        self, speaker: Speaker, record: Record, manners: Manners, scope: Scope, receive: Receive, send: Send
    ) -> None:
        self._speaker, self._record, self._manners = speaker, record, manners
        self._scope, self._receive, self._send = scope, receive, send

    async def go(self, request: Request, reply: Reply | str) -> Ending:
        """Answer, on a local server when a slot is free. Raises _Left if the client disconnects while it waits."""
        if not self._manners.local:
            return await self._send_answer(request, reply)
        async with self._manners.slots:
            if isinstance(reply, Reply):
                reply = within(reply, request.body, request.conversation, self._manners.window)
            return await self._send_answer(request, reply)

    async def _send_answer(self, request: Request, reply: Reply | str) -> Ending:
        if isinstance(reply, str):
            await self._respond(request, 400, _JSON, _encode(self._speaker.error(400, reply)))
            return "unscripted"
        if reply.gate:
            await self._wait(reply.gate)
        return await self._faulty(request, spoil(reply, request))

    async def _faulty(self, request: Request, reply: Reply) -> Ending:
        """Apply faults that leave nothing of the reply; the others happen while its parts are sent."""
        match reply.fault:
            case Status(status, retry_after, message, at) if at == "start" or not request.streamed:
                more = {} if retry_after is None else {"retry-after": f"{retry_after:g}"}
                await self._respond(request, status, _JSON, _encode(self._speaker.error(status, message)), more)
                return "failed"
            case Disconnect():
                return await self._break(abruptly=True)
            case Empty():
                await self._respond(request, 200, _EVENTS if request.streamed else _JSON, b"")
                return "failed"
            case ContentType(media_type, text):
                await self._respond(request, 200, media_type, text.encode())
                return "failed"
            case Garbage(text):
                await self._garbage(request, reply, text)
                return "failed"
            case Hang(gate, "start"):
                await self._wait(gate)
        return await self._whole(request, reply)

    async def _garbage(self, request: Request, reply: Reply, text: str) -> None:
        """Send garbage; in a stream as the first event, with its correct name, or clients would ignore it."""
        if not request.streamed:
            await self._respond(request, 200, _JSON, text.encode())
            return
        head, _, _ = next(self._speaker.stream(self._make_answer(reply, request))).rpartition(b"data: ")
        await self._respond(request, 200, _EVENTS, head + b"data: " + text.encode() + b"\n\n")

    async def _whole(self, request: Request, reply: Reply) -> Ending:
        said = self._make_answer(reply, request)
        if request.streamed and "whole" not in said.habits:
            parts = sent_as(list(self._speaker.stream(said)), said.habits)
            return await self._parts(said, parts, _EVENTS, reply)
        body = _encode(self._speaker.whole(said))
        half = len(body) // 2
        return await self._parts(said, [body[:half], body[half:]], _EVENTS if request.streamed else _JSON, reply)

    def _make_answer(self, reply: Reply, request: Request) -> Answer:
        made = answer(reply, request)
        return replace(made, without_usage=True) if self._manners.local and reply.usage is None else made

    async def _parts(self, said: Answer, parts: list[bytes], media_type: str, reply: Reply) -> Ending:
        """Send a body part by part, with the fault, if any, in its middle."""
        length = {} if media_type == _EVENTS else {"content-length": str(sum(map(len, parts)))}
        if isinstance(reply.fault, Cut) and reply.fault.after is not None:
            return await self._cut_after(said.request, b"".join(parts), media_type, reply.fault)
        await self._start(said.request, 200, type_of(media_type, said.habits), length)
        for n, part in enumerate(parts):
            if n == (len(parts) + 1) // 2:
                match reply.fault:
                    case Cut():
                        return await self._break(abruptly=False)
                    case Hang(gate, "middle"):
                        await self._wait(gate)
                    case Status(status, _, message, "middle"):
                        await self._body(self._speaker.error_event(said, status, message), more=False)
                        return "failed"
            if isinstance(reply.fault, Slow):
                await self._manners.sleep(reply.fault.pause_s)
            await self._body(part)
        await self._body(b"", more=False)
        return "answered"

    async def _cut_after(self, request: Request, body: bytes, media_type: str, cut: Cut) -> Ending:
        await self._start(request, 200, media_type, {})
        await self._body(body[: cut.after], more=not cut.quiet)
        return "cut" if cut.quiet else await self._break(abruptly=False)

    async def _respond(
        self, request: Request, status: int, media_type: str, body: bytes, more: Mapping[str, str] | None = None
    ) -> None:
        await self._start(request, status, media_type, {"content-length": str(len(body)), **(more or {})})
        await self._body(body, more=False)

    async def _start(self, request: Request, status: int, media_type: str, more: Mapping[str, str]) -> None:
        kind = {"content-type": media_type} if media_type else {}
        named = {**kind, **self._speaker.headers(request.number), **more}
        headers = [(name.encode(), value.encode()) for name, value in named.items()]
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    async def _body(self, body: bytes, *, more: bool = True) -> None:
        await self._send({"type": "http.response.body", "body": body, "more_body": more})

    async def _wait(self, name: str) -> None:
        """Wait at a gate. Raises _Left if the client disconnects first, which a local server does not notice."""
        gate = self._record.gates[name]
        gate.reached.set()
        left = self._record.ended.wait() if self._manners.local else self._wait_for_disconnect()
        if not await unless(left, gate.opened.wait()):
            raise _Left

    async def _wait_for_disconnect(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def _break(self, *, abruptly: bool) -> Ending:
        """End the connection in the middle: reset it, or close it after what was sent so far."""
        connection: Connection = self._scope["state"]["connection"][0]
        if abruptly:
            connection.transport.abort()
        else:
            connection.transport.close()
        await self._wait_for_disconnect()
        return "cut"


class _Lists:
    """The providers' lists of models, and how they count tokens."""

    def __init__(self, models: tuple[str, ...]) -> None:
        self._models = models

    async def models(self, http: HttpRequest) -> Response:
        """For the clients of Anthropic and Google, recognised by their headers, and for OpenAI's."""
        if "x-goog-api-client" in http.headers:
            return await self.gemini(http)
        if "anthropic-version" in http.headers:
            made = "2025-01-01T00:00:00Z"
            found = [
                {"type": "model", "id": m, "display_name": m, "created_at": made, "lifecycle": "active"}
                for m in self._models
            ]
            ends = {"first_id": found[0]["id"] if found else None, "last_id": found[-1]["id"] if found else None}
            return _json({"data": found, "has_more": False, **ends})
        entries = [{"id": m, "object": "model", "created": 0, "owned_by": "scripted"} for m in self._models]
        return _json({"object": "list", "data": entries})

    async def gemini(self, _: HttpRequest) -> Response:
        """Names begin with `models/`."""
        verbs = ["generateContent", "countTokens"]
        entries = [{"name": f"models/{m}", "displayName": m, "supportedGenerationMethods": verbs} for m in self._models]
        return _json({"models": entries})

    async def count(self, http: HttpRequest) -> Response:
        """Four characters count as a token, for both Anthropic and Gemini."""
        tokens = 1 + len(await http.body()) // 4
        return _json({"input_tokens": tokens, "totalTokens": tokens})


def _context_routes(manners: Manners, models: tuple[str, ...]) -> list[Route]:
    """The paths where a local server reports the context of its models."""
    tokens = manners.context
    documents: Mapping[LocalServer, Mapping[str, Json]] = {
        "llama.cpp": {"/props": {"default_generation_settings": {"n_ctx": tokens}, "total_slots": SLOTS}},
        "lm-studio": {"/api/v0/models": {"data": [{"id": one, "loaded_context_length": tokens} for one in models]}},
        "vllm": {"/v1/models": {"data": [{"id": one, "max_model_len": tokens} for one in models]}},
        "ollama": {
            "/api/ps": {"models": [{"name": f"{one}:latest", "context_length": tokens} for one in models]},
            "/api/show": {"parameters": f"stop x\nnum_ctx    {tokens}\n"},
        },
    }
    found = documents[manners.server] if manners.server is not None else {}
    return [Route(path, partial(_constant, said), methods=["GET", "POST"]) for path, said in found.items()]


async def _constant(said: Json, _: HttpRequest) -> Response:
    return _json(said)


def _controls(record: Record) -> list[Route]:
    """For tests in other processes: read the record, release a gate."""

    async def requests(_: HttpRequest) -> Response:
        exchanges = [record.exchanges[n] for n in sorted(record.exchanges)]
        return _json({"exchanges": exchanges, "strays": record.strays})

    async def release(http: HttpRequest) -> Response:
        record.gates[http.path_params["gate"]].opened.set()
        return Response(status_code=204)

    return [Route("/scripted/requests", requests), Route("/scripted/release/{gate}", release, methods=["POST"])]


class _Stray:
    """Any other path, with any method."""

    def __init__(self, record: Record) -> None:
        self._record = record

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._record.strays.append(f"{scope['method']} {scope['path']}")
        message = "the scripted server has no such path"
        await _json({"error": {"type": "not_found_error", "message": message}}, 404)(scope, receive, send)


def _encode(document: Json) -> bytes:
    return msgspec.json.encode(document)


def _json(document: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(document), status, media_type=_JSON)
