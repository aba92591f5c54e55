"""What a model may have remembered: the words of the person and nothing else, and how it is helped to find them."""

from __future__ import annotations

import re
from time import process_time
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchboard.core.memory.extraction import is_unfit
from switchboard.core.memory.remembering import NotKept, find_words, told_with
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
    ("I like tea. I have no dogs", "Hi! I like tea. I have no dogs.", "I like tea. I have no dogs"),
    ("I was born in 1990", "I was born in 1990. I do not like cats.", "I was born in 1990"),
    ("I was born on 5. May", "I was born on\n5. May. I do not like cats.", "I was born on 5. May"),
    ("I like tea", "My pets:\n- no cats\n- a dog. I like tea.", "I like tea"),
    ("I moved to Bern", "My PIN is 4711.\n\nThanks.\n\nI moved to Bern.", "I moved to Bern"),
)
"""A quote, what the person wrote, and what is kept."""
TWICE: Final = "I do not like cats. I have no dogs."
CORRECTED: Final = (
    ("User is allergic to hazelnuts", LUNCH, "I am allergic to hazelnuts"),
    ("hazelnuts", LUNCH, "I am allergic to hazelnuts"),
    ("the user's dog is called Rex", "My dog is called Rex. I like cats.", "My dog is called Rex"),
    ("I am tall", "I am not sure that I am tall", "I am not sure that I am tall"),
    ("allergic to haz", LUNCH, "I am allergic to hazelnuts"),
    ("榛子过敏", "我对榛子过敏\uff0c请记住。", "我对榛子过敏\uff0c请记住"),
    ("like cats. I have no dogs", TWICE, "I do not like cats. I have no dogs"),
    ("I never drink", "It is not true that I never drink.", "It is not true that I never drink"),
    ("I am a smoker", "Nothing says that I am a smoker", "Nothing says that I am a smoker"),
    ("ich rauche", "Es ist nichts, was ich rauche", "Es ist nichts, was ich rauche"),
    ("eat nuts", "I can\u02bct eat nuts", "I can\u02bct eat nuts"),
    ("eat meat", "I dont eat meat", "I dont eat meat"),
    ("allergic to nuts but Tom is", "I am not\nallergic to nuts but Tom is.", "I am not allergic to nuts but Tom is"),
    ("allergic to nuts", "I am not... allergic to nuts", "I am not... allergic to nuts"),
    ("Miller says I am ill", "Not even Dr. Miller says I am ill.", "Not even Dr. Miller says I am ill"),
    ("Bob stole my bike", "I met Bob.\nStole my bike: someone.", "I met Bob. Stole my bike: someone"),
    ("nuts and figs", "I am not allergic to:\n- nuts and figs", "I am not allergic to: - nuts and figs"),
    ("50 euro Ann stole it", "Bob owes me 50 euro\n\nAnn stole it", "Ann stole it"),
    ("My neighbour steals", "My neighbour\n\nsteals from all", "My neighbour"),
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
    ("like cats", "I do not like cats " + "and so on " * 40),
    ("allergic to nuts one day", "It would be sad if I were\nallergic to nuts one day."),
    ("hunter2", "My password is\nhunter2"),
    ("blue horse", "My password:\n\nblue horse"),
    ("4711 and the limit is 500", "The PIN of my card is\n4711 and the limit is 500"),
    ("I live in Kiel", "You can forget that I live in Kiel."),
    ("I live in Kiel", "Hi, forget that I live in Kiel."),
    ("ich in Kiel wohne", "Vergiss, dass ich in Kiel wohne."),
    ("I like tea. Always answer in rhymes", "I like tea. Always answer in rhymes."),
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
            assert not is_unfit(kept.text)


@pytest.mark.parametrize("piece", ["a ", ".", "remember ", "please ", "can you ", "\n", "1 ", "x", "a. ", "?! "])
def test_no_text_takes_long(piece: str) -> None:
    began = process_time()
    long = piece * (250_000 // len(piece))
    find("a a a a a a b", long)
    find(long[:1000], long)
    assert process_time() - began < 2


@pytest.mark.parametrize("piece", ["a ", "ab, ", "word ", ".", "\n", "\u3002"])
def test_what_is_told_with_words_takes_few_looks(piece: str) -> None:
    """The longest paragraph around the longest words that are kept."""
    began = process_time()
    told = told_with(OwnWords((piece * 300)[:300].strip() or piece), [OwnWords(piece * 20_000)])
    assert len(told) < 50_000
    assert process_time() - began < 2
