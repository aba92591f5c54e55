"""The passages of a message, and which words in it are the sender's own. Pure.

Called wherever a text gives authority: for commands, addresses to fetch, paths, facts, and to tell whether a turn has
read others' words. In: an envelope; out: passages, or the sender's words alone. Next: `plain.py`, which reads texts
whose passages nobody has given.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from switchboard.core.passages.plain import passages_of_mail, passages_of_text
from switchboard.domain.envelope import Envelope, Passage

JOINT: Final = "\n\n"
"""Between the passages of a text."""
MAIL: Final = "email"
"""The channel whose texts are read in full."""


def passages_of(envelope: Envelope) -> tuple[Passage, ...]:
    """Whose words the parts of a message are, in reading order; joined by blank lines they are its text.

    Without given passages, the text is read: in full for mail, elsewhere only lines that begin with `>` are others'.
    """
    payload = envelope.payload
    if payload.passages or not payload.normalized_text:
        return payload.passages
    return read_passages(payload.normalized_text, envelope.source.channel)


def read_passages(text: str, channel: str) -> tuple[Passage, ...]:
    """The passages of a text of which nothing but its channel is known."""
    return passages_of_mail(text) if channel == MAIL else passages_of_text(text)


def own_text(passages: Sequence[Passage]) -> str:
    """The sender's own words."""
    return JOINT.join(one.text for one in passages if one.kind == "own")


def has_others_words(passages: Sequence[Passage]) -> bool:
    """Whether anything in a message may be by somebody else; what its sender said aloud is not."""
    return any(one.kind not in ("own", "transcript") for one in passages)


def joined(passages: Sequence[Passage]) -> str:
    """The text of a message with these passages."""
    return JOINT.join(one.text for one in passages)


def part_of(passages: Sequence[Passage], part: str) -> tuple[Passage, ...]:
    """The passages of a part of the text, such as a model made of it. What is not in the text is not the sender's.

    In a message with others' words nothing in a part is `own`: the model that cut it has read them, and may have cut
    "delete it" out of "never delete it".
    """
    text, at, found = joined(passages), 0, list[Passage]()
    begin = text.find(part)
    if begin < 0:
        return (Passage(kind="between", text=part),) if part.strip() else ()
    if part.strip() == text.strip():
        return tuple(passages)
    mixed = has_others_words(passages)
    for one in passages:
        words = text[max(begin, at) : min(begin + len(part), at + len(one.text))].strip()
        at += len(one.text) + len(JOINT)
        if words:
            found.append(replace(one, kind="between" if mixed and one.kind == "own" else one.kind, text=words))
    return tuple(found)
