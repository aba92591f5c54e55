"""The terms of facts, by which they are found: made when facts are kept, or later for those that have none.

`facts.py` gives them to the statement that keeps facts; `app/memory/indexing.py` reads those that wait for it. Next:
`search.py`.
"""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID

from msgspec import Struct

from switchboard.core.memory.notes import is_of_safety
from switchboard.core.memory.predicates import find_predicate
from switchboard.core.memory.settling import SELF
from switchboard.core.memory.terms import TERMS_VERSION, TextTerms, read_terms
from switchboard.core.text.storable import to_storable_json
from switchboard.domain.json_values import JsonObject
from switchboard.store.database import Database, query, rows_as


class UnreadFact(Struct, frozen=True):
    """A fact that is not found by its words yet."""

    fact_id: UUID
    subject: str
    text: str
    predicate: str


def searched_text(subject: str, text: str) -> str:
    """What of a fact is searched."""
    return text if subject == SELF else f"{subject}: {text}"


def reading_by(languages: Collection[str]) -> str:
    """How texts are read with these languages, as the table has it."""
    return " ".join((str(TERMS_VERSION), *sorted({*languages})))


async def languages_of(database: Database) -> tuple[str, ...]:
    """The languages by which facts are read, and questions must be."""
    read_as = await database.value(query("facts.reading"))
    return tuple(read_as.split()[1:])


async def change_languages(database: Database, languages: Collection[str]) -> bool:
    """Have all facts read again by these languages, unless they are read by them already. Whether they are."""
    return bool(await database.value(query("facts.change_reading"), reading_by(languages)))


def terms_row(fact: UnreadFact, languages: Collection[str]) -> JsonObject:
    """What `put_terms` takes of a fact."""
    terms = read_terms(searched_text(fact.subject, fact.text), languages)
    return {
        "fact_id": fact.fact_id,
        "words": len(terms.words),
        "forms": _each_of(terms.words),
        "trigrams": "".join(_each_of(terms.trigrams)),
        "safety": is_of_safety(fact.text, find_predicate(fact.predicate)),
        "read_as": reading_by(languages),
    }


def _each_of(words: tuple[frozenset[str], ...]) -> list[str]:
    return sorted(frozenset[str]().union(*words))


def terms_of_fact(subject: str, text: str, languages: Collection[str]) -> TextTerms:
    """The terms by which a fact is rated."""
    return read_terms(searched_text(subject, text), languages)


async def read_unread(database: Database, limit: int) -> int:
    """Make at most so many facts found by their words that were not; returns how many."""
    facts = rows_as(UnreadFact, await database.rows(query("facts.unread"), limit))
    if facts:
        languages = await languages_of(database)
        rows = [terms_row(one, languages) for one in facts]
        await database.run(query("facts.put_terms"), to_storable_json(rows))
    return len(facts)
