"""Which forms an index is asked for, so that neither a typo nor a frequent word stands in the way."""

from __future__ import annotations

import pytest

from switchboard.core.memory.bm25 import TermStatistics
from switchboard.core.memory.terms import read_terms
from switchboard.core.memory.wanted import find_unknown, likeness_to, terms_of_question, want_forms

LANGUAGES = ("de", "en")


def test_frequent_words_are_looked_up_only_if_rare_ones_find_too_little() -> None:
    question = terms_of_question(read_terms("Noor drives a zeppelin somewhere", LANGUAGES))
    statistics = TermStatistics(50_000, 400_000, {"noor": 20_000, "drive": 30, "zeppelin": 2})
    rare, every = want_forms(question, statistics, {})
    assert {one.form for one in rare} == {"drive", "zeppelin"}
    assert {one.form for one in every} == {"noor", "drive", "zeppelin"}
    assert max(every, key=lambda one: one.rarity).form == "zeppelin"
    assert [question.words[place] & {"somewhere"} for place in find_unknown(question, statistics)] == [{"somewhere"}]


def test_a_single_frequent_word_is_looked_up() -> None:
    question = terms_of_question(read_terms("Noor", LANGUAGES))
    [[only]] = want_forms(question, TermStatistics(50_000, 400_000, {"noor": 20_000}), {})
    assert only.form == "noor"


@pytest.mark.parametrize(
    ("asked", "known", "meant"),
    [
        ("hazlenuts", "hazelnuts", True),
        ("plumbre", "plumber", True),
        ("haselnuss", "haselnussallergie", True),
        ("allergie", "haselnussallergie", True),
        ("walnuts", "hazelnuts", False),
        ("garden", "guardian", False),
    ],
)
def test_another_word_is_meant_that_begins_alike_or_is_mostly_the_same(asked: str, known: str, *, meant: bool) -> None:
    [wanted], [there] = (read_terms(word, ()).trigrams for word in (asked, known))
    like, shared = likeness_to(wanted), wanted & there
    assert (len(shared) >= like.fewest and (len(shared) >= like.most or like.begins in shared)) is meant


def test_of_a_long_question_the_longest_words_are_looked_for_once_each() -> None:
    words = [f"{n:03}{'z' * (n % 2)}" for n in range(60)]
    kept = [form for word in terms_of_question(read_terms(" ".join((*words, *words)), ())).words for form in word]
    assert len(kept) == len({*kept}) == 40
    assert kept[:30] == words[1::2]
