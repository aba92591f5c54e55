"""The set that memory is measured on is consistent: evidence is there and visible, halves are even, nothing leaks."""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Final, get_args

from tests.memory_set.reading import QuestionClass, read_memory_set

EACH_CLASS: Final = 30
WHOLE: Final = read_memory_set()
# Words that a paraphrase may have in common with what it asks for, beside names: they carry no meaning of their own.
EMPTY_WORDS: Final = frozenset(
    (Path(__file__).parent.parent / "memory_set" / "empty_words.txt").read_text(encoding="utf-8").split()
)


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.casefold())


NAMES: Final = frozenset(part for person in WHOLE.people for part in _words(person.name))
MESSAGES: Final = {one.id: one for one in WHOLE.messages}


def _content_words(text: str) -> set[str]:
    """The first five letters of its long words, so that inflections count as the same word; names left out."""
    return {word[:5] for word in _words(text) if len(word) > 3 and word not in NAMES | EMPTY_WORDS}


def test_the_set_is_as_large_and_as_spread_as_promised() -> None:
    by_people = [one for one in WHOLE.messages if one.author]
    times = sorted(one.at for one in by_people)
    kinds = Counter(space.kind for space in WHOLE.spaces)
    languages = Counter(one.language for one in by_people)
    assert len(by_people) >= 1_000
    assert (times[-1] - times[0]).days >= 500
    assert kinds["private"] >= 12
    assert kinds["group"] >= 4
    assert languages["de"] > len(by_people) / 3
    assert languages["mixed"] > 30


def test_ids_are_unique_and_every_space_is_in_order_of_time() -> None:
    for ids in ([one.id for one in WHOLE.messages], [one.id for one in WHOLE.questions], [s.id for s in WHOLE.spaces]):
        assert len(ids) == len(set(ids))
    for earlier, later in pairwise(WHOLE.messages):
        assert earlier.space != later.space or earlier.at <= later.at, later.id


def test_who_writes_and_who_asks_are_members_of_the_space() -> None:
    person = {(handle.channel, handle.handle): one.name for one in WHOLE.people for handle in one.handles}
    members = {space.id: space.members for space in WHOLE.spaces}
    assert len(person) == sum(len(one.handles) for one in WHOLE.people)
    for message in WHOLE.messages:
        assert (message.author is None) == (message.language is None), message.id
        if message.author:
            assert person[message.author.channel, message.author.handle] in members[message.space], message.id
    for question in WHOLE.questions:
        assert person[question.asker.channel, question.asker.handle] in members[question.asker.space], question.id


def test_every_class_has_its_questions_and_halves_are_even() -> None:
    halves = Counter((one.kind, one.half, one.language) for one in WHOLE.questions)
    for kind in get_args(QuestionClass):
        sizes = {half: halves[kind, half, "en"] + halves[kind, half, "de"] for half in ("open", "sealed")}
        assert sizes["open"] == sizes["sealed"] >= EACH_CLASS / 2, kind
        assert abs(halves[kind, "open", "de"] - halves[kind, "sealed", "de"]) <= 1, kind


def test_questions_have_evidence_that_their_askers_see() -> None:
    for question in WHOLE.questions:
        seen = {one.id for one in WHOLE.visible_to(question.asker) if one.author}
        assert seen.issuperset(question.evidence + question.stale), question.id
        assert not set(question.evidence) & set(question.stale), question.id
        assert bool(question.evidence) == bool(question.answer) == (question.kind != "unanswerable"), question.id
        assert all(MESSAGES[one].space != question.asker.space for one in question.hidden), question.id
        for answer in question.answer:
            assert not re.search(rf"(?<!\w){re.escape(answer)}(?!\w)", question.text, re.IGNORECASE), question.id


def test_questions_are_what_their_class_says() -> None:
    for question in WHOLE.questions:
        languages = {MESSAGES[one].language for one in question.evidence}
        match question.kind:
            case "update":
                oldest = min(MESSAGES[one].at for one in question.evidence)
                assert question.stale, question.id
                assert all(MESSAGES[one].at < oldest for one in question.stale), question.id
            case "german":
                assert languages == {question.language} == {"de"}, question.id
            case "cross-lingual":
                assert question.language not in languages, question.id
            case "multi-session":
                assert len({MESSAGES[one].at.date() for one in question.evidence}) > 1, question.id
            case "paraphrase":
                for one in question.evidence:
                    assert not _content_words(question.text) & _content_words(MESSAGES[one].text), question.id
            case "identifier" | "typo" | "time" | "negation" | "namesakes" | "unanswerable":
                pass
