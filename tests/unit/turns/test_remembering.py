"""What a model may have remembered: the words of the person and nothing else, and how it is helped to find them."""

from __future__ import annotations

import re
from time import process_time
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchboard.core.turns.compaction import unfit
from switchboard.core.turns.remembering import NotKept, find_words
from switchboard.ports.facts import MAX_FACT, OwnWords

LUNCH: Final = "Hi, please remember that I am allergic to hazelnuts. What is for lunch?"
KEPT: Final = (
    ("I am allergic to hazelnuts", LUNCH, "I am allergic to hazelnuts"),
    ("i  AM\nallergic to Hazelnuts!", LUNCH, "I am allergic to hazelnuts"),
    ("please remember that I am allergic to hazelnuts", LUNCH, "I am allergic to hazelnuts"),
    ("I moved to Bern", "Can you remember that I moved to Bern?", "I moved to Bern"),
    ("I moved to Bern", "Did I say that I moved to Bern? Yes: I moved to Bern.", "I moved to Bern"),
    ("I don't eat meat", "Don't forget that I don't eat meat", "I don't eat meat"),
    ("-5 degrees are fine", "5 degrees are fine. So to speak: -5 degrees are fine", "-5 degrees are fine"),
    ("ich in Bern wohne", "Merk dir bitte, dass ich in Bern wohne!", "ich in Bern wohne"),
    ("Dr. Smith is my doctor", "Note: Dr. Smith is my doctor. OK?", "Dr. Smith is my doctor"),
    ("note taking is my hobby", "Note taking is my hobby", "Note taking is my hobby"),
    ("我对榛子过敏", "我对榛子过敏\uff0c请记住。", "我对榛子过敏"),
)
"""A quote, what the person wrote, and what is kept."""
CORRECTED: Final = (
    ("User is allergic to hazelnuts", LUNCH, "I am allergic to hazelnuts"),
    ("hazelnuts", LUNCH, "I am allergic to hazelnuts"),
    ("the user's dog is called Rex", "My dog is called Rex. I like cats.", "My dog is called Rex"),
    ("I am tall", "I am not sure that I am tall", "I am not sure that I am tall"),
    ("allergic to haz", LUNCH, "I am allergic to hazelnuts"),
    ("榛子过敏", "我对榛子过敏\uff0c请记住。", "我对榛子过敏\uff0c请记住"),
)
"""The same, with the words that the model is told to write."""
REFUSED: Final = (
    ("my password is hunter2", "Remember that my password is hunter2"),
    ("1234 or 4321", "My PIN is 1234 or 4321"),
    ("What is for lunch", LUNCH),
    ("I am vegan", "Do you remember that I am vegan?"),
    ("I am vegan", "If I am vegan, what do I eat?"),
    ("answer in rhymes from now on", "Remember: answer in rhymes from now on"),
    ("peanuts are green", LUNCH),
    ("…", "Well … I never"),
    ("", "anything"),
    ("word " * 100, "word " * 100),
)


def find(quote: str, *said: str) -> OwnWords | NotKept:
    return find_words(quote, [OwnWords(text, n) for n, text in enumerate(said)])


@pytest.mark.parametrize(("quote", "said", "kept"), KEPT)
def test_the_persons_words_are_kept_as_they_wrote_them(quote: str, said: str, kept: str) -> None:
    assert find(quote, "Thanks.", said) == OwnWords(kept, 1)


@pytest.mark.parametrize(("quote", "said", "words"), CORRECTED)
def test_a_model_is_told_which_words_to_write_and_these_are_kept(quote: str, said: str, words: str) -> None:
    refused = find(quote, said)
    assert isinstance(refused, NotKept)
    told = re.search(r'Write the person\'s words: "(.*)"', refused.why)
    assert told is not None
    assert find(told[1], said) == OwnWords(words, 0)


@pytest.mark.parametrize(("quote", "said"), REFUSED)
def test_what_is_no_statement_of_the_person_is_refused(quote: str, said: str) -> None:
    refused = find(quote, said)
    assert isinstance(refused, NotKept)
    assert "Write the person's words" not in refused.why


@given(quote=st.text(max_size=80), said=st.lists(st.text(max_size=200), max_size=4))
def test_nothing_is_kept_but_words_of_the_person_that_pass(quote: str, said: list[str]) -> None:
    for asked in (quote, *(text[3:40] for text in said)):
        kept = find(asked, *said)
        if isinstance(kept, OwnWords):
            assert kept.text in " ".join(said[kept.position].split())
            assert 0 < len(kept.text) <= MAX_FACT
            assert not unfit(kept.text)


@pytest.mark.parametrize("piece", ["a ", ".", "remember ", "please ", "can you ", "\n", "1 ", "x", "a. ", "?! "])
def test_no_text_takes_long(piece: str) -> None:
    began = process_time()
    long = piece * (250_000 // len(piece))
    find("a a a a a a b", long)
    find(long[:1000], long)
    assert process_time() - began < 2
