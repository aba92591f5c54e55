"""How well the words of a text answer those of a question: BM25, by how rare each word is. Pure.

Statistics are sums over texts, so that those of several spaces are added up, and a space that may not be read leaves no
trace in the order of what is found. In: terms and statistics; out: a number from 0 to 1. Next: `relevance.py`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
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


class _Wanted(Struct, frozen=True):
    """What is looked for in one of the two ways to find a word: alternatives, each with how rare it is."""

    words: Sequence[Sequence[tuple[str, float]]]
    length: float
    """The usual length of a text."""
    terms: frozenset[str]
    """All alternatives: of a text, only these have to be counted."""


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


def rate_texts(query: TextTerms, texts: Iterable[TextTerms], statistics: TermStatistics) -> list[float]:
    """Of each, from 0, nothing in common, to 1, as good as a text of just these words: words and trigrams half each."""
    # Each trigram is looked for by itself, as any of them may be the one with the typo.
    single = {frozenset({trigram}) for word in query.trigrams for trigram in word}
    forms = _want_words(set(query.words), statistics.forms, statistics)
    trigrams = _want_words(single, statistics.trigrams, statistics)
    best = _score_text(forms, query.words), _score_text(trigrams, query.trigrams)
    return [
        (1 - _TRIGRAMS) * _share_of(_score_text(forms, text.words), best[0])
        + _TRIGRAMS * _share_of(_score_text(trigrams, text.trigrams), best[1])
        for text in texts
    ]


def _want_words(words: Iterable[frozenset[str]], counts: Mapping[str, int], statistics: TermStatistics) -> _Wanted:
    rarities = [[(term, rarity_of(counts.get(term, 0), statistics.texts)) for term in word] for word in words]
    terms = frozenset(term for word in rarities for term, _ in word)
    return _Wanted(rarities, statistics.words / statistics.texts if statistics.texts else 0.0, terms)


def rarity_of(having: int, texts: int) -> float:
    """How much a term is worth that so many of so many texts have."""
    return math.log1p((texts - having + 0.5) / (having + 0.5))


def _score_text(wanted: _Wanted, text: _Words) -> float:
    """The sum over what is looked for, each by the term that is worth most."""
    counts = Counter(chain.from_iterable(map(wanted.terms.intersection, text)))
    if not counts:
        return 0.0
    marked_down = _K1 * (1 - _B + _B * (len(text) / wanted.length if wanted.length else 1.0))
    return math.fsum(
        max(
            (rarity * count * (_K1 + 1) / (count + marked_down) for term, rarity in word if (count := counts[term])),
            default=0.0,
        )
        for word in wanted.words
    )


def _share_of(score: float, best: float) -> float:
    """The score of a text, as a share of what the question itself would have."""
    return min(1.0, score / best) if best else 0.0


def _terms_in(words: _Words) -> frozenset[str]:
    return frozenset[str]().union(*words)
