"""BM25 beside its formula, read naively; and which of some facts words find."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchboard.core.memory.bm25 import TermStatistics, add_statistics, count_terms, rate_texts
from switchboard.core.memory.terms import TextTerms, read_terms

FACTS = (
    "Noor is allergic to hazelnuts.",
    "Noor is not allergic to peanuts.",
    "Nora likes hazelnut cake.",
    "The boiler was repaired in March by Mr. Petersen.",
    "Die Heizung wird jeden Oktober gewartet.",
    "Frau Müller hat den Schlüssel für den Keller.",
    "The order number of the bicycle is AB-1234.",
    "The order number of the fridge is AB-1243.",
    "Ann's passport expires on 2027-03-01.",
    "The Wi-Fi password is on the fridge.",
)
BOTH = ("de", "en")


def found_first(question: str) -> str:
    terms = [read_terms(fact, BOTH) for fact in FACTS]
    statistics, query = count_terms(terms), read_terms(question, BOTH)
    return max(zip(rate_texts(query, terms, statistics), FACTS, strict=True))[1]


@pytest.mark.parametrize(
    ("question", "fact"),
    [
        ("Which allergies does Noor have? hazelnuts?", 0),
        ("noor hazlenut alergic", 0),
        ("Is Noor not allergic?", 1),
        ("Nora hazelnuts", 2),
        ("who repairs boilers", 3),
        ("Wann ist die Wartung der Heizungen?", 4),
        ("Schluessel Mueller", 5),
        ("schlusel keler", 5),
        ("ab1234", 6),
        ("AB 1243", 7),
        ("When do passports expire?", 8),
        ("wifi", 9),
    ],
)
def test_the_right_fact_is_found_by_its_words(question: str, fact: int) -> None:
    assert found_first(question) == FACTS[fact]


WORDS = st.sampled_from(["boiler", "boilers", "nut", "nuts", "noor", "keller", "ab-1234", "not", "the"])
SENTENCES = st.lists(WORDS, max_size=8).map(" ".join)


def naive(query: TextTerms, text: TextTerms, texts: list[TextTerms]) -> float:
    """The formula with nothing shared: each number is counted anew from all texts."""
    average = sum(len(one.words) for one in texts) / len(texts)

    def weight(term: str, words: tuple[frozenset[str], ...], field: str) -> float:
        having = sum(any(term in word for word in getattr(one, field)) for one in texts)
        count = sum(term in word for word in words)
        idf = math.log(1 + (len(texts) - having + 0.5) / (having + 0.5))
        length = len(words) / average if average else 1.0
        return idf * count * 2.2 / (count + 1.2 * (0.25 + 0.75 * length))

    def share(wanted: set[frozenset[str]], field: str) -> float:
        of_query, of_text = (
            sum(max(weight(term, getattr(one, field), field) for term in terms) for terms in wanted)
            for one in (query, text)
        )
        return min(1.0, of_text / of_query) if of_query else 0.0

    single = {frozenset({trigram}) for word in query.trigrams for trigram in word}
    return 0.5 * share(set(query.words), "words") + 0.5 * share(single, "trigrams")


@given(SENTENCES, st.lists(SENTENCES, min_size=1, max_size=6))
def test_relevance_is_that_of_the_formula(question: str, sentences: list[str]) -> None:
    query, texts = read_terms(question, BOTH), [read_terms(one, BOTH) for one in sentences]
    statistics = count_terms(texts)
    found = rate_texts(query, texts, statistics)
    assert found == pytest.approx([naive(query, text, texts) for text in texts])
    assert all(0 <= one <= 1 for one in found)
    if query.words:
        assert rate_texts(query, [query], statistics) == pytest.approx([1])


@given(st.lists(st.lists(SENTENCES, max_size=4), max_size=4))
def test_statistics_of_spaces_add_up_to_those_of_all_texts(spaces: list[list[str]]) -> None:
    read = [[read_terms(one, BOTH) for one in space] for space in spaces]
    assert add_statistics(map(count_terms, read)) == count_terms(text for space in read for text in space)


def test_without_texts_and_without_words_nothing_is_relevant() -> None:
    nothing, some = read_terms("the", BOTH), read_terms("boiler", BOTH)
    assert rate_texts(nothing, [some], count_terms([some])) == [0]
    assert rate_texts(some, [nothing], TermStatistics()) == [0]
