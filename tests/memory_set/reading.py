"""The dialogues and questions that memory is measured on, as typed values. Only reads the files beside it.

Called by `unit/test_memory_set.py` and whoever measures a search. In: `*.jsonl`; out: a `MemorySet`. What the fields
mean, and what the sealed half is for: `README.md`. Next: `../unit/test_memory_set.py`.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Final, Literal, TypeVar

from msgspec import Struct, field
from msgspec.json import Decoder

_HERE: Final = Path(__file__).parent
_T = TypeVar("_T")

QuestionClass = Literal[
    "identifier",
    "paraphrase",
    "typo",
    "german",
    "cross-lingual",
    "update",
    "time",
    "negation",
    "namesakes",
    "unanswerable",
    "multi-session",
]


class DialogueHandle(Struct, frozen=True, forbid_unknown_fields=True):
    """A person as one channel names them."""

    channel: str
    handle: str


class DialoguePerson(Struct, frozen=True, forbid_unknown_fields=True):
    """Who writes, with all handles; two people of one first name are two of these."""

    name: str
    also_called: tuple[str, ...]
    handles: tuple[DialogueHandle, ...]


class DialogueSpace(Struct, frozen=True, forbid_unknown_fields=True):
    """Where messages are seen: one person's private space over all handles of theirs, or a group; members by name."""

    id: str
    kind: Literal["private", "group"]
    zone: str
    members: tuple[str, ...]


class DialogueMessage(Struct, frozen=True, forbid_unknown_fields=True):
    """One line of a dialogue; without an author it is the butler's, and no evidence. `language` is None for those."""

    id: str
    space: str
    at: datetime
    author: DialogueHandle | None
    language: Literal["en", "de", "mixed"] | None
    text: str


class DialogueAsker(Struct, frozen=True, forbid_unknown_fields=True):
    """Who asks, where and when: what was said in other spaces, or later, is not theirs to be told."""

    channel: str
    handle: str
    space: str
    at: datetime


class MemoryQuestion(Struct, frozen=True, forbid_unknown_fields=True):
    """A question and the messages that answer it.

    `answer`: any of these, as whole words, is right; empty if the right answer is that nobody said so.
    `evidence`: each alone suffices, but for `multi-session`, where all are needed.
    `stale`: said the same thing once, and is outdated. `hidden`: would answer it, in spaces that the asker cannot see.
    """

    id: str
    kind: QuestionClass = field(name="class")
    language: Literal["en", "de"]
    half: Literal["open", "sealed"]
    asker: DialogueAsker
    text: str
    answer: tuple[str, ...]
    evidence: tuple[str, ...]
    stale: tuple[str, ...]
    hidden: tuple[str, ...]


class MemorySet(Struct, frozen=True):
    """The four files; messages are in order of time within a space."""

    people: tuple[DialoguePerson, ...]
    spaces: tuple[DialogueSpace, ...]
    messages: tuple[DialogueMessage, ...]
    questions: tuple[MemoryQuestion, ...]

    def visible_to(self, asker: DialogueAsker) -> tuple[DialogueMessage, ...]:
        """What was said in the asker's space before they asked, the butler's lines included."""
        return tuple(one for one in self.messages if one.space == asker.space and one.at < asker.at)


def read_memory_set() -> MemorySet:
    """The whole set; raises `msgspec.ValidationError` for a line with missing, unknown or ill-typed fields."""
    return MemorySet(
        _lines("people", DialoguePerson),
        _lines("spaces", DialogueSpace),
        _lines("dialogues", DialogueMessage),
        _lines("questions", MemoryQuestion),
    )


def _lines(name: str, kind: type[_T]) -> tuple[_T, ...]:
    return tuple(Decoder(kind).decode_lines((_HERE / f"{name}.jsonl").read_bytes()))
