"""How much of what was said before a model is shown, by channel: the seeds' strategies `realtime`, `email` and `none`.

Called by `journey/pipeline.py`: `history_limits` says what a query needs to fetch, `select_history` what of it is kept;
`prompt.py` asks `newest_within` what of that one model is shown.
A channel enters, then the conversation; the newest utterances leave, in their order. Next: `core/pipeline/prompt.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, Literal

from switchboard.core.pipeline.outside import outside_json
from switchboard.core.pipeline.tokens import estimate_tokens
from switchboard.domain.pipeline import Utterance

Strategy = Literal["realtime", "email", "none"]


@dataclass(frozen=True, slots=True)
class HistoryLimits:
    """What may be shown at most; None where there is no such limit. A query can use the first two as they are."""

    strategy: Strategy
    max_age: timedelta | None = None
    max_count: int | None = None
    max_tokens: int | None = None


REALTIME: Final = HistoryLimits("realtime", max_age=timedelta(minutes=15), max_count=30)
EMAIL: Final = HistoryLimits("email", max_tokens=50_000)
NONE: Final = HistoryLimits("none", max_count=0)

# Signal and SMS are chats like those that the seeds name.
_CHATS: Final = frozenset({"telegram", "whatsapp", "slack", "discord", "matrix", "xmpp", "irc", "signal", "sms"})
_CHATS_BY_ANOTHER_DOOR: Final = frozenset({"telegram_bot", "telegram_user_client", "whatsapp_user_client"})


def history_limits(channel: str) -> HistoryLimits:
    """The limits for a channel: REALTIME for chats, EMAIL for mail, NONE for api, mcp, cli and all else."""
    if channel in _CHATS or channel in _CHATS_BY_ANOTHER_DOOR:
        return REALTIME
    return EMAIL if channel == "email" else NONE


def utterance_record(utterance: Utterance) -> dict[str, object]:
    """An utterance as the model is shown it; `cut` is there only where it is true."""
    record: dict[str, object] = {
        "at": utterance.at.isoformat(),
        "from": "us" if utterance.ours else "them",
        "author": utterance.author,
        "text": utterance.text,
    }
    return record | {"cut": True} if utterance.cut else record


def utterance_tokens(utterance: Utterance) -> int:
    """What an utterance costs in the prompt, its JSON and the comma behind it included."""
    return estimate_tokens(outside_json(utterance_record(utterance)) + ",")


def select_history(
    utterances: Iterable[Utterance],
    limits: HistoryLimits,
    now: datetime,
    price: Callable[[Utterance], int] = utterance_tokens,
) -> tuple[Utterance, ...]:
    """The newest utterances within `limits`, oldest first; those of the same moment stay in the order they came in.

    What is newer than `now` (another machine's clock) counts as new. With a limit of tokens the first that does not
    fit ends the walk back, so that what is kept has no gaps; the newest of all is then cut to what fits. `price` is
    asked at most once per utterance, and some more times for one that is cut.
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
    """The newest that cost no more than `budget` together, in their order; of one that does not fit, its beginning."""
    left, first = budget, len(by_age)
    while first > 0 and (cost := price(by_age[first - 1])) <= left:
        first, left = first - 1, left - cost
    if first == len(by_age) > 0:
        return _cut(by_age[-1], budget, price)
    return tuple(by_age[first:])


def _cut(utterance: Utterance, budget: int, price: Callable[[Utterance], int]) -> tuple[Utterance, ...]:
    """The beginning of an utterance that fits: a mail quotes at its end. Nothing where not even its frame fits."""
    kept = utterance
    while (cost := price(kept)) > budget:
        if not kept.text:
            return ()
        # Pieces cost differently, so the share is a guess; it shrinks by a tenth at least, and thus ends.
        length = int(len(kept.text) * min(0.9, budget / cost))
        kept = replace(utterance, text=utterance.text[:length], cut=True)
    return (kept,)
