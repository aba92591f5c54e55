"""What is compared: what a model may be shown of what was said, without or with a search.

Called by `report.py`. In: an `AskedQuestion`; out: its `SearchScore`. Next: `searching.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from tests.memory_set.asking import AskedQuestion, score_places, seek_evidence
from tests.memory_set.reading import DialogueMessage
from tests.memory_set.scoring import SearchScore, score_context
from tests.memory_set.searching import rank_by_both, rank_by_vectors, rank_by_words

RetrievalSystem = Callable[[AskedQuestion], SearchScore]

_LAST: Final = 40
"""Entries of a conversation that a turn is shown, the butler's included."""


def _show_messages(asked: AskedQuestion, messages: Sequence[DialogueMessage]) -> SearchScore:
    sought = seek_evidence(asked.question)
    return score_context([one.id for one in messages], sought, [one.text for one in messages])


SYSTEMS: Final[Mapping[str, RetrievalSystem]] = {
    f"last {_LAST}": lambda asked: _show_messages(asked, asked.messages[-_LAST:]),
    "full context": lambda asked: _show_messages(asked, asked.messages),
    "BM25": lambda asked: score_places(asked, rank_by_words(asked.rated)),
    "vectors": lambda asked: score_places(asked, rank_by_vectors(asked.rated)),
    "joined": lambda asked: score_places(asked, rank_by_both(asked.rated)),
}
"""By name. The searches are over messages as they were said; the last one is ours."""
