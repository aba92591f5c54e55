"""What becomes of a request to a model in a turn: the record for the journal, the account, and what a failure means.

`talk.py` and `agents/trio` send requests as steps of the journal. In: a `Report`; out: a `Costed` record, or an
`EngineFailure`. Next: `domain/llm.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Final
from uuid import UUID

import msgspec
import structlog
from msgspec import structs

from switchboard.domain.ledger import FailureClass
from switchboard.domain.llm import AWAY, ModelFailure, Reply, Report, Usage
from switchboard.ports.engine import Costed, EngineFailure, Journal, ModelUsage, Outage

log = structlog.get_logger(__name__)

_CLASSES: Final[Mapping[str, FailureClass]] = {"rate_limited": "overload", "timeout": "timeout"}
"""Of failures of models; all others mean that the target is not available."""


def _answered(report: Report, reply: Reply, seconds: float, reserved: int) -> Costed:
    usage = counted(reply.usage, reserved)
    cost = None if usage.cost_usd is None else round(usage.cost_usd * 1_000_000)
    record = {"reply": msgspec.to_builtins(replace(reply, usage=usage)), "seconds": seconds}
    tokens = generated(report, reserved) if reserved else usage.output_tokens
    return Costed(record, usage.input_tokens, tokens, cost)


def recorded(report: Report, seconds: float, *, last: bool, reserved: int = 0) -> Costed:
    """What the journal keeps of a request, for which so many tokens were `reserved`: they count where nobody reports.

    Raises ModelFailure for what may go better later.
    """
    if report.reply is not None:
        return _answered(report, report.reply, seconds, reserved)
    failure = report.failure or ModelFailure("unavailable", "no model answered")
    spent = generated(report, reserved) if reserved else 0
    if report.spent_up:
        log.warning("a turn ends at the limit of a day", reason=failure.message)
        return Costed({"spent": failure.message[:500]}, tokens_out=spent)
    if failure.kind != "refused" and (failure.kind in AWAY or not last):
        failure.reply = Reply(usage=Usage(output_tokens=generated(report, reserved)))
        raise failure
    return Costed({"refused" if failure.kind == "refused" else "failed": failure.message[:500]}, tokens_out=spent)


async def failure_of(
    failure: ModelFailure, journal: Journal, path: str, clock: Callable[[], datetime]
) -> EngineFailure:
    """What an unanswered request means for its turn; `path` is the step that keeps since when nobody answers."""
    error_class = _CLASSES.get(failure.kind, "target_unavailable")
    if failure.kind in AWAY:

        async def begun(_: UUID) -> str:
            return clock().isoformat()

        since = datetime.fromisoformat(await journal.step(path, begun))
        found: EngineFailure = Outage(
            failure.message, since=since, retry_after=failure.retry_after, error_class=error_class
        )
    else:
        found = EngineFailure(failure.message, error_class=error_class, retryable=failure.retryable)
    found.tokens = failure.reply.usage.output_tokens
    return found


def counted(usage: Usage, reserved: int) -> Usage:
    """The usage of an attempt; where it is not reported, and so many tokens were reserved, these count."""
    return structs.replace(usage, output_tokens=reserved) if usage.estimated and reserved else usage


def generated(report: Report, reserved: int = 0) -> int:
    """The tokens that all models together have generated that were asked for one request.

    An answer of which nobody saw the end may have had as many as were reserved.
    """
    return sum(
        reserved if one.outcome == "timeout" else counted(one.usage, reserved).output_tokens
        for one in report.attempts
        if one.asked
    )


class ModelUse:
    """What the models of a turn were used for."""

    def __init__(self) -> None:
        self._usage: dict[str, ModelUsage] = {}

    @property
    def usage(self) -> tuple[ModelUsage, ...]:
        """By model, in the order in which they first answered."""
        return tuple(self._usage.values())

    def book(self, reply: Reply) -> None:
        """What a reply has cost."""
        used = reply.usage
        name, cost = reply.model or "", used.cost_usd
        self.add(ModelUsage(name, used.input_tokens, used.output_tokens, used.cache_read, used.cache_write, cost))

    def add(self, used: ModelUsage) -> None:
        """What a model was used for."""
        before = self._usage.get(used.model, ModelUsage(used.model))
        cost = None if used.cost_usd is None else (before.cost_usd or 0.0) + used.cost_usd
        self._usage[used.model] = ModelUsage(
            used.model,
            before.input_tokens + used.input_tokens,
            before.output_tokens + used.output_tokens,
            before.cache_read + used.cache_read,
            before.cache_write + used.cache_write,
            before.cost_usd if cost is None else cost,
        )
