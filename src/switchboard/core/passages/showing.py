"""The text of a message as models read it, with whose words it is, line by line. Pure.

The sender's own words stand as they are; every line of others' words begins with `|`, so that nobody's words can pass
for somebody else's. Called by `core/turns/entries.py`, the tool `message_original` and `switchboard messages show`. In:
passages; out: a text.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from switchboard.core.passages.folding import Shown
from switchboard.core.passages.names import shown_name
from switchboard.core.passages.own import JOINT

NOTE: Final = "[Lines that begin with | are not by the sender, who may still ask you to work on them.]"
"""Said once, above a message that has such lines."""
_MARK: Final = 40
"""Characters that are kept free for the mark of a shortened text."""
_HEADS: Final = {
    "quoted": "quoted",
    "forwarded": "forwarded",
    "between": "below or between quoted lines, and probably by the sender",
}


def shown_text(passages: Sequence[Shown]) -> str:
    """The text. A message of nothing but own words is shown unchanged."""
    noted = (NOTE,) if any(not _is_by_sender(one) and not one.folded for one in passages) else ()
    return JOINT.join((*noted, marked_text(passages)))


def marked_text(passages: Sequence[Shown]) -> str:
    """The same for a person, who needs no note."""
    return JOINT.join(map(_show_passage, passages))


def plain_text(passages: Iterable[Shown]) -> str:
    """The same without marks of whose words it is, as rules and classifiers read it."""
    return JOINT.join(one.text for one in passages)


def shortened_text(text: str, most: int) -> str:
    """The text in at most `most` characters, of which the last say how many are missing."""
    if len(text) <= most:
        return text
    kept = most - _MARK
    return f"{text[:kept]} [{len(text) - kept} more characters]"


def _show_passage(one: Shown) -> str:
    if _is_by_sender(one) or one.folded:
        return one.text
    # Not split("\n"): the prompt quotes each of these lines.
    return "\n".join((_head_of(one), *(f"| {line}" for line in one.text.splitlines())))


def _is_by_sender(one: Shown) -> bool:
    """A transcript has its mark in its text."""
    return one.kind in ("own", "transcript")


def _head_of(one: Shown) -> str:
    name = shown_name(one.author)
    said = (f'says it is from "{name}"' if name else "", f"of {one.sent_at:%Y-%m-%d %H:%M}" if one.sent_at else "")
    return f"[{', '.join(filter(None, (_HEADS[one.kind], *said)))}]"
