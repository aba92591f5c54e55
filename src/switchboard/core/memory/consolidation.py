"""What a model is asked for the facts of what was said since it was last asked, and which of its answer stands. Pure.

`journey/consolidation.py` asks. One request has what was said in one space, so that nothing of what one person said in
private comes into a fact about another one, even because somebody told the model so. An answer that cites what it was
not shown, or wants to change too much, is rejected whole. Next: `extraction.py`.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import Final

from msgspec import Struct

from switchboard.core.memory.extraction import (
    FORM,
    MAX_FACTS,
    RULES,
    LearnableEntry,
    Learned,
    parse_facts,
    read_answer,
    show_entries,
    words_of,
)
from switchboard.core.text.tokens import estimate_tokens
from switchboard.domain.llm import ChatMessage, Request

MOST_EPISODES: Final = 20
"""Turns of which a model is told at once."""
ENOUGH: Final = 10
"""New turns that are looked through without waiting for more."""
_MOST_WRITTEN: Final = 1500
"""Tokens of an answer."""
_SYSTEM: Final = f"""\
You look for lasting facts in what people and an assistant have said to each other.
Answer with one JSON object and nothing else:
{{"facts": [{FORM}]}}
{RULES}"""


class SaidInSpace(Struct, frozen=True):
    """What was said in one space: by and to a person in private, or, if `person` is empty, in front of others."""

    person: str
    lines: tuple[LearnableEntry, ...]


def spaces_of(lines: Sequence[LearnableEntry]) -> list[SaidInSpace]:
    """The spaces in which a person said anything from which may be learned."""
    spaces = defaultdict[str, list[LearnableEntry]](list)
    for one in lines:
        if one.learn:
            spaces[one.person if one.private else ""].append(one)
    return [
        SaidInSpace(person, tuple(told))
        for person, told in spaces.items()
        if any(one.role == "user" and one.person and words_of(one) for one in told)
    ]


def request_for(space: SaidInSpace, deadline: float = 60.0) -> Request:
    """The request to a model."""
    asked = json.dumps({"conversation": show_entries(space.lines)}, ensure_ascii=False)
    return Request((ChatMessage("user", asked),), system=_SYSTEM, max_tokens=_MOST_WRITTEN, deadline=deadline)


def most_tokens(request: Request) -> int:
    """What a request may cost, at most as far as known."""
    return estimate_tokens(request.system) + sum(estimate_tokens(one.text) for one in request.messages) + _MOST_WRITTEN


def parse_consolidation(answer: str, space: SaidInSpace, owners: Collection[str] = ()) -> tuple[Learned, ...] | str:
    """The facts of a model's answer that stand, or why nothing of it does. `owners`: of the butler."""
    found = read_answer(answer)
    if found is None:
        return "the answer is not a JSON object"
    facts = found.get("facts")
    if not isinstance(facts, list):
        return "facts is not a list"
    if len(facts) > MAX_FACTS:
        return f"the answer states {len(facts)} facts, and may state {MAX_FACTS}"
    shown = {one.position for one in space.lines}
    cited = [one.get("entry") if isinstance(one, dict) else None for one in facts]
    if unknown := [one for one in cited if type(one) is not int or one not in shown]:
        named = unknown[0] if type(unknown[0]) is int else "without a number"
        return f"the answer cites an entry that it was not shown: {named}"
    return parse_facts(facts, space.lines, owners)
