"""Which of a person's own words a model may have remembered, by what it quotes. Pure.

`tools/memory.py` calls `find_words` for the tool `remember`. In: the quote of a model, and what the person has written
in the conversation; out: the person's words, or a sentence from which the model can correct itself. A quote never
becomes a fact itself: what is stored is what the person wrote. Paragraphs stand alone, since others' words may be
between them. The filters are those of `extraction.py`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from itertools import islice, pairwise
from typing import Final

from msgspec import Struct

from switchboard.core.memory.extraction import count_denials, fold_text, is_unfit
from switchboard.core.text.secret_words import has_secret
from switchboard.ports.facts import MAX_FACT, OwnWords

_MOST_TRIED: Final = 5
"""How many places in one message are examined that read like the quote."""
_ALIKE: Final = 0.3
"""How much of two texts must be the same for one to be meant by the other."""
_MOST_READ: Final = 20_000
"""Characters of one message that are read."""
_MOST_TOLD: Final = 64
"""Words of a forgotten statement that is looked for in others; a fact has 300 characters."""
_MOST_SENTENCE: Final = 1000
"""Characters of a sentence that are compared with a quote."""
_WORD: Final = re.compile(r"\w+")
_BETWEEN: Final = re.compile(r"\n[^\S\n]*\n\s*")
"""What separates paragraphs, and passages."""
_ITEM: Final = re.compile(r"(?:[-*+\u2022\u2013]|\d{1,2}[.)])\s")
_END: Final = re.compile(
    r"(?<![.!?\u2026])(?P<sign>[.!?\u2026]+)[\"'\u2019\u201d)\]]*\s+(?=\S)"
    r"|:[^\S\n]*\n\s*"
    rf"|\n[^\S\n]*(?={_ITEM.pattern})"
)
"""Between two sentences. A line that ends without a sign goes on in the next one, unless that is one of a list."""
_SHORT: Final = re.compile(
    r"(?<!\w)(?:[^\W\d_]|\d{1,2}|dr|mrs?|ms|st|prof|vs|etc|approx|ca|nr|bzw|ggf|evtl|usw|jr|sr|hr|fr)\Z", re.IGNORECASE
)
"""What ends with a full stop that ends no sentence."""
_LONGEST_SHORT: Final = 8
_WIDE: Final = "\u3001\u3002\uff01\uff0c\uff1a\uff1b\uff1f"
"""Signs of scripts that write no spaces behind them."""
_PIECE: Final = re.compile(rf"[^\s{_WIDE}]+")
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


class _Paragraph(Struct, frozen=True):
    """A paragraph of a person, and the one `before` it in the same message."""

    text: str
    position: int
    before: str


class _Found(Struct, frozen=True):
    """Words of the person, and where they are in a paragraph, with the signs that belong to them."""

    words: OwnWords
    paragraph: _Paragraph
    start: int
    end: int


def find_words(quote: str, said: Sequence[OwnWords]) -> OwnWords | NotKept:
    """The person's words that a quote repeats, spaces, case and punctuation aside; `said`: the latest first."""
    wanted = _asked_for(" ".join(quote.split()))
    kept, refused = list[OwnWords](), list[NotKept]()
    for found in (found for one in said for found in _find_places(wanted, one)):
        flaw = _find_flaw(found)
        if flaw is not None:
            refused.append(NotKept(flaw))
        elif _fold_core(wanted) in _fold_core(found.words.text):
            return found.words
        else:
            kept.append(found.words)
    if kept:
        return kept[0]
    return refused[0] if refused else NotKept(_refuse_unwritten(wanted, said))


def told_with(words: OwnWords, said: Sequence[OwnWords]) -> Collection[str]:
    """What would be told again with these words of a person: they, and all that shares a word with them in its place.

    Any run of words in a paragraph may be a fact that was forgotten.
    """
    told = dict.fromkeys([words.text])
    for one in said:
        if one.position == words.position:
            for found in _find_places(words.text, one):
                told.update(dict.fromkeys(_runs_around(found)))
    return told


def _runs_around(found: _Found) -> Iterator[str]:
    """The runs of words, as long as a fact may be, that share a word with what was found."""
    text, first = found.paragraph.text, max(0, found.start - MAX_FACT)
    spans = [one.span() for one in _PIECE.finditer(text, first, found.end + MAX_FACT)]
    for n, (start, _) in enumerate(spans):
        for _, end in spans[n : n + _MOST_TOLD]:
            if start < found.end and end > found.start and end - start <= 2 * MAX_FACT:
                yield " ".join(text[start:end].split()).strip(_EDGE)


def _asked_for(text: str) -> str:
    """A text without the words by which somebody asks to remember it."""
    lead = _LEAD.match(text)
    if lead is None:
        return text
    rest = text[lead.end() :]
    return rest.rstrip("? \t\n") if lead["asks"] else rest


# Finding ------------------------------------------------------------------------------------------------------------


def _split_paragraphs(said: OwnWords) -> Iterator[_Paragraph]:
    before = ""
    for text in _BETWEEN.split(said.text[:_MOST_READ]):
        yield _Paragraph(text, said.position, before)
        before = text


def _find_places(wanted: str, said: OwnWords) -> Iterator[_Found]:
    """The places in a message that read like the quote, whole words only."""
    needle = " ".join(_words_of(wanted))
    if needle:
        places = (place for one in _split_paragraphs(said) for place in _places_in(one, needle))
        yield from islice(places, _MOST_TRIED)


def _places_in(paragraph: _Paragraph, needle: str) -> Iterator[_Found]:
    spans = list(_WORD.finditer(paragraph.text))
    read = f" {' '.join(one.group().casefold() for one in spans)} "
    at, first = -1, 0
    while (start := read.find(f" {needle} ", at + 1)) >= 0:
        first += read.count(" ", max(at, 0), start)
        at, last = start, first + needle.count(" ")
        yield _expand_span(paragraph, spans[first].start(), spans[last].end())


def _words_of(text: str) -> list[str]:
    return [one.casefold() for one in _WORD.findall(text)]


def _expand_span(paragraph: _Paragraph, start: int, end: int) -> _Found:
    """The words between two places, with the signs that belong to them (`-5`, `no-nuts`)."""
    text = paragraph.text
    while start > 0 and not _is_between(text[start - 1]):
        start -= 1
    while end < len(text) and not _is_between(text[end]):
        end += 1
    kept = " ".join(_asked_for(text[start:end]).split()).strip(_EDGE)
    return _Found(OwnWords(kept, paragraph.position), paragraph, start, end)


def _is_between(sign: str) -> bool:
    """Whether a sign stands between words and belongs to none."""
    return sign.isspace() or sign in _WIDE


def _fold_core(text: str) -> str:
    """Without the signs around it, too."""
    return fold_text(text).strip(_EDGE)


def _sentences_at(text: str, start: int, end: int) -> list[str]:
    """The sentences of a paragraph that have anything between two places, whole."""
    return [_asked_for(text[one:until].strip()) for one, until in _sentence_spans(text) if one < end and until > start]


def _introduction_of(found: _Found) -> str:
    """The sentence before a place, or before the list in which it is, if that ends with a colon; else nothing."""
    text = found.paragraph.text
    *before, own = [text[one:until].strip() for one, until in _sentence_spans(text) if one <= found.start]
    while before and _ITEM.match(own) and _ITEM.match(before[-1]):
        before.pop()
    if not before:
        before = [found.paragraph.before[one:until].strip() for one, until in _sentence_spans(found.paragraph.before)]
    return _asked_for(before[-1]) if before[-1].endswith(":") else ""


def _sentence_spans(text: str) -> Iterator[tuple[int, int]]:
    """Where the sentences of a paragraph begin and end."""
    ends = (one.end() for one in _END.finditer(text) if not _goes_on(text, one))
    return pairwise((0, *ends, len(text)))


def _goes_on(text: str, end: re.Match[str]) -> bool:
    """Whether what looks like the end of a sentence is an abbreviation (`Dr.`), a number, or a pause (`...`)."""
    sign = end["sign"] or ""
    if sign == ".":
        return _SHORT.search(text, max(0, end.start() - _LONGEST_SHORT), end.start()) is not None
    return sign.startswith(("..", "\u2026")) and text[end.end()].islower()


# Judging ------------------------------------------------------------------------------------------------------------


def _find_flaw(found: _Found) -> str | None:
    """Why these words are not kept; None if they are."""
    text, paragraph = found.words.text, found.paragraph
    if not any(map(str.isalnum, text)):
        return "there is nothing in it"
    if len(text) > MAX_FACT:
        return f"at most {MAX_FACT} characters are kept: quote the part that matters"
    sentences, introduction = _sentences_at(paragraph.text, found.start, found.end), _introduction_of(found)
    if any(map(is_unfit, (introduction, *sentences, text))) or _near_secret(paragraph):
        return "questions, hypotheses, instructions to you, passwords and other secrets are not kept; tell the person"
    missing = _find_missing(text, sentences, introduction)
    return missing and f"{missing}. {_suggest_wording(' '.join((introduction, *sentences)))}"


def _find_missing(text: str, sentences: Sequence[str], introduction: str) -> str | None:
    """What a text leaves out of the sentences in which it stands, so that it may say something else."""
    whole = " ".join(sentences)
    if count_denials(f"{introduction} {whole}") != count_denials(text):
        return "it leaves out what the person denied"
    if len(sentences) > 1 and not _fold_core(whole).startswith(_fold_core(text)):
        return "it begins in the middle of a sentence"
    if text.isascii() and len(_words_of(text)) == 1 < len(_words_of(f"{introduction} {whole}")):
        return "one word says too little"
    return None


def _near_secret(paragraph: _Paragraph) -> bool:
    """Whether a secret is mentioned: what it is often stands in the next line, and says nothing of it."""
    return has_secret(paragraph.text) or has_secret(paragraph.before)


def _suggest_wording(words: str) -> str:
    stated = " ".join(words.split()).strip(_EDGE)
    if len(stated) > MAX_FACT:
        return f"The whole has more than {MAX_FACT} characters; ask the person to say it briefly"
    return f'Write the person\'s words: "{stated}"'


def _refuse_unwritten(wanted: str, said: Sequence[OwnWords]) -> str:
    """The refusal of a quote that nobody has written, with the sentence that was perhaps meant."""
    best, likeness = "", _ALIKE
    pairs = _pairs_of(wanted)
    for sentence in _may_be_meant(said):
        alike = _likeness_of(pairs, _pairs_of(sentence))
        if alike > likeness:
            best, likeness = sentence, alike
    if not best:
        return "the person has not written this here, and only the person's own words are kept; quote those"
    return f"the person has not written this. {_suggest_wording(best)}"


def _may_be_meant(said: Sequence[OwnWords]) -> Iterator[str]:
    for paragraph in (paragraph for one in said for paragraph in _split_paragraphs(one) if not _near_secret(paragraph)):
        for sentence in _sentences_at(paragraph.text, 0, len(paragraph.text)):
            if sentence and len(sentence) <= MAX_FACT and not is_unfit(sentence):
                yield sentence


def _pairs_of(text: str) -> Counter[str]:
    """The pairs of neighbouring characters: they tell how alike two texts are, in any language."""
    plain = " ".join(_words_of(text[:_MOST_SENTENCE]))
    return Counter(plain[n : n + 2] for n in range(len(plain) - 1))


def _likeness_of(one: Counter[str], other: Counter[str]) -> float:
    """From 0 to 1."""
    total = one.total() + other.total()
    return 2 * (one & other).total() / total if total else 0.0
