"""Which of the facts that people have stated still hold, which confirm and which contradict each other. Pure.

What comes out depends on what was said and when, never on the order in which it arrived: an old mail that is imported
today changes nothing that was said since. Whoever stores a fact settles all of its topic again; to undo one is to
settle without it. Models propose predicates and values, and have no say here. In: statements; out: their standing.
Next: `predicates.py`.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from itertools import chain, combinations
from typing import Final
from unicodedata import normalize
from uuid import UUID

from msgspec import Struct

from switchboard.core.memory.predicates import Predicate, SaidBy, find_predicate

SELF: Final = "self"
"""The subject of what people say of themselves."""
_EDGE: Final = " \t\r\n.,;:!"
_ALWAYS: Final = datetime.min.replace(tzinfo=UTC)
_NEVER: Final = datetime.max.replace(tzinfo=UTC)
_MAY_CORRECT: Final = frozenset[SaidBy]({"subject", "owner"})


class FactTopic(Struct, frozen=True):
    """What facts are about that can replace each other. `space`: who may see them."""

    subject: str
    predicate: str
    space: str


class StatedFact(Struct, frozen=True):
    """What one person said once. `said_at` is the time of the message; the period is that of which it was said.

    `denied`: that it is not so.
    """

    fact_id: UUID
    topic: FactTopic
    value: str
    author: str
    said_at: datetime
    said_by: SaidBy = "other"
    denied: bool = False
    valid_from: datetime | None = None
    valid_to: datetime | None = None


class FactStanding(Struct, frozen=True):
    """What became of a statement; it is active if both are None.

    `confirms`: the first one by the same author that says the same, and by which the fact is known; `superseded_by`:
    the fact that first took its place.
    """

    confirms: UUID | None = None
    superseded_by: UUID | None = None


class SettledFacts(Struct, frozen=True):
    """The standing of each statement, and the pairs of active facts that cannot both be true."""

    standings: Mapping[UUID, FactStanding]
    contradictions: frozenset[tuple[UUID, UUID]]
    """The smaller id first."""


def settle_facts(facts: Iterable[StatedFact]) -> SettledFacts:
    """The standing of statements. Topics are independent of each other, so those of one may be settled alone."""
    topics = defaultdict[FactTopic, dict[UUID, StatedFact]](dict)
    for one in facts:
        topics[one.topic][one.fact_id] = one
    settled = [_settle_topic(sorted(of_topic.values(), key=_when_said)) for of_topic in topics.values()]
    return SettledFacts(
        {fact_id: standing for one in settled for fact_id, standing in one.standings.items()},
        frozenset(pair for one in settled for pair in one.contradictions),
    )


def same_value(value: str) -> str:
    """What values have in common that say the same: case, spaces and punctuation at the end make no difference."""
    return " ".join(normalize("NFKC", value).casefold().split()).strip(_EDGE)


def rivals_of(subject: str, predicate: Predicate, value: str) -> UUID:
    """What is the same of all statements that may take the place of this one, confirm or contradict it.

    Statements of several people about themselves have it in common, too: who is meant is found out when they are read.
    """
    shared = "" if predicate.single else same_value(value)
    parts = (same_value(subject), predicate.name, shared)
    return UUID(bytes=sha256(json.dumps(parts).encode()).digest()[:16])


def takes_place_of(newer: StatedFact, older: StatedFact) -> bool:
    """Whether a statement takes the place of another one.

    Only of a predicate with one value at a time, if it was said later, by the same author, the subject or an owner, and
    if its period begins within that of the other one and ends no sooner.
    """
    if newer.topic != older.topic or not find_predicate(newer.topic.predicate).single:
        return False
    if newer.denied or older.denied or same_value(newer.value) == same_value(older.value):
        return False
    entitled = newer.author == older.author or newer.said_by in _MAY_CORRECT
    return entitled and newer.said_at > older.said_at and _succeeds_in_time(newer, older)


def exclude_each_other(one: StatedFact, other: StatedFact) -> bool:
    """Whether two statements cannot both be true of the times for which they were made."""
    if one.topic != other.topic or not _share_time(one, other):
        return False
    if same_value(one.value) == same_value(other.value):
        return one.denied != other.denied
    return find_predicate(one.topic.predicate).single and not (one.denied or other.denied)


def _settle_topic(facts: Sequence[StatedFact]) -> SettledFacts:
    """Of one topic, in the order in which they were said."""
    superseders = _find_superseders(facts)
    heads, head_of = dict[tuple[object, ...], StatedFact](), dict[UUID, UUID]()
    for fact in facts:
        key = (_sameness_of(fact), superseders.get(fact.fact_id))
        head_of[fact.fact_id] = heads.setdefault(key, fact).fact_id
    standings = {fact_id: _standing_of(fact_id, head_of, superseders) for fact_id in head_of}
    active = [head for head in heads.values() if head.fact_id not in superseders]
    return SettledFacts(standings, frozenset(_find_contradictions(active)))


def _find_superseders(facts: Sequence[StatedFact]) -> Mapping[UUID, UUID]:
    """Of each statement that is superseded, the first one that does so."""
    if not (facts and find_predicate(facts[0].topic.predicate).single):
        return {}
    values, found = [same_value(one.value) for one in facts], dict[UUID, UUID]()
    for place, older in enumerate(facts):
        # whoever says each day that they are at home has soon said the same a thousand times
        later = (facts[n] for n in range(place + 1, len(facts)) if values[n] != values[place])
        by = next((one for one in later if takes_place_of(one, older)), None)
        if by is not None:
            found[older.fact_id] = by.fact_id
    return found


def _standing_of(fact_id: UUID, head_of: Mapping[UUID, UUID], superseders: Mapping[UUID, UUID]) -> FactStanding:
    head, by = head_of[fact_id], superseders.get(fact_id)
    return FactStanding(None if head == fact_id else head, None if by is None else head_of[by])


def _find_contradictions(active: Sequence[StatedFact]) -> Iterator[tuple[UUID, UUID]]:
    for one, other in _find_rivals(active):
        if exclude_each_other(one, other):
            yield min(one.fact_id, other.fact_id), max(one.fact_id, other.fact_id)


def _find_rivals(active: Sequence[StatedFact]) -> Iterator[tuple[StatedFact, StatedFact]]:
    """The pairs that may contradict each other: of many values only equal ones, which are few."""
    by_value = defaultdict[str, list[StatedFact]](list)
    for one in active:
        by_value["" if find_predicate(one.topic.predicate).single else same_value(one.value)].append(one)
    return chain.from_iterable(combinations(rivals, 2) for rivals in by_value.values())


def _when_said(fact: StatedFact) -> tuple[datetime, UUID]:
    return fact.said_at, fact.fact_id


def _sameness_of(fact: StatedFact) -> tuple[object, ...]:
    return fact.author, fact.denied, same_value(fact.value), fact.valid_from, fact.valid_to


def _begin_of(fact: StatedFact) -> datetime:
    """Since when it is said to be so: by what has no date, since it was said, unless it is over by then."""
    if fact.valid_from is not None:
        return fact.valid_from
    return _ALWAYS if fact.valid_to is not None and fact.valid_to <= fact.said_at else fact.said_at


def _end_of(fact: StatedFact) -> datetime:
    return fact.valid_to or _NEVER


def _succeeds_in_time(newer: StatedFact, older: StatedFact) -> bool:
    return (older.valid_from or _ALWAYS) <= _begin_of(newer) < _end_of(older) <= _end_of(newer)


def _share_time(one: StatedFact, other: StatedFact) -> bool:
    return max(_begin_of(one), _begin_of(other)) < min(_end_of(one), _end_of(other))
