"""How much history a model is shown, by channel: the strategies `realtime`, `email` and `none` of the seed data.

Called by `journey/ask.py`: `LIMITS` says what a query needs to fetch, `select_history` which part to keep; `prompt.py`
calls `newest_within` for the part that fits one model. In: a channel, then the conversation; out: the newest
utterances, in order. Next: `prompt.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from switchboard.core.text.outside import outside_json
from switchboard.core.text.tokens import estimate_tokens
from switchboard.domain.classification import Utterance
from switchboard.ports.channel import Strategy


class HistoryLimits(Struct, frozen=True):
    """The limits; None where there is no limit. A query can use the first two directly."""

    strategy: Strategy
    max_age: timedelta | None = None
    max_count: int | None = None
    max_tokens: int | None = None


REALTIME: Final = HistoryLimits("realtime", max_age=timedelta(minutes=15), max_count=30)
EMAIL: Final = HistoryLimits("email", max_tokens=50_000)
NONE: Final = HistoryLimits("none", max_count=0)
LIMITS: Final[Mapping[str, HistoryLimits]] = {one.strategy: one for one in (REALTIME, EMAIL, NONE)}
"""The limits by the strategy that a channel has."""


def utterance_record(utterance: Utterance) -> dict[str, object]:
    """An utterance as shown to the model; `cut` is present only if true."""
    record: dict[str, object] = {
        "at": utterance.at.isoformat(),
        "from": "us" if utterance.ours else "them",
        "author": utterance.author,
        "text": utterance.text,
    }
    return record | {"cut": True} if utterance.cut else record


def utterance_tokens(utterance: Utterance) -> int:
    """The cost of an utterance in the prompt, including its JSON and the comma after it."""
    return estimate_tokens(outside_json(utterance_record(utterance)) + ",")


def select_history(
    utterances: Iterable[Utterance],
    limits: HistoryLimits,
    now: datetime,
    price: Callable[[Utterance], int] = utterance_tokens,
) -> tuple[Utterance, ...]:
    """The newest utterances within `limits`, oldest first; those of the same time keep their order.

    An utterance newer than `now` (by another machine's clock) counts as new. With a token limit, the walk back ends at
    the first that does not fit, so that there are no gaps; if that is the newest, it is cut. `price` is called at most
    once per utterance, and a few more times for one that is cut.
    """
    by_age = sorted(utterances, key=lambda utterance: utterance.at)
    if limits.max_age is not None:
        oldest = now - limits.max_age
        by_age = [utterance for utterance in by_age if utterance.at >= oldest]
    if limits.max_count is not None:
        by_age = by_age[max(0, len(by_age) - limits.max_count) :]
    return tuple(by_age) if limits.max_tokens is None else newest_within(by_age, limits.max_tokens, price)


def newest_within(
    by_age: Sequence[Utterance], budget: int, price: Callable[[Utterance], int] = utterance_tokens
) -> tuple[Utterance, ...]:
    """The newest utterances that together cost at most `budget`, in order; if not even one fits, its beginning."""
    left, first = budget, len(by_age)
    while first > 0 and (cost := price(by_age[first - 1])) <= left:
        first, left = first - 1, left - cost
    if first == len(by_age) > 0:
        return _cut_utterance(by_age[-1], budget, price)
    return tuple(by_age[first:])


def _cut_utterance(utterance: Utterance, budget: int, price: Callable[[Utterance], int]) -> tuple[Utterance, ...]:
    """The beginning of an utterance, because mails quote at the end; empty if not even its frame fits."""
    kept = utterance
    while (cost := price(kept)) > budget:
        if not kept.text:
            return ()
        # Pieces differ in cost, so the share is a guess; it shrinks by at least a tenth, so the loop ends.
        length = int(len(kept.text) * min(0.9, budget / cost))
        kept = replace(utterance, text=utterance.text[:length], cut=True)
    return (kept,)
