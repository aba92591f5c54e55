"""What a text is found by: the forms of its words, and the trigrams of their letters. Pure.

The same function reads facts when they are stored and questions when they are asked. Accents are removed first, so that
they make no difference; then stop words; a word is found as it is and by its stem in each language. In: a text and
languages; out: `TextTerms`. Next: `bm25.py`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from functools import cache, lru_cache
from importlib import import_module
from typing import Any, Final
from unicodedata import normalize

from msgspec import Struct

from switchboard.core.memory.languages import STEMMED
from switchboard.core.memory.stop_words import STOP_WORDS

TERMS_VERSION: Final = 1
"""Changes with what these functions return, so that what was stored before is read again."""
_MOST_WORD: Final = 40
"""Characters of a longer word, which is none, say nothing more."""
_MOST_STEMS: Final = 20_000
"""Words whose stems are remembered: one takes 0.1 to 0.2 ms."""

_ACCENTS: Final = re.compile(r"(?<=[a-z\u03b1-\u03c9])[\u0300-\u036f]+|(?<=\u0435)\u0308")
"""On Latin and Greek letters, and the dots on the Russian letter that are mostly left out."""
_UNSEEN: Final = re.compile(r"[\u00ad\u0640\u064b-\u065f\u200b\ufeff]")
"""Soft hyphens, vowel signs and stretching of Arabic, spaces and marks without width."""
_LETTERS: Final = str.maketrans(
    {
        "æ": "ae",
        "œ": "oe",
        "ø": "o",
        "ł": "l",
        "đ": "d",
        "ð": "d",
        "þ": "th",
        "\u0131": "i",
        "\u03c2": "\u03c3",
        "ß": "ss",
    }
)
_DENIED: Final = (
    (re.compile(r"\bcan(?:not|['\u2019]t)\b"), "can not"),
    (re.compile(r"\bwon['\u2019]t\b"), "will not"),
    (re.compile(r"n['\u2019]t\b"), " not"),
    (re.compile(r"['\u2019]s\b"), ""),
)
"""Contractions that hide a "not", and the s of a possessive."""
_MAY_BE_DENIED: Final = re.compile(r"['\u2019]|cannot")
_SIGN: Final = r"(?:[^\W_]|[\u0591-\u05c7\u0900-\u0e7f])"
"""A letter or digit, or a sign of a script whose vowels are no letters."""
_PIECE: Final = re.compile(rf"{_SIGN}+(?:[-._/:@+'\u2019]{_SIGN}+)*")
"""Words, with what is written in one with them: `AB-1234`, `noor@example.org`, `17:30`, `Wi-Fi`."""
_BETWEEN: Final = re.compile(r"[-._/:@+'\u2019]")
_UNSPACED: Final = re.compile(r"[\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff]+")
"""Scripts that write no spaces between words: Thai, Japanese, Chinese."""


class TextTerms(Struct, frozen=True):
    """The words of a text in their order, each by all its forms; and by its trigrams, which survive a typo."""

    words: tuple[frozenset[str], ...]
    trigrams: tuple[frozenset[str], ...]


def read_terms(text: str, languages: Collection[str]) -> TextTerms:
    """The terms of a text. Languages that are not known have neither stems nor stop words."""
    stop = frozenset[str]().union(*(STOP_WORDS.get(language, frozenset()) for language in languages))
    words = [word for word in _split_words(fold_text(text)) if word not in stop]
    known = tuple(sorted(STEMMED.keys() & set(languages)))
    return TextTerms(tuple(_forms_of(word, known) for word in words), tuple(map(_trigrams_of, words)))


def fold_text(text: str) -> str:
    """Lower case, without accents on Latin and Greek letters; marks of other scripts are letters of theirs."""
    if text.isascii():  # most are, and a search reads some hundred texts
        return text.lower()
    lower = normalize("NFKD", normalize("NFKD", text).casefold()).translate(_LETTERS)
    return normalize("NFC", _ACCENTS.sub("", _UNSEEN.sub("", lower)))


def _split_words(folded: str) -> Iterator[str]:
    if _MAY_BE_DENIED.search(folded):
        for denied, spelt in _DENIED:
            folded = denied.sub(spelt, folded)
    for piece in _PIECE.findall(folded):
        parts = _BETWEEN.split(piece)
        for part in parts:
            yield from _split_unspaced(part[:_MOST_WORD])
        if len(parts) > 1:
            yield "".join(parts)[:_MOST_WORD]


def _split_unspaced(part: str) -> Iterator[str]:
    """A word as it is; where words are not separated, every two characters that stand together."""
    if part.isascii():
        if part:
            yield part
        return
    end = 0
    for run in _UNSPACED.finditer(part):
        yield from filter(None, [part[end : run.start()]])
        signs = run.group()
        yield from (signs[at : at + 2] for at in range(max(1, len(signs) - 1)))
        end = run.end()
    yield from filter(None, [part[end:]])


@lru_cache(maxsize=_MOST_STEMS)
def _forms_of(word: str, languages: tuple[str, ...]) -> frozenset[str]:
    if not word.isalpha():
        return frozenset({word})
    return frozenset({word, *(_stemmer_of(language).stemWord(word) for language in languages)})


@lru_cache(maxsize=_MOST_STEMS)
def _trigrams_of(word: str) -> frozenset[str]:
    spaced = f" {word} "
    return frozenset(spaced[at : at + 3] for at in range(len(spaced) - 2))


@cache
def _stemmer_of(language: str) -> Any:
    """By its own class: the package's `stemmer()` uses another package's stems where that happens to be installed."""
    name = STEMMED[language]
    return getattr(import_module(f"snowballstemmer.{name.lower()}_stemmer"), f"{name}Stemmer")()
