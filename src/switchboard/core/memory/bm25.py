"""How well the words of a text answer those of a question: BM25, by how rare each word is. Pure.

Statistics are sums over texts, so that those of several spaces are added up, and a space that may not be read leaves no
trace in the order of what is found. In: terms and statistics; out: a number from 0 to 1. Next: `relevance.py`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct

from switchboard.core.memory.terms import TextTerms

_K1: Final = 1.2
_B: Final = 0.75
"""How soon a word counts no more when it is repeated, and how much a long text is marked down: the usual values."""
_TRIGRAMS: Final = 0.5
"""The share of the trigrams in the relevance; the other one is that of the words."""

_Words = Sequence[frozenset[str]]
"""The words of a text, each by the terms that it is found by."""


class TermStatistics(Struct, frozen=True):
    """Of a number of texts: how many words they have, and in how many of them each term is."""

    texts: int = 0
    words: int = 0
    forms: Mapping[str, int] = {}
    trigrams: Mapping[str, int] = {}


class _Field(Struct, frozen=True):
    """The statistics of one of the two ways to find a word."""

    texts: int
    length: float
    counts: Mapping[str, int]


def count_terms(texts: Iterable[TextTerms]) -> TermStatistics:
    """The statistics of texts."""
    read = list(texts)
    forms = Counter(form for one in read for form in _terms_in(one.words))
    trigrams = Counter(trigram for one in read for trigram in _terms_in(one.trigrams))
    return TermStatistics(len(read), sum(len(one.words) for one in read), forms, trigrams)


def add_statistics(parts: Iterable[TermStatistics]) -> TermStatistics:
    """The statistics of all texts of all parts."""
    texts, words, forms, trigrams = 0, 0, Counter[str](), Counter[str]()
    for part in parts:
        texts += part.texts
        words += part.words
        forms.update(part.forms)
        trigrams.update(part.trigrams)
    return TermStatistics(texts, words, forms, trigrams)


def text_relevance(query: TextTerms, text: TextTerms, statistics: TermStatistics) -> float:
    """From 0, nothing in common, to 1: as good as a text of just these words. By words and by trigrams, half each."""
    length = statistics.words / statistics.texts if statistics.texts else 0.0
    forms = _Field(statistics.texts, length, statistics.forms)
    trigrams = _Field(statistics.texts, length, statistics.trigrams)
    # Each trigram is looked for by itself, as any of them may be the one with the typo.
    single = {frozenset({trigram}) for word in query.trigrams for trigram in word}
    by_words = _compare_words(set(query.words), query.words, text.words, forms)
    by_trigrams = _compare_words(single, query.trigrams, text.trigrams, trigrams)
    return (1 - _TRIGRAMS) * by_words + _TRIGRAMS * by_trigrams


def _compare_words(wanted: Collection[frozenset[str]], query: _Words, text: _Words, field: _Field) -> float:
    """The score of a text, as a share of what the question itself would have."""
    best = _score_text(wanted, query, field)
    return min(1.0, _score_text(wanted, text, field) / best) if best else 0.0


def _score_text(wanted: Collection[frozenset[str]], text: _Words, field: _Field) -> float:
    """The sum over what is looked for, each by the term that is worth most."""
    counts = Counter(term for word in text for term in word)
    marked_down = _K1 * (1 - _B + _B * (len(text) / field.length if field.length else 1.0))
    return math.fsum(max(_weight_of(term, counts[term], marked_down, field) for term in terms) for terms in wanted)


def _weight_of(term: str, count: int, marked_down: float, field: _Field) -> float:
    found = field.counts.get(term, 0)
    rarity = math.log1p((field.texts - found + 0.5) / (found + 0.5))
    return rarity * count * (_K1 + 1) / (count + marked_down)


def _terms_in(words: _Words) -> frozenset[str]:
    return frozenset[str]().union(*words)
