"""The port of a model session: what is asked, what comes back, and what can go wrong.

`dispatch.py` calls `Session.run` with a `SessionTask`; a `Transcript` leaves, or a `SessionFailure`. Who answers is
`api.py` (one request to a provider) or `cli.py` (one run of a program). Next: `core/pipeline/verdict.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol

from switchboard.core.pipeline.prompt import Prompt
from switchboard.core.pipeline.tokens import estimate_tokens
from switchboard.core.pipeline.transcript import Transcript, Usage

ApiKind = Literal["openai", "openai-responses", "anthropic"]
CliKind = Literal["claude-code", "codex", "gemini-cli", "opencode"]
Kind = Literal[ApiKind, CliKind]
FailureKind = Literal[
    "rate_limited",  # the provider says so, or has no quota left
    "unavailable",  # not reached, broken off, an error of its own; of a command line also: our tool was not to be had
    "refused",  # the model will not answer this
    "timeout",
    "garbage",  # an answer that is none: no JSON, cut off, too large
    "context_too_long",
    "auth",
    "defect",  # what we ask for is wrong: no such model, no such program, a call that is not allowed
]
_OF_THE_MESSAGE: Final = frozenset({"refused", "context_too_long"})
_NOT_RETRYABLE: Final = frozenset({"refused", "context_too_long", "auth", "defect"})
_TOOL_WORDS: Final = 100
"""About how many tokens a provider makes of the frame around a tool."""


@dataclass(frozen=True, slots=True)
class SessionTask:
    """One question.

    `tool` is the JSON Schema of the arguments of `route_to_butler`. A command line needs `mcp_url` and a `token` that
    opens this one tool there; an API needs neither. `max_tokens` of the answer; `deadline` in seconds from now.
    """

    prompt: Prompt
    tool: Mapping[str, Any]
    request_id: str
    token: str | None = field(default=None, repr=False)
    mcp_url: str | None = None
    max_tokens: int = 1024
    deadline: float = 60.0


@dataclass(frozen=True, slots=True)
class EstimatedUsage(Usage):
    """Tokens as we guess them, because nobody told: never too few, and never a bill."""


class SessionFailure(Exception):
    """A session that came to nothing; what it said and cost until then is in `transcript`.

    `retryable`: the same session may do better later. `alive`: the other side is well, it is this message that it will
    not take; no reason to mistrust it. `retry_after` in seconds, where the provider asks for a pause.
    """

    def __init__(
        self,
        kind: FailureKind,
        message: str,
        *,
        retryable: bool | None = None,
        retry_after: float | None = None,
        alive: bool | None = None,
        transcript: Transcript | None = None,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.retryable = kind not in _NOT_RETRYABLE if retryable is None else retryable
        self.retry_after = retry_after
        self.alive = kind in _OF_THE_MESSAGE if alive is None else alive
        self.transcript = transcript or Transcript()


class Session(Protocol):
    """One model that can be asked. `name` is that of the settings, `model` the provider's."""

    @property
    def name(self) -> str: ...

    @property
    def model(self) -> str: ...

    @property
    def kind(self) -> Kind: ...

    async def run(self, task: SessionTask) -> Transcript:
        """Ask once, within `task.deadline`. Raises SessionFailure. Cancelled, it leaves nothing running."""


def asked_tokens(task: SessionTask) -> int:
    """About how many tokens the question is."""
    return estimate_tokens(task.prompt.text) + estimate_tokens(str(task.tool)) + _TOOL_WORDS


def with_usage(transcript: Transcript, usage: Usage, task: SessionTask) -> Usage:
    """`usage`, or where nobody told any an estimate of what was asked and of what was said."""
    if usage.input_tokens or usage.output_tokens:
        return usage
    said = transcript.text + "".join(f"{call.name}{call.arguments}" for call in transcript.calls)
    return EstimatedUsage(asked_tokens(task), estimate_tokens(said), usage.cost_usd)
