"""Which of a person's own words a model may have remembered, by what it quotes. Pure.

`tools/memory.py` calls `find_words` for the tool `remember`. In: the quote of a model, and what the person has written
in the conversation; out: the person's words, or a sentence from which the model can correct itself. A quote never
becomes a fact itself: what is stored is what the person wrote. The filters are those of `compaction.py`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import Struct

from switchboard.core.turns.compaction import SENTENCE, negates, unfit
from switchboard.ports.facts import MAX_FACT, OwnWords

_MOST_TRIED: Final = 5
"""How many places in one message are examined that read like the quote."""
_ALIKE: Final = 0.3
"""How much of two texts must be the same for one to be meant by the other."""
_MOST_READ: Final = 20_000
"""Characters of one message that are read."""
_MOST_SENTENCE: Final = 1000
"""Characters of a sentence that are compared with a quote."""
_WORD: Final = re.compile(r"\w+")
_BEFORE: Final = re.compile(r"[.!?\n]\s")
_WIDE: Final = "\u3001\u3002\uff01\uff0c\uff1a\uff1b\uff1f"
"""Signs of scripts that write no spaces behind them."""
_EDGE: Final = f" \t\r\n.,;:!?\"'`()[]*_{_WIDE}\u2013\u2014\u2018\u2019\u201c\u201d\u201e\u00ab\u00bb"
"""What may stand around a quote and is not part of the statement."""
_LEAD: Final = re.compile(
    r"\W*(?:(?:hi|hello|hey|hallo|ok|okay)\b[^\n.!?,]{0,40},\s*)?"
    r"(?:(?P<asks>can you|could you|will you|would you|kannst du|könntest du|können sie|könnten sie)\W+)?"
    r"(?:(?:please|kindly|also|and|bitte|und|auch)\W+){0,3}"
    r"(?:remember|do not forget|don['\u2019]t forget|make a note|keep in mind|bear in mind"
    r"|merke? dir|merken sie sich|vergiss nicht|denk daran"
    r"|(?:take note|note|notiere?(?: dir)?)(?=\s*:|\W+(?:that|dass)\b))\b"
    r"(?:\W+(?:please|bitte))?(?:\W+(?:that|this|for later|dass|das|folgendes))?[\s,:;\u2013\u2014-]*",
    re.IGNORECASE,
)
"""How people ask for something to be remembered: not a part of what is."""


class NotKept(Struct, frozen=True):
    """Why nothing is remembered, and what would be correct."""

    why: str


class _Found(Struct, frozen=True):
    """Words of the person, and the sentences in which they stand."""

    words: OwnWords
    sentences: str


def find_words(quote: str, said: Sequence[OwnWords]) -> OwnWords | NotKept:
    """The person's words that a quote repeats, spaces, case and punctuation aside; `said`: the latest first."""
    wanted = _asked_for(" ".join(quote.split()))
    said = [OwnWords(one.text[:_MOST_READ], one.position) for one in said]
    kept, refused = list[OwnWords](), list[NotKept]()
    for found in (found for one in said for found in _places(wanted, one)):
        flaw = _flaw(found)
        if flaw is not None:
            refused.append(NotKept(flaw))
        elif _folded(wanted) in _folded(found.words.text):
            return found.words
        else:
            kept.append(found.words)
    if kept:
        return kept[0]
    return refused[0] if refused else NotKept(_nearest(wanted, said))


def _asked_for(text: str) -> str:
    """A text without the words by which somebody asks to remember it."""
    lead = _LEAD.match(text)
    if lead is None:
        return text
    rest = text[lead.end() :]
    return rest.rstrip("? \t\n") if lead["asks"] else rest


# Finding ------------------------------------------------------------------------------------------------------------


def _places(wanted: str, said: OwnWords) -> Iterator[_Found]:
    """The places in a message that read like the quote, whole words only."""
    needle = " ".join(_words(wanted))
    if not needle:
        return
    spans = list(_WORD.finditer(said.text))
    read = f" {' '.join(one.group().casefold() for one in spans)} "
    at, first = -1, 0
    for _ in range(_MOST_TRIED):
        start = read.find(f" {needle} ", at + 1)
        if start < 0:
            return
        first += read.count(" ", max(at, 0), start)
        at, last = start, first + needle.count(" ")
        yield _found(said, spans[first].start(), spans[last].end())


def _words(text: str) -> list[str]:
    return [one.casefold() for one in _WORD.findall(text)]


def _found(said: OwnWords, start: int, end: int) -> _Found:
    """The words between two places, with the signs that belong to them (`-5`, `no-nuts`)."""
    text = said.text
    while start > 0 and not _parts(text[start - 1]):
        start -= 1
    while end < len(text) and not _parts(text[end]):
        end += 1
    kept = " ".join(_asked_for(text[start:end]).split()).strip(_EDGE)
    return _Found(OwnWords(kept, said.position), _asked_for(_sentences(text, start, end)))


def _parts(sign: str) -> bool:
    """Whether a sign stands between words and belongs to none."""
    return sign.isspace() or sign in _WIDE


def _folded(text: str) -> str:
    return " ".join(text.casefold().split()).strip(_EDGE)


def _sentences(text: str, start: int, end: int) -> str:
    """The sentences between two places, whole."""
    before = max((text.rfind(sign, 0, start) for sign in (". ", "! ", "? ", "\n")), default=-1)
    after = _BEFORE.search(f"{text} ", max(end - 1, start))
    return text[before + 1 : after.start() + 1 if after else len(text)].strip()


# Judging ------------------------------------------------------------------------------------------------------------


def _flaw(found: _Found) -> str | None:
    """Why these words are not kept; None if they are."""
    text = found.words.text
    if not any(map(str.isalnum, text)):
        return "there is nothing in it"
    if unfit(found.sentences) or unfit(text):
        return "questions, hypotheses, instructions to you, passwords and other secrets are not kept; tell the person"
    if negates(found.sentences) != negates(text):
        return f"it leaves out what the person denied. {_written(found.sentences)}"
    if text.isascii() and len(_words(text)) == 1 < len(_words(found.sentences)):
        return f"one word says too little. {_written(found.sentences)}"
    if len(text) > MAX_FACT:
        return f"at most {MAX_FACT} characters are kept: quote the part that matters"
    return None


def _written(words: str) -> str:
    return f'Write the person\'s words: "{" ".join(words.split()).strip(_EDGE)}"'


def _nearest(wanted: str, said: Sequence[OwnWords]) -> str:
    """The refusal of a quote that nobody has written, with the sentence that was perhaps meant."""
    best, likeness = "", _ALIKE
    pairs = _pairs(wanted)
    for sentence in _may_be_meant(said):
        alike = _alike(pairs, _pairs(sentence))
        if alike > likeness:
            best, likeness = sentence, alike
    if not best:
        return "the person has not written this here, and only the person's own words are kept; quote those"
    return f"the person has not written this. {_written(best)}"


def _may_be_meant(said: Sequence[OwnWords]) -> Iterator[str]:
    for one in said:
        for sentence in SENTENCE.findall(one.text):
            stated = _asked_for(sentence[:_MOST_SENTENCE].strip()).strip()
            if stated and len(stated) <= MAX_FACT and not unfit(stated):
                yield stated


def _pairs(text: str) -> Counter[str]:
    """The pairs of neighbouring characters: they tell how alike two texts are, in any language."""
    plain = " ".join(_words(text[:_MOST_SENTENCE]))
    return Counter(plain[n : n + 2] for n in range(len(plain) - 1))


def _alike(one: Counter[str], other: Counter[str]) -> float:
    """From 0 to 1."""
    total = one.total() + other.total()
    return 2 * (one & other).total() / total if total else 0.0
