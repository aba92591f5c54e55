"""Whose words a Telegram message has: its own, those it quotes, and those it forwards. Pure; called by `updates.py`.

In: a message of the Bot API, however odd; out: passages in reading order, with links and names in words. Takes linear
time and raises nothing. Next: `described.py`.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain, islice
from typing import Final, NamedTuple
from unicodedata import category

from msgspec.structs import replace

from switchboard.connectors.telegram.content import files_of, speech_in
from switchboard.connectors.telegram.described import describe_content
from switchboard.core.channels.telegram import (
    answered_by,
    author_in,
    is_forwarded,
    name_of,
    origin_of,
    posted_in,
    time_of,
)
from switchboard.core.passages.own import joined, read_passages
from switchboard.core.passages.plain import limit_passages
from switchboard.domain.envelope import MAX_TEXT, Passage, PassageKind
from switchboard.ports.chat import is_quoted_line
from switchboard.ports.raw import Raw, at, child, one_line

Span = tuple[int, int]
"""From one character to before another."""
_QUOTES: Final = frozenset({"blockquote", "expandable_blockquote"})
_LINK: Final = re.compile(r"(?:https?://|tg:|mailto:)\S+", re.IGNORECASE)
_MAX_LINK: Final = 2048
_MAX_NAME: Final = 40
_MOST_NAMES: Final = 20
_MOST_NOTED: Final = 1999
"""Characters of a text below which mentioned people are named. What is longer may go on in the next message, and
nothing must stand in between."""
_IN_NAMES: Final = frozenset(" '\u2019-")
"""What is left of the names of mentioned people besides letters and digits: they choose them, and no name must look
like a link or a command."""
_SCHEME: Final = re.compile(r"https?://|mailto:", re.IGNORECASE)


class Entity(NamedTuple):
    """A marked part of a text, as positions of characters."""

    start: int
    end: int
    about: Raw

    def words(self, text: str) -> str:
        """The part, or the beginning of it if it is longer than any link or name."""
        return text[self.start : min(self.end, self.start + _MAX_LINK + 1)]


def passages_in(message: Raw, username: str | None) -> tuple[Passage, ...]:
    """The words that a person would read, or those that describe the content.

    A command addressed to our bot, whose name is `username`, loses the name, which may change.
    """
    typed, entities = entities_of(message)
    text, quotes = _in_words(typed, entities)
    notes = [
        *_describe_content(message, alone=not text.strip()),
        *_passage("quoted", _names_of_mentioned(typed, entities)),
    ]
    if _is_by_others(message):
        return _forwarded_passages(message, joined([*_passage("own", text), *notes]))
    return limit_passages([*_quoted_selection(message), *_split_marked_quotes(text, quotes, username), *notes])


def entities_of(message: Raw) -> tuple[str, tuple[Entity, ...]]:
    """The text or caption, and its entities in order; those that are odd are left out."""
    text = at(message, "text") or at(message, "caption")
    found = message.get("entities") or message.get("caption_entities")
    if not isinstance(text, str) or not isinstance(found, list):
        return text if isinstance(text, str) else "", ()
    places = _places(text)
    return text, tuple(sorted(chain.from_iterable(_entities(child(one), places) for one in found), key=_span))


def own_entities(message: Raw) -> Iterator[tuple[str, Raw]]:
    """The words of each entity that stands in the sender's own words, and the entity."""
    if _is_by_others(message):
        return
    text, entities = entities_of(message)
    quoted = _merge_spans(sorted([*_quotes(entities), *_quoted_lines(text)]))
    starts = [start for start, _ in quoted]
    for entity in entities:
        before = bisect_right(starts, entity.start) - 1
        if before < 0 or quoted[before][1] <= entity.start:
            yield entity.words(text), entity.about


def _quoted_lines(text: str) -> Iterator[Span]:
    start = 0
    for line in text.splitlines(keepends=True):
        if is_quoted_line(line):
            yield start, start + len(line)
        start += len(line)


def _places(text: str) -> Sequence[int]:
    """For each UTF-16 unit, which Telegram counts in, the position of its character."""
    if text.isascii():
        return range(len(text) + 1)
    places = [n for n, one in enumerate(text) for _ in range(2 if one > "\uffff" else 1)]
    return [*places, len(text)]


def _entities(about: Raw, places: Sequence[int]) -> Iterator[Entity]:
    start, size = about.get("offset"), about.get("length")
    if isinstance(start, int) and isinstance(size, int) and 0 <= start < len(places) and size > 0:
        end = places[min(start + size, len(places) - 1)]
        if places[start] < end:
            yield Entity(places[start], end, about)


def _span(entity: Entity) -> tuple[int, int]:
    return entity.start, -entity.end


def _split_marked_quotes(text: str, quotes: Sequence[Span], username: str | None) -> Iterator[Passage]:
    """What the sender marked as a quotation is quoted, and so are lines that begin with `>`."""
    done = 0
    for start, end in [*quotes, (len(text), len(text))]:
        words = text[done:start]
        yield from read_passages(words if done else _without_name(words, username), "telegram")
        yield from _passage("quoted", text[start:end])
        done = end


def _in_words(text: str, entities: Sequence[Entity]) -> tuple[str, list[Span]]:
    """The text with notes behind its links, and the quotations in it."""
    quotes = _merge_spans(_quotes(entities))
    notes = sorted((one.end, note) for one in entities if (note := _note(one.words(text), one.about)))
    shifts = [0, *accumulate(len(note) for _, note in notes)]
    if not notes or len(text) + shifts[-1] > MAX_TEXT:
        return text, quotes
    ends = [end for end, _ in notes]
    pieces = (text[start:end] + note for start, (end, note) in zip([0, *ends], notes, strict=False))
    return "".join((*pieces, text[ends[-1] :])), [
        (start + shifts[bisect_right(ends, start)], end + shifts[bisect_right(ends, end)]) for start, end in quotes
    ]


def _quotes(entities: Iterable[Entity]) -> list[Span]:
    return [(one.start, one.end) for one in entities if one.about.get("type") in _QUOTES]


def _merge_spans(spans: Iterable[Span]) -> list[Span]:
    """Sorted spans without overlaps."""
    found = list[Span]()
    for start, end in spans:
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


def _note(words: str, about: Raw) -> str:
    """Where words lead, which stands behind them."""
    return _link(words.strip(), about.get("url")) if about.get("type") == "text_link" else ""


def _names_of_mentioned(text: str, entities: Iterable[Entity]) -> str:
    """The names of mentioned people that are not in the text already. They chose them, so no name is the sender's."""
    if len(text) > _MOST_NOTED:
        return ""
    found = dict[str, None]()
    for one in entities:
        name = _plain(name_of(child(one.about, "user")) or "") if one.about.get("type") == "text_mention" else ""
        if name and name.casefold() != one.words(text).strip(" @").casefold():
            found[name] = None
    return f"[mentions: {', '.join(islice(found, _MOST_NAMES))}]" if found else ""


def _describe_content(message: Raw, *, alone: bool) -> tuple[Passage, ...]:
    """What stands for content that is no text; `alone`: there is no text.

    Speech stands for itself, unless it was forwarded: then a passage says by whom.
    """
    if said := speech_in(message):
        missing = _is_by_others(message) or not any(files_of(message))
        return _passage("own", said) if missing and alone else ()
    return describe_content(message) if alone else ()


def _plain(name: str) -> str:
    letters = (one if one.isalnum() or one in _IN_NAMES or category(one)[0] == "M" else " " for one in name)
    return " ".join("".join(letters).split())[:_MAX_NAME].strip()


def _link(words: str, url: object) -> str:
    if not isinstance(url, str) or len(url) > _MAX_LINK or not one_line(url) or not _LINK.fullmatch(url):
        return ""
    return "" if _bare(words) == _bare(url) else f" ({url})"


def _bare(url: str) -> str:
    return _SCHEME.sub("", url, count=1).rstrip("/").casefold()


def _without_name(text: str, username: str | None) -> str:
    if username is None or not text.startswith("/"):
        return text
    return re.sub(rf"^(/[\w-]+)@{re.escape(username)}(?!\w)", r"\1", text, count=1, flags=re.IGNORECASE)


def _quoted_selection(message: Raw) -> tuple[Passage, ...]:
    """The words of another message that the sender chose to answer."""
    quote = child(message, "quote")
    answered = answered_by(message) if quote.get("is_manual") is True else None
    if answered is None:
        return ()
    found = _passage("quoted", quote.get("text"))
    return tuple(
        replace(one, author=answered.author, sent_at=answered.sent_at, refers_to=answered.number) for one in found
    )


def _is_by_others(message: Raw) -> bool:
    """Whether its sender passed it on, or chose it among what a bot offered them. A channel's post is its own."""
    return (is_forwarded(message) and posted_in(message) is None) or bool(child(message, "via_bot"))


def _forwarded_passages(message: Raw, text: str) -> tuple[Passage, ...]:
    origin = origin_of(message)
    author, sent_at = author_in(origin)[0] or name_of(child(message, "via_bot")), time_of(origin.get("date"))
    return tuple(replace(one, author=author, sent_at=sent_at) for one in _passage("forwarded", text))


def _passage(kind: PassageKind, text: object) -> tuple[Passage, ...]:
    words = text.strip() if isinstance(text, str) else ""
    return (Passage(kind=kind, text=words),) if words else ()
