"""Whom and what facts are about: names as people said them, and aliases that an owner has given. Pure.

`agents/turns/memory.py` calls it for the tools of memory. In: the facts that a reader may see, and the aliases of a
butler; out: entities with these facts, and nothing of what has none. Facts keep the words that were said: whose they
are is found out when they are read, so that an alias that ends leaves nothing behind. An alias may have several
entities, and then all of them are found. Next: `settling.py`.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct

from switchboard.core.memory.settling import SELF, same_value
from switchboard.ports.facts import EntityAlias, Fact, KnownEntity

READER: Final = "the person who writes"
"""The name of the entity that a reader is, as long as no operator has named them."""
_OWN_NAMES: Final = frozenset({SELF, "me", "i", "myself", "ich", "you"})
_LEAST: Final = 3
"""Letters with which a name must begin to be found by them."""


class FoundEntity(Struct, frozen=True):
    """An entity that fits a name. `rank`: 0 is the best; `why`: how it fits."""

    entity: KnownEntity
    rank: int
    why: str


def gather_entities(
    facts: Iterable[Fact], aliases: Sequence[EntityAlias], names: Mapping[str, str]
) -> tuple[KnownEntity, ...]:
    """The entities of these facts, in the order of their facts. `names`: of linked persons, by author."""
    meant = defaultdict[str, list[str]](list)
    for one in aliases:
        meant[same_value(one.alias)].append(one.name)
    shown, about = dict[str, str](), defaultdict[str, list[Fact]](list)
    for fact in facts:
        said = _subject_of(fact, names)
        for name in meant.get(same_value(said), (said,)):
            shown.setdefault(same_value(name), name)
            about[same_value(name)].append(fact)
    of_name = defaultdict[str, list[EntityAlias]](list)
    for one in aliases:
        of_name[same_value(one.name)].append(one)
    return tuple(KnownEntity(shown[key], tuple(of_name[key]), tuple(about[key])) for key in shown)


def find_entities(query: str, entities: Iterable[KnownEntity]) -> list[FoundEntity]:
    """Those that the query may mean, the best first."""
    wanted = same_value(query)
    found = [hit for one in entities if (hit := _fit_entity(wanted, one)) is not None] if wanted else []
    return sorted(found, key=lambda hit: hit.rank)


def recall_entities(query: str, entities: Iterable[KnownEntity]) -> list[KnownEntity]:
    """Those that the query names; if it names none, those with its words in their name. Several may have one name."""
    found = [hit for hit in find_entities(query, entities) if hit.rank < _BEGINS]
    named = [hit for hit in found if hit.rank < _PART]
    return [hit.entity for hit in named or found]


_SAME, _ALIAS, _PART, _BEGINS = range(4)


def _fit_entity(wanted: str, entity: KnownEntity) -> FoundEntity | None:
    name = same_value(entity.name)
    if wanted == name or (wanted in _OWN_NAMES and any(one.own and one.subject == SELF for one in entity.facts)):
        return FoundEntity(entity, _SAME, "the same name")
    for alias in entity.also:
        if wanted == same_value(alias.alias):
            return FoundEntity(entity, _ALIAS, f"an alias since {alias.since:%Y-%m-%d}")
    words = {word for one in (name, *(same_value(a.alias) for a in entity.also)) for word in re.findall(r"\w+", one)}
    asked = re.findall(r"\w+", wanted)
    if asked and words.issuperset(asked):
        return FoundEntity(entity, _PART, "a part of the name")
    if len(wanted) >= _LEAST and any(word.startswith(wanted) for word in words):
        return FoundEntity(entity, _BEGINS, "the name begins like it")
    return None


def _subject_of(fact: Fact, names: Mapping[str, str]) -> str:
    if fact.subject != SELF:
        return fact.subject
    return names.get(fact.author, READER if fact.own else fact.author)
