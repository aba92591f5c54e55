"""The port: one model that can be asked.

`dispatch.py` calls `ModelSession.run` with a `Request` and gets a `Reply` or a `ModelFailure`. Implemented by `api.py`
(one request to a provider) and `cli.py` (one run of a program). Next: `dispatch.py`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, Protocol

from msgspec import structs

from switchboard.core.tokens import asked_tokens, estimate_tokens
from switchboard.domain.llm import ModelDelta, OnDelta, Reply, Request

ApiKind = Literal["openai", "openai-responses", "anthropic"]
CliKind = Literal["claude-code", "codex", "gemini-cli", "opencode"]
Kind = Literal[ApiKind, CliKind]


class ModelSession(Protocol):
    """One model that can be asked."""

    @property
    def kind(self) -> Kind: ...

    async def run(self, request: Request, on_delta: OnDelta | None = None, /) -> Reply:
        """Ask once, within `request.deadline`. Raises ModelFailure. Cancelled, it leaves nothing running.

        `on_delta` is told the reply while it is written; the deltas fold to what is returned. After a failure those
        told until then are void.
        """


def with_usage(reply: Reply, request: Request) -> Reply:
    """The reply with its usage; what was not reported is an estimate from the request and the reply.

    That something was said with no tokens at all is no report: a limit on them would hold nothing.
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
    """Tell what is left of a reply: its calls and its end, and before them, unless it is told already, its text."""
    if on_delta is None:
        return
    if text and reply.text:
        on_delta(ModelDelta(reply.text))
    for call in reply.calls:
        on_delta(ModelDelta(call=call))
    on_delta(ModelDelta(end=replace(reply, text="", calls=())))
