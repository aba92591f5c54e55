"""Reads whose words the lines of a text are. Pure, and in linear time, because a stranger wrote the text.

Called by `own.py` for texts of which nothing else is known, and by `core/mail/passages.py`, which knows the header
fields and the marks of HTML. In: lines; out: passages, which have all visible words. Whatever follows a sign of others
is not the sender's own: a passage that is wrongly `quoted` costs a question, one that is wrongly `own` a command. Next:
`signs.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, groupby, takewhile
from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from switchboard.core.passages.signs import FORWARD_PREFIX, REPLY_PREFIX, Sign, bare, is_marked, sign_at
from switchboard.domain.envelope import MAX_PASSAGES, MAX_TEXT, Passage, PassageKind
from switchboard.ports.chat import is_quoted_line

Hint = Literal["", "inside", "attribution", "rest"]
"""What the HTML of a mail says of a line: it is in a container of others' words, names their author, or begins a part
that is others' to the end."""

_MAX_AUTHOR: Final = 512


class LineTag(Struct, frozen=True):
    """Whose words a line is. `wrote`: an attribution says so; `author`: whom it names."""

    kind: PassageKind
    wrote: bool = False
    author: str | None = None


OWN: Final = LineTag("own")
_BETWEEN: Final = LineTag("between")
_QUOTED: Final = LineTag("quoted")


class MailFacts(Struct, frozen=True):
    """What the header fields say. `answers`: the id of the mail that this one answers; `forwards`: its subject does."""

    answers: str | None = None
    forwards: bool = False


_NOTHING_KNOWN: Final = MailFacts()


def passages_of_text(text: str) -> tuple[Passage, ...]:
    """The passages of a text that is not a mail: lines that begin with `>` are quoted."""
    lines = text.splitlines()
    return passages_of_lines(lines, [_QUOTED if is_quoted_line(line) else OWN for line in lines])


def passages_of_mail(text: str) -> tuple[Passage, ...]:
    """The passages of the text of a mail of which nothing else is known; its subject may be the first paragraph."""
    lines = text.splitlines()
    tags = tags_of(lines)
    if len(lines) > 1 and not lines[1].strip() and is_answer_subject(lines[0]):
        tags[0] = _QUOTED
    return passages_of_lines(lines, tags)


def is_answer_subject(subject: str) -> bool:
    """Whether a subject begins as that of a reply or of a forwarded mail, and is thus others' words."""
    return any(prefix.match(bare(subject)) for prefix in (FORWARD_PREFIX, REPLY_PREFIX))


def is_forward_subject(subject: str) -> bool:
    """Whether a subject begins as that of a forwarded mail."""
    return FORWARD_PREFIX.match(bare(subject)) is not None


def tags_of(lines: Sequence[str], hints: Sequence[Hint] = (), facts: MailFacts = _NOTHING_KNOWN) -> list[LineTag]:
    """Whose words the lines of a mail are, one tag for each."""
    shown = [bare(line) for line in lines[: _most_lines(lines)]]
    if not facts.forwards and facts.answers is None and _is_one_quotation(shown):
        return [_BETWEEN] * len(lines)
    text, tags = _Text(shown, hints or [""] * len(lines), facts), list[LineTag]()
    while len(tags) < len(shown):
        tags += text.block_at(len(tags), tags[-1] if tags else OWN)
    # What is longer than a message may be is cut from it: from the sender's own words, if there are no others.
    return tags + tags[-1:] * (len(lines) - len(tags))


def _most_lines(lines: Sequence[str]) -> int:
    """How many lines are read: what is longer than a message may be is cut from it, and need not be read."""
    return next((n for n, size in enumerate(accumulate(map(len, lines)), 1) if size > MAX_TEXT), len(lines))


class _Text(Struct, frozen=True):
    """The lines of a mail as they are shown, and what is known of them."""

    shown: Sequence[str]
    hints: Sequence[Hint]
    facts: MailFacts

    def block_at(self, at: int, above: LineTag) -> list[LineTag]:
        """The tags of the next lines, at least of one; `above`: that of the line above."""
        if not self.shown[at]:
            return [above]
        if is_marked(self.shown[at]):
            return [_QUOTED]
        sign = sign_at(self.shown, at) or self._sign_of_hint(at)
        if sign is None:
            return [OWN if above.kind == "own" and self.hints[at] != "inside" else _BETWEEN]
        left = len(self.shown) - at
        if not sign.wrote:
            forwarded = sign.forwards or (sign.addressed and self.facts.answers is None)
            return [LineTag("forwarded" if forwarded else "quoted", author=_shorten_author(sign.author))] * left
        tag = LineTag("quoted", wrote=True, author=_shorten_author(sign.author))
        return [tag] * (sign.lines if _is_marked_below(self.shown, at + sign.lines) else left)

    def _sign_of_hint(self, at: int) -> Sign | None:
        """The sign that only the HTML has."""
        if self.hints[at] == "rest":
            return Sign(1)
        end = at
        while end < len(self.shown) and self.hints[end] == "attribution":
            end += 1
        return Sign(end - at, wrote=True) if end > at else None


def _is_marked_below(shown: Sequence[str], at: int) -> bool:
    """Whether the next line that is not blank is marked as quoted, so that the quotation ends where the marks do."""
    below = next((shown[n] for n in range(at, len(shown)) if shown[n]), "")
    return is_marked(below)


def _is_one_quotation(shown: Sequence[str]) -> bool:
    """Whether all lines are marked: some programs do that to what a person wrote in another one."""
    return any(shown) and all(is_marked(line) for line in shown if line)


def _shorten_author(author: str | None) -> str | None:
    return None if author is None else " ".join(author.split())[:_MAX_AUTHOR].strip() or None


# Passages -------------------------------------------------------------------------------------------------------------


def passages_of_lines(lines: Sequence[str], tags: Sequence[LineTag]) -> tuple[Passage, ...]:
    """The passages of tagged lines: neighbours of one kind are joined. At most 200."""
    return limit_passages(list(_group_passages(lines, tags)))


def limit_passages(passages: Sequence[Passage]) -> tuple[Passage, ...]:
    """At most as many as a message may have: what is beyond is one that is quoted."""
    if len(passages) <= MAX_PASSAGES:
        return tuple(passages)
    kept, rest = passages[: MAX_PASSAGES - 1], passages[MAX_PASSAGES - 1 :]
    return (*kept, Passage(kind="quoted", text="\n\n".join(one.text for one in rest)))


def _group_passages(lines: Sequence[str], tags: Sequence[LineTag]) -> Iterator[Passage]:
    said = list(zip(lines, tags, strict=True))
    for kind, group in groupby(_without_loose_blanks(said), key=_kind_of):
        block = list(group)
        text = "\n".join(line for line, _ in block).strip()
        if text:
            author = next((tag.author for _, tag in block if tag.author), None)
            yield Passage(kind=kind, text=text, author=author)


def _kind_of(said: tuple[str, LineTag]) -> PassageKind:
    return said[1].kind


def _without_loose_blanks(said: Sequence[tuple[str, LineTag]]) -> Iterator[tuple[str, LineTag]]:
    """The lines, blank ones with the tag of the line above, so that they part no passage."""
    last = OWN
    for n, (line, tag) in enumerate(said):
        if line.strip() or n == 0:
            last = tag
        yield line, last


def answering(passages: Sequence[Passage], tags: Sequence[LineTag], facts: MailFacts) -> tuple[Passage, ...]:
    """The passages, of which the last one says what it repeats, if it is surely the history of a reply.

    It is if an attribution stands above it, nothing by the sender stands below, and nothing is forwarded.
    """
    surely = facts.answers is not None and not facts.forwards and not any(one.kind == "forwarded" for one in passages)
    if not surely or not passages or passages[-1].kind != "quoted":
        return tuple(passages)
    block = takewhile(lambda tag: tag.kind == tags[-1].kind, reversed(tags))
    if not any(tag.wrote for tag in block):
        return tuple(passages)
    return (*passages[:-1], replace(passages[-1], refers_to=facts.answers))
