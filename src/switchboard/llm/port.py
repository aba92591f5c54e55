"""The port: one model that can be asked.

`dispatch.py` calls `ModelSession.run` with a `Request` and gets a `Reply` or a `ModelFailure`. Implemented by `api.py`
(one request to a provider) and `cli.py` (one run of a program). Next: `dispatch.py`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, Protocol

from msgspec import structs

from switchboard.core.text.tokens import asked_tokens, estimate_tokens
from switchboard.domain.llm import ModelDelta, OnDelta, Reply, Request

ApiKind = Literal["openai", "openai-responses", "anthropic"]
CliKind = Literal["claude-code", "codex", "gemini-cli", "opencode"]
Kind = Literal[ApiKind, CliKind]


class ModelSession(Protocol):
    """One model that can be asked."""

    @property
    def kind(self) -> Kind: ...

    async def run(self, request: Request, on_delta: OnDelta | None = None, /) -> Reply:
        """Ask once, within `request.deadline`. Raises ModelFailure. If cancelled, leaves nothing running.

        `on_delta` receives the reply while it is written; the deltas fold to the returned reply. After a failure, the
        deltas so far are void.
        """


def with_usage(reply: Reply, request: Request) -> Reply:
    """The reply with its usage; unreported figures are estimated from the request and the reply.

    Zero tokens for a reply with content do not count as a report, or they would evade any limit.
    """
    used = reply.usage
    said = reply.text + "".join(f"{call.name}{call.arguments}" for call in reply.calls)
    if used.output_tokens or (used.input_tokens and not said):
        return reply
    asked = used.input_tokens or asked_tokens(request)
    return replace(
        reply, usage=structs.replace(used, input_tokens=asked, output_tokens=estimate_tokens(said), estimated=True)
    )


def tell(reply: Reply, on_delta: OnDelta | None, *, text: bool = True) -> None:
    """Report the rest of a reply: its calls and its end, preceded by its text unless already reported."""
    if on_delta is None:
        return
    if text and reply.text:
        on_delta(ModelDelta(reply.text))
    for call in reply.calls:
        on_delta(ModelDelta(call=call))
    on_delta(ModelDelta(end=replace(reply, text="", calls=())))
