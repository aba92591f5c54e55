"""What a search finds in LoCoMo, a public set: `python -m tests.memory_set.public PATH [--json]`.

In: its `locomo10.json` (github.com/snap-research/locomo, CC BY-NC 4.0), which is not part of this repository; out: how
often the evidence is among the first five and ten messages, by category. Nothing answers and nothing judges: what
others publish for this set is mostly the accuracy of answers, which is another thing. Next: `searching.py`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import Final

import msgspec
from msgspec import Struct
from rich.console import Console
from rich.table import Table

from tests.memory_set.scoring import DifferenceInterval, SearchScore, SoughtMessages, compare_pairs, score_ranking
from tests.memory_set.searching import (
    RatedTexts,
    rank_by_both,
    rank_by_vectors,
    rank_by_words,
    rate_by_sentence,
    rate_for_question,
    read_texts,
)

_CATEGORIES: Final = {1: "multi-hop", 2: "temporal", 3: "open-domain", 4: "single-hop", 5: "adversarial"}
_UNANSWERABLE: Final = 5
"""These ask for what nobody said of whom they name; what is usually reported leaves them out."""
_ANSWERABLE: Final = "all but adversarial"
_LANGUAGES: Final = ("en",)
_SENTENCE: Final = re.compile(r"(?<=[.!?])\s+")
_FIGURES: Final = ("any of 5", "any of 10", "all of 10", "reciprocal rank")
_JOINED: Final = "joined"


class PublicMessage(Struct, frozen=True):
    """A turn of a conversation, with who speaks; and its sentences, each with who speaks."""

    id: str
    at: datetime
    text: str
    sentences: tuple[str, ...]


class PublicQuestion(Struct, frozen=True):
    """A question, and the turns that answer it."""

    category: int
    text: str
    evidence: frozenset[str]


class PublicConversation(Struct, frozen=True):
    """All of one; questions without evidence in it are left out."""

    messages: Sequence[PublicMessage]
    questions: Sequence[PublicQuestion]


class AskedPublic(Struct, frozen=True):
    """A question, how well each turn answers it, and how well by its sentences."""

    question: PublicQuestion
    messages: Sequence[PublicMessage]
    rated: RatedTexts
    by_sentence: RatedTexts

    @property
    def category(self) -> str:
        """Its name."""
        return _CATEGORIES[self.question.category]

    @property
    def answerable(self) -> bool:
        """Whether somebody said what is asked for."""
        return self.question.category != _UNANSWERABLE


class PublicFigure(Struct, frozen=True):
    """Of a search, a category and a figure, over so many questions; and joined minus this one."""

    category: str
    search: str
    figure: str
    questions: int
    mean: float
    joined_minus_this: DifferenceInterval


_SEARCHES: Final[Mapping[str, Callable[[AskedPublic], list[int]]]] = {
    "BM25": lambda asked: rank_by_words(asked.rated),
    "vectors": lambda asked: rank_by_vectors(asked.rated),
    _JOINED: lambda asked: rank_by_both(asked.rated),
    "vectors of sentences": lambda asked: rank_by_vectors(asked.by_sentence),
    "joined, vectors of sentences": lambda asked: rank_by_both(asked.by_sentence),
}


class _Turn(Struct, frozen=True):
    speaker: str
    dia_id: str
    text: str
    blip_caption: str = ""


class _Asked(Struct, frozen=True):
    question: str
    category: int
    evidence: tuple[str, ...] = ()


class _Sample(Struct, frozen=True):
    conversation: Mapping[str, object]
    qa: tuple[_Asked, ...]


def main(arguments: Sequence[str]) -> None:
    """Measure and print."""
    content = Path(arguments[0]).read_bytes()
    figures = list(_measure_categories(ask_public(content)))
    if "--json" in arguments:
        print(msgspec.json.encode(figures).decode())
        return
    print(f"SHA-256 {sha256(content).hexdigest()}, {sum(len(one.messages) for one in read_locomo(content))} turns")
    print("Percent; in brackets joined minus this one, with its 95 % interval (paired bootstrap over questions)")
    Console(width=None if sys.stdout.isatty() else 160).print(_draw_figures(figures))


def ask_public(content: bytes) -> list[AskedPublic]:
    """All questions of the file, each asked after the last turn of its conversation."""
    return [asked for conversation in read_locomo(content) for asked in _ask_conversation(conversation)]


def score_turns(asked: AskedPublic, places: Sequence[int], top: int = 5) -> SearchScore:
    """Of turns by their places, the best first."""
    ranking = [asked.messages[place].id for place in places]
    return score_ranking(ranking, SoughtMessages(asked.question.evidence), top, ())


def read_locomo(content: bytes) -> list[PublicConversation]:
    """Of the file as it is published. Raises `msgspec.ValidationError` for another one."""
    return [_read_sample(one) for one in msgspec.json.decode(content, type=list[_Sample])]


def _read_sample(sample: _Sample) -> PublicConversation:
    messages = list(_read_messages(sample.conversation))
    known = {one.id for one in messages}
    asked = [PublicQuestion(one.category, one.question, _split_ids(one.evidence) & known) for one in sample.qa]
    return PublicConversation(messages, [one for one in asked if one.evidence])


def _read_messages(conversation: Mapping[str, object]) -> Iterator[PublicMessage]:
    for name, turns in conversation.items():
        if isinstance(turns, list):
            said = _read_time(str(conversation[f"{name}_date_time"]))
            yield from (_read_turn(turn, said) for turn in msgspec.convert(turns, list[_Turn]))


def _read_time(text: str) -> datetime:
    """Such as `1:56 pm on 8 May, 2023`, without a zone."""
    return datetime.strptime(text, "%I:%M %p on %d %B, %Y").replace(tzinfo=UTC)


def _read_turn(turn: _Turn, at: datetime) -> PublicMessage:
    """What a picture shows is part of the text."""
    parts = [*_SENTENCE.split(turn.text.strip()), *filter(None, [turn.blip_caption])]
    return PublicMessage(
        turn.dia_id, at, f"{turn.speaker}: {' '.join(parts)}", tuple(f"{turn.speaker}: {part}" for part in parts)
    )


def _split_ids(evidence: Sequence[str]) -> frozenset[str]:
    """Some are written as one: `D8:6; D9:17`."""
    return frozenset(re.findall(r"D\d+:\d+", " ".join(evidence)))


def _ask_conversation(conversation: PublicConversation) -> Iterator[AskedPublic]:
    messages, last = conversation.messages, max(one.at for one in conversation.messages)
    sentences = [one.sentences for one in messages]
    questions = [one.text for one in conversation.questions]
    read = read_texts([*questions, *(one.text for one in messages), *chain.from_iterable(sentences)], _LANGUAGES)
    said = [(one.at, one.text) for one in messages]
    for question in conversation.questions:
        rated = rate_for_question(question.text, last, said, read)
        yield AskedPublic(question, messages, rated, rate_by_sentence(rated, question.text, sentences, read))


def _measure_categories(asked: Sequence[AskedPublic]) -> Iterator[PublicFigure]:
    scored = [(one, {name: _score_search(one, search(one)) for name, search in _SEARCHES.items()}) for one in asked]
    for category in (*_CATEGORIES.values(), _ANSWERABLE):
        of_group = [
            scores for one, scores in scored if one.category == category or (category == _ANSWERABLE and one.answerable)
        ]
        for search in _SEARCHES if of_group else ():
            yield from _measure_search(category, search, of_group)


def _score_search(asked: AskedPublic, places: Sequence[int]) -> Mapping[str, float]:
    five, ten = (score_turns(asked, places, top) for top in (5, 10))
    values = (five.recall, ten.recall, float(ten.share == 1), five.reciprocal_rank or 0.0)
    return dict(zip(_FIGURES, values, strict=True))


def _measure_search(
    category: str, search: str, scored: Sequence[Mapping[str, Mapping[str, float]]]
) -> Iterator[PublicFigure]:
    for figure in _FIGURES:
        joined, this = ([one[name][figure] for one in scored] for name in (_JOINED, search))
        yield PublicFigure(category, search, figure, len(this), fmean(this), compare_pairs(joined, this))


def _draw_figures(figures: Sequence[PublicFigure]) -> Table:
    table = Table("category", "search", *_FIGURES)
    for category, search, questions in dict.fromkeys((one.category, one.search, one.questions) for one in figures):
        cells = [_render_figure(one) for one in figures if (one.category, one.search) == (category, search)]
        table.add_row(f"{category} ({questions})", search, *cells)
    return table


def _render_figure(figure: PublicFigure) -> str:
    mean, difference = f"{100 * figure.mean:.0f}", figure.joined_minus_this
    return mean if figure.search == _JOINED else f"{mean} ({100 * difference.low:+.0f} to {100 * difference.high:+.0f})"


if __name__ == "__main__":
    main(sys.argv[1:])
