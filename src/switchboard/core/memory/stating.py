"""What may be kept as a fact in words that no message has: those of a program for its user, or of an operator. Pure.

`turns/memory.py` and `app/memory/service.py` call it. In: words, and what they are about; out: the fact's parts, or
InvalidInput. The filters are those of `extraction.py`. Next: `predicates.py`.
"""

from __future__ import annotations

from switchboard.core.memory.extraction import MAX_SUBJECT, is_unfit
from switchboard.core.memory.guarding import guard_predicate
from switchboard.core.memory.predicates import OTHER, PREDICATES, Predicate, SaidBy, find_predicate, may_be_kept
from switchboard.core.memory.settling import SELF, same_value
from switchboard.core.text.storable import storable_text
from switchboard.core.text.words import near, or_list
from switchboard.domain.errors import InvalidInput
from switchboard.ports.facts import MAX_FACT


def read_statement(text: str, subject: str = SELF) -> str:
    """The text of a fact about this subject. Raises InvalidInput."""
    stated = " ".join(storable_text(text).split())
    if not any(map(str.isalnum, stated)) or len(stated) > MAX_FACT:
        raise InvalidInput(f"a fact has words, and at most {MAX_FACT} characters", field="text")
    if len(subject) > MAX_SUBJECT:
        raise InvalidInput(f"a subject has at most {MAX_SUBJECT} characters", field="subject")
    if is_unfit(stated) or is_unfit(subject):
        raise InvalidInput("questions, hypotheses, instructions and secrets are not kept as facts", field="text")
    return stated


def read_subject(given: str) -> str:
    """Whom or what a fact is about: `self` for who says it, however they put it."""
    said = " ".join(given.split())
    return SELF if same_value(said) in ("", "i", "me", SELF, "ich") else said


def read_predicate(name: str, text: str, said_by: SaidBy) -> Predicate:
    """What a fact says of its subject; its words may decide. Raises InvalidInput, also for what only others may say."""
    named = find_predicate(name)
    if named is OTHER and name != OTHER.name:
        meant = near(name, PREDICATES)
        hint = f"did you mean {or_list(meant)}?" if meant else f"there are {', '.join(PREDICATES)}"
        raise InvalidInput(f"there is no predicate {name!r}; {hint}", field="predicate")
    predicate = guard_predicate(named, text)
    if not may_be_kept(predicate, said_by):
        raise InvalidInput(
            "things of health, belief, children and the like are kept only if whom they are about says them, or an "
            "owner of the butler",
            field="text",
        )
    return predicate
