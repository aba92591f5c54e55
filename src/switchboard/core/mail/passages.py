"""The passages of a mail: its subject, its text, and what it forwards as a file.

Called by `core/mail/parse.py`. In: the texts of a mail and what its header fields say; out: passages in reading order,
which have all visible words. Next: `core/passages/plain.py`, and `core/passages/fitting.py` for what is too long.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from switchboard.core.mail.reading import Reading
from switchboard.core.mail.texts import MailText
from switchboard.core.passages.alternatives import reconcile_tags
from switchboard.core.passages.own import has_others_words, joined
from switchboard.core.passages.plain import (
    Hint,
    LineTag,
    MailFacts,
    answering,
    is_answer_subject,
    passages_of_lines,
    tags_of,
)
from switchboard.domain.envelope import Passage

_MOST_HTML: Final = 262_144
"""Characters of HTML that are searched for marks if there is a plain text as well, without pictures in it."""
_DATA = re.compile(r"data:[^\s\"'<>()]{100,}", re.IGNORECASE)


def passages_of_text(text: MailText, facts: MailFacts, reading: Reading) -> tuple[Passage, ...]:
    """Whose words the parts of a text are. A line is the sender's own only if neither form calls it others'."""
    if not text.text.strip():
        return ()
    if text.forwarded:
        return (Passage(kind="forwarded", text=text.text, author=text.author, sent_at=text.sent_at),)
    lines, tags = (
        _tagged_html(text.html, facts, reading) if text.rendered and text.html else _tagged_plain(text, facts, reading)
    )
    return answering(passages_of_lines(lines, tags), tags, facts)


def _tagged_plain(text: MailText, facts: MailFacts, reading: Reading) -> tuple[list[str], list[LineTag]]:
    lines = text.text.splitlines()
    tags = tags_of(lines, (), facts)
    if not text.html:
        return lines, tags
    source = _DATA.sub("data:", text.html)[:_MOST_HTML]
    return lines, reconcile_tags(lines, tags, list(zip(*_tagged_html(source, facts, reading), strict=True)))


def _tagged_html(source: str, facts: MailFacts, reading: Reading) -> tuple[list[str], list[LineTag]]:
    found = reading.html(source).lines
    hints: list[Hint] = [line.hint for line in found]
    lines = [line.quoted for line in found]
    return lines, tags_of(lines, hints, facts)


def passages_of_texts(texts: Sequence[MailText], facts: MailFacts, reading: Reading) -> tuple[Passage, ...]:
    """Those of all texts of a mail. A picture parts a reply, so a text behind others' words may be theirs as well."""
    found = list[Passage]()
    for text in texts:
        others = has_others_words(found)
        for one in passages_of_text(text, facts, reading):
            found.append(replace(one, kind="between") if others and one.kind == "own" else one)
    return merge_neighbours(found)


def merge_neighbours(passages: Sequence[Passage]) -> tuple[Passage, ...]:
    """The same, with neighbours of the sender's own words as one."""
    found = list[Passage]()
    for one in passages:
        if found and found[-1].kind == one.kind == "own":
            found[-1] = replace(found[-1], text=joined((found[-1], one)))
        else:
            found.append(one)
    return tuple(found)


def below_subject(subject: str, passages: Sequence[Passage], facts: MailFacts) -> tuple[Passage, ...]:
    """The passages below that of the subject, which is the sender's own only in a mail that has nothing of others.

    A stranger writes the subject of a mail that is answered or forwarded.
    """
    if not subject:
        return tuple(passages)
    others = facts.answers is not None or is_answer_subject(subject) or has_others_words(passages)
    return merge_neighbours((Passage(kind="quoted" if others else "own", text=subject), *passages))
