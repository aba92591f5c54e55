"""A session with a provider's API: one request per `run`, streamed if there is a listener.

`build.py` makes it; `dispatch.py` calls `run` and chooses the next model. `bodies.py` makes the body, `openai_api.py`
or `anthropic_api.py` sends it, `streams.py` folds what is streamed, and `answers.py` reads the answer.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import replace
from typing import Final

import httpx2
import structlog
from msgspec import structs

from switchboard.core.text.lenient import json_value
from switchboard.core.text.model_json import refuses_schema
from switchboard.core.text.tokens import asked_tokens, estimate_tokens
from switchboard.domain.llm import ModelDelta, ModelFailure, OnDelta, Reply, Request, Usage
from switchboard.llm import bodies
from switchboard.llm.answers import read_answer, read_document, rules_of
from switchboard.llm.call_form import FormListener
from switchboard.llm.events import BYTE_ORDER_MARK, BodyKind, EventReader, body_kind
from switchboard.llm.port import ApiKind, tell, with_usage
from switchboard.llm.spec import ModelSpec
from switchboard.llm.speech import Listener, SpeechRules
from switchboard.llm.streams import FOLDS

log = structlog.get_logger(__name__)

Open = Callable[[bodies.Body], AbstractAsyncContextManager[httpx2.Response]]
"""Sends a body and opens the response of a 200; raises ModelFailure for everything else, also while it is read."""

_NOTHING_SPENT: Final = frozenset({"unavailable", "rate_limited", "auth", "defect", "context_too_long"})
_UNSEALED: Final = re.compile(r"encrypted.?content|\binclude\b", re.IGNORECASE)
_REST_S: Final = 0.5
"""How long the end of a body is waited for when the answer in it has ended: then its connection can be used again."""
_END_S: Final = 1.0
"""How long more is waited for, in all, when the provider has said why the answer ended: its usage comes at once."""
_BODIES: Final[Mapping[ApiKind, Callable[[Request, ModelSpec], bodies.Body]]] = {
    "openai": bodies.chat,
    "openai-responses": bodies.responses,
    "anthropic": bodies.messages,
}


class ApiSession:
    """One model of one provider."""

    kind: ApiKind

    def __init__(self, spec: ModelSpec, kind: ApiKind, opened: Open) -> None:
        self.kind = kind
        self._spec = spec
        self._open = opened
        self._local = spec.writes_calls
        self._seals = kind == "openai-responses"
        self._body = bodies.local_chat if self._local else _BODIES[kind]

    async def run(self, request: Request, on_delta: OnDelta | None = None) -> Reply:
        """Ask once. Usage is always set: as the provider reported it, else an estimate."""
        rules = rules_of(request, local=self._local, thinks=self._spec.thinks)
        formed = bodies.in_form(request, self._spec)
        heard = _Heard(self.kind, on_delta, rules, formed=formed)
        try:
            async with asyncio.timeout(request.deadline):
                reply = await self._send_with_retry(request, heard)
        except TimeoutError as error:
            failure = ModelFailure("timeout", f"no answer within {request.deadline:g} s")
            raise _with_cost(failure, request, heard) from error
        except ModelFailure as failure:
            raise _with_cost(failure, request, heard) from failure.__cause__
        reply = replace(with_usage(reply, request), origin=self._spec.origin)
        heard.finish(reply)
        return reply

    async def _send_with_retry(self, request: Request, heard: _Heard) -> Reply:
        try:
            return await self._send_request(self._body_of(request, heard), request, heard)
        except ModelFailure as failure:
            if not self._learns(failure, request):
                raise
        return await self._send_request(self._body_of(request, heard), request, heard)

    def _body_of(self, request: Request, heard: _Heard) -> bodies.Body:
        body = self._body(request, self._spec)
        if heard.on_delta is not None:
            body |= bodies.streamed(self.kind)
        return body if self._seals else bodies.unsealed(body)

    def _learns(self, failure: ModelFailure, request: Request) -> bool:
        """Whether the refused request is to be asked once more, in a form that holds from then on."""
        if self._seals and failure.kind == "defect" and _UNSEALED.search(failure.message):
            self._seals = False  # the model has no reasoning to return
            return True
        if self._spec.schemas and bodies.in_form(request, self._spec) and refuses_schema(failure.message):
            log.warning("a server refuses the schema of answers: it is told the form in words", model=self._spec.name)
            self._spec = structs.replace(self._spec, schemas=False)
            return True
        return False

    async def _send_request(self, body: bodies.Body, request: Request, heard: _Heard) -> Reply:
        local, thinks, formed = self._local, self._spec.thinks, bodies.in_form(request, self._spec)
        async with self._open(body) as response:
            chunks = response.aiter_bytes()
            kind, begun = await _sniff_body_kind(chunks)
            if kind == "events" or (kind != "document" and _says_stream(response)):
                await heard.listen(begun, chunks, request.idle)
                return read_document(self.kind, heard.fold.document, request, local=local, thinks=thinks, formed=formed)
            # Some servers never stream, whatever the request says.
            text = b"".join([begun, *[chunk async for chunk in chunks]]).decode("utf-8", "replace")
            return read_answer(self.kind, text, request, local=local, thinks=thinks, formed=formed)


async def _sniff_body_kind(chunks: AsyncIterator[bytes]) -> tuple[BodyKind | None, bytes]:
    """What a body is, known from its beginning, and this beginning. Before it, a model may think."""
    begun = b""
    while (kind := body_kind(begun)) is None:
        chunk = await anext(chunks, None)
        if chunk is None:
            return None, begun
        begun = begun.lstrip() + chunk
    return kind, begun.removeprefix(BYTE_ORDER_MARK)


class _Heard:
    """What was received of an answer, and reported to the listener."""

    def __init__(self, kind: ApiKind, on_delta: OnDelta | None, rules: SpeechRules, *, formed: bool) -> None:
        self.on_delta = on_delta
        self.fold = FOLDS[kind](rules.tools)
        self._listener = FormListener(rules) if formed else Listener(rules)
        self._told: list[str] = []
        self._over_at: float | None = None
        """When an answer that has ended is not read on, by the clock of the loop."""

    async def listen(self, begun: bytes, chunks: AsyncIterator[bytes], idle: float) -> None:
        """Read until the answer has ended. Raises ModelFailure if it never does."""
        reader = EventReader()
        chunk: bytes | None = begun
        while chunk is not None:
            self._take(reader.feed(chunk))
            chunk = await (self._rest(chunks) if self.fold.finished else self._next(chunks, idle))
        self._take(data for data in reader.end() if json_value(data) is not None or data.strip() == "[DONE]")
        if not self.fold.finished:
            raise ModelFailure(
                "unavailable" if self.fold.begun else "garbage", "the stream ended before the answer did"
            )

    def _take(self, events: Iterable[str]) -> None:
        """Read events. When the answer has ended, one that cannot be read or reports an error is only the end."""
        for data in events:
            try:
                text = self.fold.feed(data)
            except ModelFailure:
                if not self.fold.finished:
                    raise
                self.fold.done = True
                return
            self._tell(text)
            if text:
                self._over_at = None  # some servers say with each piece that it is the last

    async def _next(self, chunks: AsyncIterator[bytes], idle: float) -> bytes | None:
        """The next bytes, None at the end. Before the first event, a model may think until the whole time is up."""
        if not self.fold.begun:
            return await anext(chunks, None)
        try:
            async with asyncio.timeout(idle):
                return await anext(chunks, None)
        except TimeoutError as error:
            raise ModelFailure("timeout", f"the stream said nothing for {idle:g} s") from error

    async def _rest(self, chunks: AsyncIterator[bytes]) -> bytes | None:
        """The next bytes behind the end of the answer. None if there are none, they break off, or do not end."""
        now = asyncio.get_running_loop().time()
        if self._over_at is None:
            self._over_at = now + _END_S
        with suppress(httpx2.TransportError, TimeoutError):
            async with asyncio.timeout(_REST_S if self.fold.done else self._over_at - now):
                chunk = await anext(chunks, None)
                return None if self.fold.done or now >= self._over_at else chunk
        return None

    def _tell(self, text: str) -> None:
        said = self._listener.feed(text)
        if self.on_delta is None:
            return
        if said.anew:
            self._take_back()
        if said.text:
            self._told.append(said.text)
            self.on_delta(ModelDelta(said.text))

    @property
    def told(self) -> str:
        """The text that the listener has."""
        return "".join(self._told)

    def finish(self, reply: Reply) -> None:
        """Report the rest. Text that turned out not to be the answer is taken back."""
        if self.on_delta is None:
            return
        if not reply.text.startswith(self.told):
            self._take_back()
        rest = reply.text[len(self.told) :]
        if rest:
            self.on_delta(ModelDelta(rest))
        tell(reply, self.on_delta, text=False)

    def _take_back(self) -> None:
        if self._told and self.on_delta is not None:
            self.on_delta(ModelDelta(reset=True))
        self._told.clear()


def _says_stream(response: httpx2.Response) -> bool:
    return str(response.headers.get("content-type", "")).startswith("text/event-stream")


def _with_cost(failure: ModelFailure, request: Request, heard: _Heard) -> ModelFailure:
    """A request that failed on the way back may have been answered, and was then charged."""
    spent = failure.kind not in _NOTHING_SPENT or heard.fold.begun
    if spent and not failure.reply.usage.input_tokens:
        usage = Usage(asked_tokens(request), estimate_tokens(heard.told), estimated=True)
        failure.reply = replace(failure.reply, usage=usage)
    return failure
