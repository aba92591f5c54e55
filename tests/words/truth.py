"""The truth about a mail: whose words its parts are, by the laws; and how it is compared with what was found.

Used by `forms.py`, `first_mails.py`, `orders.py` and `measure.py`. Letters and digits are compared, so that lines may
be wrapped, marked and separated in any way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

from switchboard.domain.envelope import Passage, PassageKind

Kind = PassageKind | Literal["others", "any"]
"""`others` where the laws do not say which of `quoted` and `forwarded` it is; `any` for what nobody wrote."""


@dataclass(frozen=True, slots=True)
class Part:
    """Words in reading order, and whose they are."""

    kind: Kind
    words: str


@dataclass(frozen=True, slots=True)
class Case:
    """A mail of a client in a language, and its parts; the subject is the first."""

    client: str
    form: str
    language: str
    raw: bytes
    parts: tuple[Part, ...]


def letters(text: str) -> str:
    """The letters and digits of a text."""
    return "".join(filter(str.isalnum, text))


def merged(parts: Iterable[Part]) -> tuple[Part, ...]:
    """The letters of the parts, without empty ones, neighbours of one kind in one."""
    said = (Part(one.kind, letters(one.words)) for one in parts)
    return tuple(
        Part(kind, "".join(one.words for one in group))
        for kind, group in groupby((one for one in said if one.words), key=lambda one: one.kind)
    )


def found_in(passages: Iterable[Passage]) -> tuple[Part, ...]:
    """The passages as parts."""
    return tuple(Part(one.kind, one.text) for one in passages)


def agrees(expected: Iterable[Part], found: Iterable[Part]) -> bool:
    """Whether the same words are of the same kinds, in the same order."""
    settled, seen = list[Part](), list(merged(found))
    for one in merged(expected):
        settled.append(Part(_meant(one, seen, settled), one.words))
    return merged(settled) == tuple(seen)


def _meant(one: Part, found: list[Part], before: list[Part]) -> Kind:
    """What the undecided turned out to be at this place."""
    if one.kind not in ("others", "any"):
        return one.kind
    at, begin = 0, sum(len(part.words) for part in before)
    for part in found:
        at += len(part.words)
        if at > begin:
            return part.kind if one.kind == "any" or part.kind == "forwarded" else "quoted"
    return "quoted"


def missing_words(expected: Iterable[Part], found: Iterable[Part]) -> str:
    """The words of the truth that are nowhere in what was found, in reading order."""
    return _beyond(expected, found)


def _words(parts: Iterable[Part]) -> Iterator[str]:
    return filter(None, (letters(word) for one in parts for word in one.words.split()))


def stolen_words(expected: tuple[Part, ...], found: Iterable[Part]) -> str:
    """The words of others that were found as the sender's own."""
    return _beyond((one for one in found if one.kind == "own"), (one for one in expected if one.kind in ("own", "any")))


def lost_words(expected: tuple[Part, ...], found: Iterable[Part]) -> str:
    """The sender's own words that were not found as such."""
    return _beyond((one for one in expected if one.kind == "own"), (one for one in found if one.kind == "own"))


def _beyond(these: Iterable[Part], those: Iterable[Part]) -> str:
    """The words of these that are not in those, in the same order."""
    text, at, beyond = letters(" ".join(one.words for one in those)), 0, list[str]()
    for word in _words(these):
        place = text.find(word, at)
        if place < 0:
            beyond.append(word)
        else:
            at = place + len(word)
    return " ".join(beyond)
