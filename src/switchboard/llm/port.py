"""The port: one model that can be asked.

`dispatch.py` calls `Session.run` with a `Request` and gets a `Reply` or a `ModelFailure`. Implemented by `api.py` (one
request to a provider) and `cli.py` (one run of a program). Next: `dispatch.py`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, Protocol

from switchboard.core.tokens import asked_tokens, estimate_tokens
from switchboard.domain.llm import Reply, Request, Usage

ApiKind = Literal["openai", "openai-responses", "anthropic"]
CliKind = Literal["claude-code", "codex", "gemini-cli", "opencode"]
Kind = Literal[ApiKind, CliKind]


class Session(Protocol):
    """One model that can be asked. `name` is that of the settings, `model` the provider's."""

    @property
    def name(self) -> str: ...

    @property
    def model(self) -> str: ...

    @property
    def kind(self) -> Kind: ...

    async def run(self, request: Request) -> Reply:
        """Ask once, within `request.deadline`. Raises ModelFailure. Cancelled, it leaves nothing running."""


def with_usage(reply: Reply, request: Request) -> Reply:
    """The reply with its usage; if none was reported, an estimate from the request and the reply."""
    if reply.usage.tokens:
        return reply
    said = reply.text + "".join(f"{call.name}{call.arguments}" for call in reply.calls)
    usage = Usage(asked_tokens(request), estimate_tokens(said), reply.usage.cost_usd, estimated=True)
    return replace(reply, usage=usage)
