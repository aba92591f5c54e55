"""Makes passages fit into a message. Pure.

Called by `core/mail/parse.py` and by the connector of webhooks. In: passages of any length; out: passages that are not
too many and together not too long. Next: `domain/envelope.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from switchboard.core.passages.own import JOINT
from switchboard.core.passages.plain import limit_passages
from switchboard.domain.envelope import MAX_TEXT, Passage

_LEAST_KEPT: Final = 200
_CUT: Final = "\n[… {} more characters are not shown here; the original is kept]"
_MARK: Final = len(_CUT.format("100,000,000"))


def fitting(passages: Sequence[Passage]) -> tuple[Passage, ...]:
    """At most 200 passages that fit into a message. What is cut has a mark; long ones of others are cut first."""
    kept = list(limit_passages(passages))
    while (over := sum(len(one.text) + len(JOINT) for one in kept) - MAX_TEXT) > 0:
        long = [n for n, one in enumerate(kept) if len(one.text) > 2 * _LEAST_KEPT]
        longest = max(long, key=lambda n: (kept[n].kind != "own", len(kept[n].text)))
        kept[longest] = _cut_passage(kept[longest], over)
    return tuple(kept)


def _cut_passage(passage: Passage, over: int) -> Passage:
    """The passage without its end, shorter by `over` characters if that leaves a beginning."""
    left = max(_LEAST_KEPT, len(passage.text) - over - _MARK)
    more = f"{len(passage.text) - left:,}"
    return replace(passage, text=passage.text[:left].rstrip() + _CUT.format(more))
