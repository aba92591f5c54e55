"""Makes passages fit into a message. Pure.

Called by `core/mail/parse.py` and by the connector of webhooks. In: passages of any length; out: passages that are not
too many and together not too long. Next: `domain/envelope.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from switchboard.core.passages.own import JOINT, joined
from switchboard.domain.envelope import MAX_PASSAGES, MAX_TEXT, Passage

_LEAST_KEPT: Final = 200
_CUT: Final = "\n[… {} more characters are not shown here; the original is kept]"


def fitting(passages: Sequence[Passage]) -> tuple[Passage, ...]:
    """At most 200 passages that fit into a message: the longest ones of others are cut first, with a mark."""
    kept = list(passages[:MAX_PASSAGES])
    while (over := len(joined(kept)) - MAX_TEXT) > 0:
        longest = max(range(len(kept)), key=lambda n: (kept[n].kind != "own", len(kept[n].text)))
        text = kept[longest].text
        if len(text) <= _LEAST_KEPT + len(_CUT):
            return tuple(_without_end(kept))
        left = max(_LEAST_KEPT, len(text) - over - len(_CUT) - 12)
        kept[longest] = replace(kept[longest], text=text[:left] + _CUT.format(f"{len(text) - left:,}"))
    return tuple(kept)


def _without_end(passages: Sequence[Passage]) -> list[Passage]:
    """As many as fit, of which none is long."""
    kept, left = list[Passage](), MAX_TEXT
    for one in passages:
        left -= len(one.text) + len(JOINT)
        if left < 0:
            break
        kept.append(one)
    return kept
