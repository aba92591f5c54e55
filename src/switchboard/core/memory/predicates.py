"""What a fact says of its subject, as a closed table: how many values it has, how long it holds, who may see it. Pure.

A model proposes a name; the table decides all that follows from it, so that a small model cannot make an allergy
something that passes. In: a name; out: a `Predicate`. Next: `settling.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, Literal

from msgspec import Struct

Permanence = Literal["permanent", "stable", "passing"]
"""For good; until told otherwise; or until its `valid_to`. None of them hides a fact by its age."""
Sensitivity = Literal["usual", "private", "special"]
"""`private`: money, never sent to a model elsewhere. `special`: health, belief, children and the like, which besides
only the subject, a guardian or an owner may tell, and which no group is shown."""
SaidBy = Literal["subject", "guardian", "owner", "other"]
"""What the author of a fact is to its subject."""


class Predicate(Struct, frozen=True):
    """What is said. `single`: there is one value at a time, so that a new one takes the place of the old one."""

    name: str
    single: bool = False
    permanence: Permanence = "stable"
    sensitivity: Sensitivity = "usual"
    safety: bool = False
    """Whether somebody may come to harm if it is not known: told first."""


OTHER: Final = Predicate("other")
"""All that the table does not have."""

_TABLE: Final = (
    Predicate("name", single=True, permanence="permanent"),
    Predicate("born_on", single=True, permanence="permanent"),
    Predicate("died_on", single=True, permanence="permanent"),
    Predicate("speaks", permanence="permanent"),
    Predicate("lives_at", single=True),
    Predicate("phone", single=True),
    Predicate("email"),
    Predicate("employer", single=True),
    Predicate("job"),
    Predicate("married_to", single=True),
    Predicate("related_to", permanence="permanent"),
    Predicate("knows"),
    Predicate("member_of"),
    Predicate("do_not_contact", permanence="permanent", safety=True),
    Predicate("likes"),
    Predicate("dislikes"),
    Predicate("prefers"),
    Predicate("diet"),
    Predicate("wants"),
    Predicate("can"),
    Predicate("owns"),
    Predicate("uses"),
    Predicate("has_number"),
    Predicate("size", single=True),
    Predicate("located_in", single=True),
    Predicate("looked_after_by"),
    Predicate("repaired_on"),
    Predicate("expires_on", single=True),
    Predicate("whereabouts", single=True, permanence="passing"),
    Predicate("mood", single=True, permanence="passing"),
    Predicate("plans", permanence="passing"),
    Predicate("appointment", permanence="passing"),
    Predicate("earns", single=True, sensitivity="private"),
    Predicate("bank_account", sensitivity="private"),
    Predicate("owes", sensitivity="private"),
    Predicate("pays", sensitivity="private"),
    Predicate("insured_with", sensitivity="private"),
    Predicate("allergic_to", permanence="permanent", sensitivity="special", safety=True),
    Predicate("does_not_tolerate", permanence="permanent", sensitivity="special", safety=True),
    Predicate("takes_medicine", sensitivity="special", safety=True),
    Predicate("has_condition", permanence="permanent", sensitivity="special", safety=True),
    Predicate("blood_group", single=True, permanence="permanent", sensitivity="special", safety=True),
    Predicate("treated_by", sensitivity="special"),
    Predicate("religion", single=True, sensitivity="special"),
    Predicate("sexuality", single=True, sensitivity="special"),
    Predicate("politics", sensitivity="special"),
    Predicate("trade_union", sensitivity="special"),
    Predicate("biometrics", permanence="permanent", sensitivity="special"),
    Predicate("parent_of", permanence="permanent", sensitivity="special"),
    Predicate("guardian_of", sensitivity="special"),
    Predicate("goes_to_school", single=True, sensitivity="special"),
)
PREDICATES: Final[Mapping[str, Predicate]] = {one.name: one for one in (*_TABLE, OTHER)}
"""By name, in the order in which they are offered to a model."""
_BETWEEN: Final = re.compile(r"[\s_-]+")
_ENTITLED: Final = frozenset[SaidBy]({"subject", "guardian", "owner"})


def find_predicate(name: str) -> Predicate:
    """The predicate that a model has named, as in `lives_at` or `Lives at`; `OTHER` if the table does not have it."""
    return PREDICATES.get(_BETWEEN.sub("_", name.strip()).casefold(), OTHER)


def choose_permanence(predicate: Predicate, proposed: Permanence = "stable") -> Permanence:
    """That of the table; only of what is not in it, that which a model proposes."""
    return proposed if predicate is OTHER else predicate.permanence


def may_be_kept(predicate: Predicate, said_by: SaidBy) -> bool:
    """Whether somebody's words about it are kept."""
    return predicate.sensitivity != "special" or said_by in _ENTITLED


def may_be_shown_to_groups(predicate: Predicate) -> bool:
    """Whether a conversation of several people may be shown it, even if it was said there."""
    return predicate.sensitivity != "special"


def may_leave(predicate: Predicate) -> bool:
    """Whether its text may be sent to a model on another machine for a vector."""
    return predicate.sensitivity == "usual"
