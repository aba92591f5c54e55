"""What becomes of the oldest entries of a history: a few facts and a summary, from one answer of a model. Pure.

`journey/compaction.py` asks the model and keeps what passes. Next: `extraction.py`, which checks the facts.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from msgspec import Struct

from switchboard.core.memory.extraction import (
    FORM,
    MAX_FACTS,
    MAX_READ,
    RULES,
    SENTENCE,
    LearnableEntry,
    Learned,
    parse_facts,
    read_answer,
    show_entries,
)
from switchboard.core.text.secret_words import has_secret
from switchboard.domain.llm import ChatMessage, Request

MAX_SUMMARY: Final = 1200
"""Characters."""
_SYSTEM: Final = f"""\
You condense the oldest part of a conversation between people and an assistant.
Answer with one JSON object and nothing else:
{{"summary": "…", "facts": [{FORM}]}}
summary: what a later reader of the conversation must know, in at most 1200 characters; an earlier summary is worked \
into it.
{RULES}"""


class Compacted(Struct, frozen=True):
    """What replaces the entries."""

    summary: str
    facts: tuple[Learned, ...]


class CompactionPart(Struct, frozen=True):
    """What a model reads for one answer: lines that the same people may hear, and a summary of what was said before.

    `own`: the lines whose facts are for these people and nobody else.
    """

    lines: tuple[LearnableEntry, ...]
    own: tuple[LearnableEntry, ...]
    summary: str = ""


def parts_of(
    lines: Sequence[LearnableEntry], summary: str = "", before: Sequence[tuple[str, bool]] = ()
) -> tuple[CompactionPart, ...]:
    """The parts of a conversation, usually one; the last one provides the summary. `before`: as in `audience_of`.

    A model that reads two people's private words together may put those of one into a fact about the other, even
    because it was told to. So nobody's facts come from an answer to a request with more than they may hear.
    """
    told = [one for one in lines if one.learn]
    people = dict.fromkeys(who for who, private in (*before, *((o.person, o.private) for o in told)) if private)
    group = tuple(one for one in told if not one.private)
    open_to_all = [CompactionPart(group, group, "" if any(private for _, private in before) else summary)]
    return (
        *(open_to_all if group or not people else ()),
        *(_part_of_one(told, one, summary, before) for one in people),
    )


def _part_of_one(
    told: Sequence[LearnableEntry], person: str, summary: str, before: Sequence[tuple[str, bool]]
) -> CompactionPart:
    heard = all(not private or who == person for who, private in before)
    lines = tuple(one for one in told if not one.private or one.person == person)
    return CompactionPart(lines, tuple(one for one in lines if one.private), summary if heard else "")


def merge_parts(parts: Sequence[Compacted]) -> Compacted:
    """The valid content of all parts."""
    return Compacted(parts[-1].summary, tuple(fact for one in parts for fact in one.facts)[:MAX_FACTS])


def request_for(lines: Sequence[LearnableEntry], summary: str, deadline: float = 60.0) -> Request:
    """The request to a model."""
    asked = json.dumps({"earlier_summary": summary, "conversation": show_entries(lines)}, ensure_ascii=False)
    return Request((ChatMessage("user", asked),), system=_SYSTEM, max_tokens=2048, deadline=deadline)


def parse_compaction(answer: str, lines: Sequence[LearnableEntry], owners: Collection[str] = ()) -> Compacted | str:
    """The valid content of a model's answer, or what is wrong with the answer as a whole. `owners`: of the butler."""
    found = read_answer(answer)
    if found is None:
        return "the answer is not a JSON object"
    summary, facts = found.get("summary"), found.get("facts", [])
    if not isinstance(summary, str) or not summary.strip():
        return "the answer has no summary"
    if not isinstance(facts, list):
        return "facts is not a list"
    return Compacted(_summary_of(summary), parse_facts(facts, lines, owners))


def audience_of(lines: Iterable[tuple[str, bool]]) -> tuple[str, bool] | None:
    """The audience of a summary of entries, each a (person, private): the strictest one; None: nobody.

    A summary of two people's private words is shown to neither.
    """
    people = {person for person, private in lines if private}
    if not people:
        return "", False
    return (people.pop(), True) if len(people) == 1 else None


def _summary_of(text: str) -> str:
    """At most 1,200 characters, without sentences about secrets."""
    said = [one for one in SENTENCE.findall(text[:MAX_READ]) if not has_secret(one)]
    clean = " ".join("".join(said).split()) or "…"
    return clean if len(clean) <= MAX_SUMMARY else clean[: MAX_SUMMARY - 1].rsplit(" ", 1)[0] + "…"
