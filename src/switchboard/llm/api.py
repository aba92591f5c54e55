"""A session with a provider's API: one request per `run`, streamed if there is a listener.

`build.py` makes it; `dispatch.py` calls `run` and chooses the next model. `bodies.py` makes the body, `openai_api.py`
or `anthropic_api.py` sends it, `streams.py` folds what is streamed, and `answers.py` reads the answer.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import replace
from typing import Final

import httpx2

from switchboard.core.tokens import asked_tokens, estimate_tokens
from switchboard.domain.llm import ModelDelta, ModelFailure, OnDelta, Reply, Request, Usage
from switchboard.llm import bodies
from switchboard.llm.answers import read_answer, read_document
from switchboard.llm.events import EventReader
from switchboard.llm.port import ApiKind, tell, with_usage
from switchboard.llm.spec import ModelSpec
from switchboard.llm.speech import Speech
from switchboard.llm.streams import FOLDS, Fold

Open = Callable[[bodies.Body], AbstractAsyncContextManager[httpx2.Response]]
"""Sends a body and opens the response of a 200; raises ModelFailure for everything else, also while it is read."""

_NOTHING_SPENT: Final = frozenset({"unavailable", "rate_limited", "auth", "defect", "context_too_long"})
_UNSEALED: Final = re.compile(r"encrypted.?content|\binclude\b", re.IGNORECASE)
_REST_S: Final = 0.5
"""How long the end of a body is waited for when the answer in it has ended: then its connection can be used again."""
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
        self._local = spec.profile == "local"
        self._seals = kind == "openai-responses"
        self._body = bodies.local_chat if self._local else _BODIES[kind]

    async def run(self, request: Request, on_delta: OnDelta | None = None) -> Reply:
        """Ask once. Usage is always set: as the provider reported it, else an estimate."""
        heard = _Heard(self.kind, on_delta, local=self._local)
        try:
            async with asyncio.timeout(request.deadline):
                reply = await self._asked(request, heard)
        except TimeoutError as error:
            failure = ModelFailure("timeout", f"no answer within {request.deadline:g} s")
            raise _with_cost(failure, request, heard) from error
        except ModelFailure as failure:
            raise _with_cost(failure, request, heard) from failure.__cause__
        reply = replace(with_usage(reply, request), origin=self._spec.origin)
        heard.finish(reply)
        return reply

    async def _asked(self, request: Request, heard: _Heard) -> Reply:
        body = self._body(request, self._spec)
        if heard.on_delta is not None:
            body |= bodies.streamed(self.kind)
        try:
            return await self._sent(body if self._seals else bodies.unsealed(body), request, heard)
        except ModelFailure as failure:
            if not self._seals or failure.kind != "defect" or not _UNSEALED.search(failure.message):
                raise
        self._seals = False  # the model has no reasoning to return: ask once more, and never again
        return await self._sent(bodies.unsealed(body), request, heard)

    async def _sent(self, body: bodies.Body, request: Request, heard: _Heard) -> Reply:
        async with self._open(body) as response:
            if _is_stream(response):
                await heard.listen(response.aiter_bytes(), request.idle)
                return read_document(self.kind, heard.fold.document, request, local=self._local)
            await response.aread()  # some servers never stream, whatever the request says
            return read_answer(self.kind, response.text, request, local=self._local)


class _Heard:
    """What was received of an answer, and reported to the listener."""

    def __init__(self, kind: ApiKind, on_delta: OnDelta | None, *, local: bool) -> None:
        self.on_delta = on_delta
        self.fold: Fold = FOLDS[kind]()
        self._speech = Speech() if local else None
        self._told: list[str] = []

    async def listen(self, chunks: AsyncIterator[bytes], idle: float) -> None:
        """Read until the provider says that the answer has ended. Raises ModelFailure if it never does."""
        reader = EventReader()
        while (chunk := await self._next(chunks, idle)) is not None:
            for data in reader.feed(chunk):
                self._tell(self.fold.feed(data))
            if self.fold.done:
                with suppress(httpx2.TransportError, TimeoutError):
                    async with asyncio.timeout(_REST_S):
                        await anext(chunks, None)
                return
        raise ModelFailure("unavailable" if self.fold.begun else "garbage", "the stream ended before the answer did")

    async def _next(self, chunks: AsyncIterator[bytes], idle: float) -> bytes | None:
        """The next bytes, None at the end.

        Before the first, a model may think as long as the whole request may take.
        """
        if not self.fold.begun:
            return await anext(chunks, None)
        try:
            async with asyncio.timeout(idle):
                return await anext(chunks, None)
        except TimeoutError as error:
            raise ModelFailure("timeout", f"the stream said nothing for {idle:g} s") from error

    def _tell(self, text: str) -> None:
        said = text if self._speech is None else self._speech.feed(text)
        if said and self.on_delta is not None:
            self._told.append(said)
            self.on_delta(ModelDelta(said))

    @property
    def told(self) -> str:
        return "".join(self._told)

    def finish(self, reply: Reply) -> None:
        """Report the rest. Text that turned out not to be the answer, such as unmarked thinking, is taken back."""
        if self.on_delta is None:
            return
        if not reply.text.startswith(self.told):
            self.on_delta(ModelDelta(reset=True))
            self._told.clear()
        if rest := reply.text[len(self.told) :]:
            self.on_delta(ModelDelta(rest))
        tell(reply, self.on_delta, text=False)


def _is_stream(response: httpx2.Response) -> bool:
    return str(response.headers.get("content-type", "")).startswith("text/event-stream")


def _with_cost(failure: ModelFailure, request: Request, heard: _Heard) -> ModelFailure:
    """A request that failed on the way back may have been answered, and was then charged."""
    spent = failure.kind not in _NOTHING_SPENT or heard.fold.begun
    if spent and not failure.reply.usage.input_tokens:
        usage = Usage(asked_tokens(request), estimate_tokens(heard.told), estimated=True)
        failure.reply = replace(failure.reply, usage=usage)
    return failure
