"""What facts are found by: words whatever their accents and endings, identifiers however they are written, typos."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchboard.core.memory.languages import STEMMED
from switchboard.core.memory.stop_words import STOP_WORDS
from switchboard.core.memory.terms import fold_text, read_terms

BOTH = ("de", "en")


def have_same_word(one: str, other: str) -> bool:
    """Whether a word of one text has a form in common with one of the other."""
    first, second = (frozenset[str]().union(*read_terms(text, BOTH).words) for text in (one, other))
    return bool(first & second)


def share_of_trigrams(one: str, other: str) -> float:
    first, second = (frozenset[str]().union(*read_terms(text, BOTH).trigrams) for text in (one, other))
    return len(first & second) / len(first)


def has_words(text: str, languages: Sequence[str], *words: str) -> bool:
    """Whether these are all words of a text, whatever their other forms."""
    found = read_terms(text, languages).words
    return len(found) == len(words) and all(word in forms for word, forms in zip(words, found, strict=True))


@pytest.mark.parametrize(
    ("asked", "stored"),
    [
        ("allergies", "allergy"),
        ("repaired", "repairs"),
        ("Haselnüsse", "haselnuss"),
        ("Heizungen", "Heizung"),
        ("Äpfel", "apfel"),
        ("Mueller", "Müller"),
        ("Straße", "STRASSE"),
        ("Schlüssel", "Schluessel"),
        ("cafe", "café"),
        ("Ångström", "angstrom"),
        ("Łódź", "lodz"),
        ("ёлка", "елка"),
        ("AB-1234", "ab1234"),
        ("AB1234", "order AB-1234"),
        ("1234", "AB-1234"),
        ("wifi", "Wi-Fi"),
        ("noor@example.org", "mail to Noor@example.org."),
        ("2026-11-30", "20261130"),
        ("Ben's", "Ben"),
        ("can't", "not"),
        ("isn\u2019t", "not"),
        ("won't", "not"),
        ("cannot", "not"),
        ("東京駅", "東京"),
        ("กรุงเทพ", "กรุง"),
        ("soft\u00adware", "software"),
    ],
)
def test_what_is_meant_alike_is_found_alike(asked: str, stored: str) -> None:
    assert have_same_word(asked, stored)


@pytest.mark.parametrize(
    ("one", "other"),
    [("1234", "1235"), ("Noor", "Nora"), ("is allergic", "is not here"), ("17:30", "19:45"), ("not", "nut")],
)
def test_what_only_looks_alike_is_no_same_word(one: str, other: str) -> None:
    assert not have_same_word(one, other)


@pytest.mark.parametrize(
    ("typo", "right"),
    [("hazlenut", "hazelnut"), ("Heizng", "Heizung"), ("plumer", "plumber"), ("Kellerheizung", "Heizungskeller")],
)
def test_a_typo_leaves_more_trigrams_than_another_word(typo: str, right: str) -> None:
    assert share_of_trigrams(typo, right) >= 0.3
    assert share_of_trigrams(typo, "dentist") < 0.2


@pytest.mark.parametrize(
    "word", ["not", "no", "never", "nobody", "without", "nicht", "kein", "keine", "nie", "ohne", "nichts", "against"]
)
def test_words_that_deny_are_kept(word: str) -> None:
    assert has_words(f"the {word} und", BOTH, word)


def test_stop_words_of_all_languages_are_removed() -> None:
    text = "Wann ist der Termin at the dentist?"
    assert has_words(text, BOTH, "termin", "dentist")
    assert has_words(text, ["en"], "wann", "ist", "der", "termin", "dentist")


def test_stop_words_are_such_as_words_are_compared_with() -> None:
    assert all(fold_text(word) == word for words in STOP_WORDS.values() for word in words)
    assert STOP_WORDS.keys() <= STEMMED.keys()


def test_each_stemmer_is_there() -> None:
    assert all(read_terms("organisation", [language]).words for language in STEMMED)


ANY = st.text(max_size=60)


@given(ANY)
def test_folding_twice_changes_nothing_more(text: str) -> None:
    assert fold_text(fold_text(text)) == fold_text(text)


@given(st.text(alphabet="abcäöüéèñçåøłß XYZÄÖÜ'-.1", max_size=40))
def test_accents_and_case_make_no_difference(text: str) -> None:
    bare = text.translate(str.maketrans("äöüéèñçåøłÄÖÜ", "aoueencaolAOU")).replace("ß", "ss")
    assert read_terms(text, BOTH) == read_terms(bare, BOTH) == read_terms(bare.upper(), BOTH)


@given(ANY, st.sets(st.sampled_from([*sorted(STEMMED), "xx"]), max_size=4))
def test_any_text_is_read_and_each_word_has_a_form(text: str, languages: set[str]) -> None:
    terms = read_terms(text, languages)
    assert len(terms.words) == len(terms.trigrams)
    assert all(word and all(word) for word in (*terms.words, *terms.trigrams))
    assert read_terms(text, sorted(languages, reverse=True)) == terms
