"""The command `/memory`: what a person asks for with it, and what is answered without a model. Pure.

`house.py` reads it while a message is stored, `journey/memory_commands.py` carries it out. In: the words behind the
command, facts; out: a `MemoryWish`, texts. Next: `core/text/fact_numbers.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC
from typing import Final, Literal
from urllib.parse import unquote

from msgspec import Struct

from switchboard.core.passages.names import speaker
from switchboard.core.text.fact_numbers import NUMBER, number_of
from switchboard.domain.routing import SystemId
from switchboard.ports.facts import Fact

MemoryVerb = Literal["show", "wrong", "forget", "off", "on", "export"]

MOST_SHOWN: Final = 30
"""Facts in one list."""
HOW: Final = """Write one of these, and nothing else:
/memory - what is remembered here; /memory show and words: only what has one of them
/memory wrong and a number of that list: it counts as never said
/memory forget and a number: forget it for good
/memory off, /memory on: learn nothing from this conversation until it is on again
/memory export: all that is remembered from you"""
OFF: Final = (
    "From now on nothing is learned from what is said here, until somebody writes /memory on. What was remembered "
    "before stays: /memory shows it."
)
ON: Final = "From now on what is said here may be remembered again. What was said in between is not."
NOTHING: Final = "Nothing is remembered that may be told here."
NO_MATCH: Final = "Nothing that is remembered and may be told here has one of these words."
UNKNOWN: Final = "Nothing that is remembered here has the number {number}, or no longer. /memory shows the numbers."
NOT_THEIRS: Final = "Somebody else said that, and it is not about you: only they or an operator can change it."
WRONG: Final = 'It counts as never said from now on: "{text}"'
FORGOTTEN: Final = "It is forgotten, and will not be kept again in the same words."
UNCERTAIN: Final = "Here it is not certain who writes, so nothing is remembered, and nothing is shown."
OVERHEARD: Final = "Others read this. Write /memory export where nobody else does."

_ALONE: Final[Mapping[str, MemoryVerb]] = {"": "show", "show": "show", "off": "off", "on": "on", "export": "export"}
_ABOUT: Final[Mapping[str, MemoryVerb]] = {"wrong": "wrong", "forget": "forget"}
_MOST_WORDS: Final = 200


class MemoryWish(Struct, frozen=True):
    """What somebody wants with `/memory`. `words`: what to show, or the number of a fact."""

    verb: MemoryVerb
    words: str = ""


class ToldFact(Fact, frozen=True):
    """A fact that may be told where the command was written. `about_reader`: its subject is whoever wrote that."""

    system_id: SystemId = SystemId("")
    about_reader: bool = False


def read_wish(extra: str) -> MemoryWish | None:
    """What the words behind `/memory` ask for; None: nothing that there is."""
    verb, _, rest = extra.lower().strip().partition(" ")
    rest = rest.strip()
    if not rest:
        found = _ALONE.get(verb)
        return None if found is None else MemoryWish(found)
    if verb == "show" and len(rest) <= _MOST_WORDS:
        return MemoryWish("show", rest)
    about = _ABOUT.get(verb)
    return MemoryWish(about, rest) if about is not None and NUMBER.fullmatch(rest) else None


def has_verb(extra: str) -> bool:
    """Whether the words behind `/memory` begin with what it can do, even if nothing follows that it can do it with."""
    words = extra.lower().split()
    return bool(words) and words[0] in {*_ALONE, *_ABOUT}


def with_words(facts: Iterable[ToldFact], words: str) -> list[ToldFact]:
    """The facts that have any of these words; of longer ones the last two letters are free."""
    stems = [one[: max(4, len(one) - 2)] for one in re.findall(r"\w+", words.lower())]
    return [one for one in facts if any(_has_stem(f"{one.subject} {one.text}", stem) for stem in stems)]


def list_text(facts: Sequence[ToldFact], names: Mapping[str, str]) -> str:
    """The list, the newest first, with how to change it. `names`: of linked persons, by author."""
    shown = facts[:MOST_SHOWN]
    lines = [f"{number_of(one.fact_id)} - {line_of(one, names)}" for one in shown]
    more = len(facts) - len(shown)
    also = (f"And {more} more: write /memory show and a word that they have.",) if more else ()
    example = number_of(shown[0].fact_id)
    how = f"Not right: /memory wrong {example}. To be forgotten for good: /memory forget {example}"
    return "\n".join(("What is remembered here, the newest first:", *lines, *also, how))


def export_text(facts: Sequence[ToldFact], names: Mapping[str, str]) -> str:
    """All of these facts, a line each."""
    return "\n".join((f"What is remembered from you ({len(facts)}):", *(line_of(one, names) for one in facts)))


def line_of(fact: ToldFact, names: Mapping[str, str]) -> str:
    """Who said it, when and where, about whom, and what."""
    who = "you" if fact.own else speaker(names.get(fact.author, ""), fact.author)
    about = "" if fact.subject == "self" else f", about {fact.subject}"
    on = (fact.said_at or fact.created_at).astimezone(UTC)
    return f"{on:%Y-%m-%d}, {who} {_place_of(fact)}{about}: {' '.join(fact.text.split())}"


def _place_of(fact: ToldFact) -> str:
    butler, channel = fact.system_id.partition("/")[2], unquote(fact.author.partition("/")[0])
    kind = fact.space.partition(":")[0]
    if kind == "private":
        return f"to {butler} alone ({channel})"
    return f"to {butler} here" if kind == "group" else f"to {butler}, which tells it everybody"


def _has_stem(text: str, stem: str) -> bool:
    return any(word.startswith(stem) for word in re.findall(r"\w+", text.lower()))
