"""How fast a model reads, and how long it may take. Pure.

`dispatch.py` keeps a `Pace` per model of its process: it learns from answered requests, and only ever allows more time
than the settings. `app/models/model_tests.py` measures one with a long request, for the settings.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from math import ceil
from typing import Final

from switchboard.core.text.tokens import asked_tokens
from switchboard.domain.llm import ModelAttempt, Reply, Request, Usage
from switchboard.llm.spec import ModelSpec

MARGIN: Final = 3
"""A model may take so many times as long as it should need to read a request."""
_LEAST_TOKENS: Final = 200
"""Read tokens from which on a request says how fast a model reads."""
_ROUND_S: Final = 10
_LONGEST_S: Final = 3_600
"""If it takes longer to read a full context, the machine was probably busy when the speed was measured."""
_WORTH_TELLING_S: Final = 5


def reading_speed(usage: Usage, seconds: float) -> float | None:
    """Tokens that a model reads per second, from one answer; None if it does not show.

    What was read before, and came from the server's cache, does not count. Writing counts as reading, so the model may
    be faster.
    """
    read = usage.input_tokens - usage.cache_read
    if usage.estimated or read < _LEAST_TOKENS or read < usage.output_tokens or seconds <= 0:
        return None
    return read / seconds


def speed_of(attempt: ModelAttempt) -> float | None:
    """The same, from an attempt that was answered."""
    return reading_speed(attempt.usage, attempt.ms / 1000) if attempt.outcome in {"answered", "unfit"} else None


def timeout_for(context: int, speed: float) -> int:
    """Seconds that a request which fills the context may take, in tens; an hour at most."""
    return min(ceil(MARGIN * context / speed / _ROUND_S) * _ROUND_S, _LONGEST_S)


class Pace:
    """How fast one local model reads, as far as this process knows. Tokens are those of `core/text/tokens.py`.

    They are more than the model counts, but the same estimate is made of what is to be read.
    """

    def __init__(self, spec: ModelSpec) -> None:
        self._spec = spec
        self._speed: float | None = None
        self._read: Sequence[int] = ()
        """The parts of the last request that was answered."""

    def note(self, request: Request, reply: Reply, seconds: float) -> None:
        """Learn from an answer. Recent ones count more, as other work slows machines down.

        Models of providers are not slow for what they read, so nothing is learnt of them.
        """
        if self._spec.profile != "local":
            return
        self._read = _parts(request)
        if reading_speed(reply.usage, seconds) is None:
            return
        tokens = asked_tokens(request)
        speed = tokens * (1 - reply.usage.cache_read / reply.usage.input_tokens) / seconds
        self._speed = speed if self._speed is None else (self._speed + speed) / 2

    def limit(self, tokens: int) -> float:
        """The seconds that a request of so many tokens may take: never less than in the settings."""
        return self._spec.timeout if self._speed is None else max(self._spec.timeout, MARGIN * tokens / self._speed)

    def reading(self, request: Request) -> int:
        """The seconds that the model will probably need to read a request, if that is worth telling; otherwise 0.

        Servers keep what they have read last, so only what is new in a request counts.
        """
        if self._speed is None:
            return 0
        known, parts = self._read, _parts(request)
        same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(known, parts, strict=False)))
        new = Request(request.messages[same - 1 :]) if same else request
        seconds = round(asked_tokens(new) / self._speed)
        return seconds if seconds >= _WORTH_TELLING_S else 0


def _parts(request: Request) -> Sequence[int]:
    """A number for what precedes the messages, and for each of them; the same parts have the same numbers."""
    head = (request.system, *(tool.name for tool in request.tools), request.force)
    return hash(head), *(hash((one.role, Request((one,)).said)) for one in request.messages)
