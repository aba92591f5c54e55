"""What is looked for in an index of words, so that few facts have to be rated in full. Pure.

`store/memory/search.py` asks the index for what comes out; `bm25.py` rates what is found. A fact is found by a word if
it has one of its forms. Only a word that no fact has is looked for by its trigrams, as it may have a typo in it, or be
a part of a compound. In: the terms of a question, and statistics; out: forms, each with what it is worth. Next:
`bm25.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil
from typing import Final

from msgspec import Struct

from switchboard.core.memory.bm25 import TermStatistics, rarity_of
from switchboard.core.memory.terms import TextTerms

_MOST_WORDS: Final = 40
_SIMILAR: Final = 0.4
"""The share of the trigrams of a word that another one has that begins like it, to be perhaps meant by it."""
_MOSTLY_SAME: Final = 0.7
"""The same for one that begins differently."""
_FEWEST_SHARED: Final = 2
_MANY: Final = 4_000
"""Facts with a word: if rarer words are asked for too, those with this one alone are looked for in vain."""


class WantedForm(Struct, frozen=True):
    """A form of a word of the question, by the place of the word; `rarity`: what it is worth."""

    form: str
    word: int
    rarity: float


def terms_of_question(question: TextTerms) -> TextTerms:
    """Each word once, and not too many of them, the longest words first."""
    pairs = dict(zip(question.words, question.trigrams, strict=True))
    kept = sorted(pairs, key=lambda word: (-max(map(len, word)), sorted(word)))[:_MOST_WORDS]
    return TextTerms(tuple(kept), tuple(pairs[word] for word in kept))


def find_unknown(question: TextTerms, statistics: TermStatistics) -> list[int]:
    """The places of words that no text has."""
    return [
        place for place, word in enumerate(question.words) if not any(statistics.forms.get(form, 0) for form in word)
    ]


class Likeness(Struct, frozen=True):
    """When another word is perhaps meant: it has `fewest` of the trigrams and `begins` with that one, or has `most`."""

    trigrams: frozenset[str]
    begins: str
    fewest: int
    most: int


def likeness_to(trigrams: frozenset[str]) -> Likeness:
    """For the trigrams of a word that no fact has."""
    begins = min((one for one in trigrams if one[0] == " "), default="")
    fewest, most = (max(_FEWEST_SHARED, ceil(share * len(trigrams))) for share in (_SIMILAR, _MOSTLY_SAME))
    return Likeness(trigrams, begins, fewest, most)


def want_forms(
    question: TextTerms, statistics: TermStatistics, similar: Mapping[int, Mapping[str, int]]
) -> list[list[WantedForm]]:
    """The forms to look for, in the order to do so: each list only if those before it have found too little.

    `similar`: for places of unknown words the forms that are perhaps meant, with the number of texts that have them.
    """
    words = [[(form, statistics.forms.get(form, 0)) for form in sorted(word)] for word in question.words]
    for place, forms in similar.items():
        words[place] = sorted(forms.items())
    wanted = [
        [WantedForm(form, place, rarity_of(having, statistics.texts)) for form, having in forms if having]
        for place, forms in enumerate(words)
    ]
    having = [sum(n for _, n in forms) for forms in words]
    return _from_rare_to_frequent([(n, forms) for n, forms in zip(having, wanted, strict=True) if forms])


def _from_rare_to_frequent(wanted: Sequence[tuple[int, list[WantedForm]]]) -> list[list[WantedForm]]:
    rare, total = list[WantedForm](), 0
    ordered = sorted(wanted, key=lambda one: one[0])
    for having, forms in ordered:
        total += having
        if rare and total > _MANY:
            break
        rare += forms
    every = [form for _, forms in ordered for form in forms]
    return [rare] if len(rare) == len(every) else [rare, every]
