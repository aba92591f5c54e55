"""A session with a provider's API: at most one request per `run`.

`build.py` makes it; `dispatch.py` calls `run` and chooses the next model. `bodies.py` makes the body, `openai_api.py`
or `anthropic_api.py` sends it, and `answers.py` reads the answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Final

from switchboard.core.tokens import asked_tokens
from switchboard.domain.llm import ModelFailure, OnDelta, Reply, Request, Usage
from switchboard.llm import bodies
from switchboard.llm.answers import read_answer
from switchboard.llm.port import ApiKind, tell, with_usage
from switchboard.llm.spec import ModelSpec

Send = Callable[[bodies.Body], Awaitable[str]]
"""Sends a body and returns that of a 200; raises ModelFailure for everything else."""

_NOTHING_SPENT: Final = frozenset({"unavailable", "rate_limited", "auth", "defect", "context_too_long"})
_BODIES: Final[Mapping[ApiKind, Callable[[Request, ModelSpec], bodies.Body]]] = {
    "openai": bodies.chat,
    "openai-responses": bodies.responses,
    "anthropic": bodies.messages,
}


class ApiSession:
    """One model of one provider."""

    kind: ApiKind

    def __init__(self, spec: ModelSpec, kind: ApiKind, send: Send) -> None:
        self.name, self.model, self.kind = spec.name, spec.model, kind
        self._spec = spec
        self._send = send
        self._local = spec.profile == "local"
        self._body = bodies.local_chat if self._local else _BODIES[kind]

    async def run(self, request: Request, on_delta: OnDelta | None = None) -> Reply:
        """Ask once. Usage is always set: as the provider reported it, else an estimate."""
        try:
            async with asyncio.timeout(request.deadline):
                body = await self._send(self._body(request, self._spec))
            reply = read_answer(self.kind, body, request, as_json=self._local)
        except TimeoutError as error:
            raise _with_cost(ModelFailure("timeout", f"no answer within {request.deadline:g} s"), request) from error
        except ModelFailure as failure:
            raise _with_cost(failure, request) from failure.__cause__
        reply = replace(with_usage(reply, request), origin=self._spec.origin)
        tell(reply, on_delta)
        return reply


def _with_cost(failure: ModelFailure, request: Request) -> ModelFailure:
    """A request that failed on the way back may have been answered, and then it was paid for."""
    if failure.kind not in _NOTHING_SPENT and not failure.reply.usage.input_tokens:
        failure.reply = replace(failure.reply, usage=Usage(asked_tokens(request), estimated=True))
    return failure
