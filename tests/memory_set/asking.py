"""The questions of the set, each with the messages that its asker may find and how well they answer it.

Called by `weights.py` and `report.py`. In: a `MemorySet`; out: `AskedQuestion`s and scores. Next: `searching.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from tests.memory_set.reading import DialogueMessage, MemoryQuestion, MemorySet
from tests.memory_set.scoring import SearchScore, SoughtMessages, score_ranking
from tests.memory_set.searching import RatedTexts, rate_for_question, read_texts

TOP: Final = 5


class AskedQuestion(Struct, frozen=True):
    """A question, what could be found, and how well each message answers it."""

    question: MemoryQuestion
    messages: Sequence[DialogueMessage]
    rated: RatedTexts


def ask_questions(known: MemorySet, *, everything: bool = False) -> list[AskedQuestion]:
    """All of the set. With `everything`, all that was said before somebody asked can be found, in whatever space."""
    read = read_texts([*(one.text for one in known.messages), *(one.text for one in known.questions)])
    asked = list[AskedQuestion]()
    for question in known.questions:
        asker = question.asker
        messages = [one for one in known.messages if one.at < asker.at] if everything else known.visible_to(asker)
        rated = rate_for_question(question.text, asker.at, [(one.at, one.text) for one in messages], read)
        asked.append(AskedQuestion(question, messages, rated))
    return asked


def seek_evidence(question: MemoryQuestion) -> SoughtMessages:
    """Any evidence is enough, but for `multi-session`, where all is needed."""
    evidence = frozenset(question.evidence)
    needed = len(evidence) if question.kind == "multi-session" else 1
    return SoughtMessages(evidence, needed, frozenset(question.stale))


def score_places(asked: AskedQuestion, places: Sequence[int]) -> SearchScore:
    """Of messages by their places, the best first."""
    return score_ids(asked, [asked.messages[place].id for place in places])


def score_ids(asked: AskedQuestion, ids: Sequence[str]) -> SearchScore:
    """Of messages by their ids, the best first; the butler's lines count as neither right nor wrong."""
    by_people = {one.id: one.text for one in asked.messages if one.author is not None}
    ranking = [one for one in ids if one in by_people]
    return score_ranking(ranking, seek_evidence(asked.question), TOP, [by_people[one] for one in ranking[:TOP]])
