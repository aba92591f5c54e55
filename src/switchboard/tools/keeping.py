"""The tools `memory_store_fact`, `memory_store_episode`, `memory_confirm` and `memory_forget`: what is kept on request.

`registry.py` builds them. As with `remember`, a model only quotes, and what is kept is written with the end of the
turn. A note of what happened is the result of its call, which the history keeps with the reply. What is forgotten is
gone at once, and may need an approval if it is much. Next: `core/memory/confirming.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from msgspec.structs import replace

from switchboard.core.memory.confirming import is_confirmed_by
from switchboard.core.memory.predicates import PREDICATES, SaidBy, find_predicate, may_be_kept
from switchboard.core.memory.remembering import NotKept, find_words, told_with
from switchboard.core.memory.settling import SELF, same_value
from switchboard.core.memory.stating import read_subject
from switchboard.core.text.fact_numbers import find_numbered, number_of
from switchboard.core.text.secret_words import has_secret
from switchboard.domain.json_values import JsonMapping
from switchboard.ports.facts import MAX_FACT, Fact, OwnWords, PersonalMemory
from switchboard.ports.tools import PreparedCall, ToolOutcome, ToolScope, ToolSpec
from switchboard.tools.memory_tool import NAME_SCHEMA, NO_NUMBER, NOWHERE, NUMBER_SCHEMA, MemoryTool, read_day, spec_of

MANY: Final = 6
"""From so many facts on, forgetting is of high risk."""
SWITCHED_OFF: Final = "not kept: nothing is learned here until somebody writes /memory on; tell the person"
FORGOTTEN: Final = (
    "not kept: this was forgotten on request, and the same words are not kept again. Tell the person so; in other "
    "words they can state it again."
)
_QUOTE: Final = {
    "type": "string",
    "minLength": 1,
    "maxLength": 1000,
    "description": "Words of the person in this conversation, word for word",
}
_MOST_FORGOTTEN: Final = 50
_NOT_THEIRS: Final = (
    "somebody else said {number}, and it is not about this person: only they or an operator can change it"
)
_NO_DAY: Final = ToolOutcome("not kept: write the day as YYYY-MM-DD, and none for what holds for good", ok=False)
_UNNAMED: Final = ToolOutcome(
    "not kept: the person has not named this subject here, and nothing is remembered of it; use their words for it",
    ok=False,
)
_NO_NOTE: Final = ToolOutcome("not kept: a note has words, and no passwords or other secrets", ok=False)
_SPECIAL: Final = ToolOutcome(
    "not kept: things of health, belief, children and the like are kept if the person they are about says them, or an "
    "owner; tell the person",
    ok=False,
)

MEMORY_STORE_FACT: Final = spec_of(
    "memory_store_fact",
    "Like remember, and also note whom or what the words are about, what they say of it, and until when.",
    {
        "quote": _QUOTE,
        "subject": {**NAME_SCHEMA, "description": "Whom or what it is about; leave it out if it is the person"},
        "predicate": {"type": "string", "enum": [*PREDICATES]},
        "until": {"type": "string", "description": "Last day on which it holds, YYYY-MM-DD"},
    },
    ("quote",),
)
MEMORY_STORE_EPISODE: Final = spec_of(
    "memory_store_episode",
    "Keep a short note of what happened here, in your own words, that history_search finds later: what was agreed, "
    "done or left open. For what the person says of themselves or others, use remember.",
    {"note": {"type": "string", "minLength": 1, "maxLength": MAX_FACT}},
    ("note",),
)
MEMORY_CONFIRM: Final = spec_of(
    "memory_confirm",
    "Note that the person has just said again, or agreed, that something remembered of them still holds.",
    {"number": NUMBER_SCHEMA, "quote": _QUOTE},
    ("number", "quote"),
)
MEMORY_FORGET: Final = ToolSpec(
    "memory_forget",
    "Forget facts for good, only if the person asks for it. It cannot be undone.",
    {
        "type": "object",
        "properties": {
            "numbers": {"type": "array", "items": NUMBER_SCHEMA, "minItems": 1, "maxItems": _MOST_FORGOTTEN}
        },
        "required": ["numbers"],
        "additionalProperties": False,
    },
    "effectful",
)


class MemoryStoreFact(MemoryTool):
    """See the port."""

    spec: Final = MEMORY_STORE_FACT

    async def call(self, arguments: JsonMapping, scope: ToolScope) -> ToolOutcome:
        """Return the words that will be kept, or why they are not."""
        if scope.memory is None:
            return NOWHERE
        subject, predicate = read_subject(arguments.get("subject", "")), find_predicate(arguments.get("predicate", ""))
        by: SaidBy = "subject" if subject == SELF else "owner" if scope.by_owner else "other"
        if not may_be_kept(predicate, by):
            return _SPECIAL
        try:
            until = _end_of_day(arguments.get("until", ""), scope.zone)
        except ValueError:
            return _NO_DAY
        if subject != SELF and not await _is_named(subject, scope.memory):
            return _UNNAMED
        found = await find_own_words(arguments["quote"], scope.memory)
        if isinstance(found, ToolOutcome):
            return found
        kept = replace(found, subject=subject, predicate=predicate.name, until=until, said_by=by)
        return ToolOutcome(f'remembered: "{found.text}"', remembered=(kept,))


class MemoryStoreEpisode(MemoryTool):
    """See the port."""

    spec: Final = MEMORY_STORE_EPISODE

    async def call(self, arguments: JsonMapping, scope: ToolScope) -> ToolOutcome:
        """Return the note, which `history_search` finds by this result, or why it is not kept."""
        note = " ".join(arguments["note"].split())
        if scope.memory is None:
            return NOWHERE
        if not await scope.memory.is_learning():
            return ToolOutcome(SWITCHED_OFF, ok=False)
        if has_secret(note) or not any(map(str.isalnum, note)):
            return _NO_NOTE
        if await scope.memory.is_forgotten([note], 0):
            return ToolOutcome(FORGOTTEN, ok=False)
        return ToolOutcome(f'noted: "{note}"')


class MemoryConfirm(MemoryTool):
    """See the port."""

    spec: Final = MEMORY_CONFIRM

    async def call(self, arguments: JsonMapping, scope: ToolScope) -> ToolOutcome:
        """Return that the fact was confirmed, or why it was not."""
        if scope.memory is None:
            return NOWHERE
        number = arguments["number"].lower()
        fact = find_numbered(await scope.memory.known(), number)
        if fact is None or not fact.own:
            return ToolOutcome(NO_NUMBER.format(number=number), ok=False)
        found = await find_own_words(arguments["quote"], scope.memory)
        if isinstance(found, ToolOutcome):
            return found
        if found.position or not is_confirmed_by(fact.text, found.text):
            return ToolOutcome("not confirmed: quote what the person has just said about it", ok=False)
        again = OwnWords(fact.text, found.position, fact.subject)
        return ToolOutcome(f'confirmed: "{fact.text}"', remembered=(again,))


class MemoryForget(MemoryTool):
    """See the port."""

    spec: Final = MEMORY_FORGET

    async def prepare(self, arguments: JsonMapping, scope: ToolScope) -> PreparedCall | ToolOutcome:
        """What would be forgotten; much of it needs an approval."""
        found = await _find_facts(arguments, scope)
        if isinstance(found, ToolOutcome):
            return found
        shown = "\n".join(f"{number_of(one.fact_id)}: {one.text}" for one in found)
        digest = " ".join(sorted(str(one.fact_id) for one in found))
        return PreparedCall("effectful", "high" if len(found) >= MANY else "low", shown=shown, digest=digest)

    async def call(self, arguments: JsonMapping, scope: ToolScope) -> ToolOutcome:
        """Return how many facts are gone."""
        found = await _find_facts(arguments, scope)
        if isinstance(found, ToolOutcome) or scope.memory is None:
            return found if isinstance(found, ToolOutcome) else NOWHERE
        gone = await scope.memory.forget([one.fact_id for one in found])
        return ToolOutcome(f"forgotten: {gone} fact{'s' * (gone != 1)}, with what said the same")


async def find_own_words(quote: str, memory: PersonalMemory) -> OwnWords | ToolOutcome:
    """The person's words that a model quotes; an outcome says why they are not kept."""
    if not await memory.is_learning():
        return ToolOutcome(SWITCHED_OFF, ok=False)
    found = find_words(quote, memory.said)
    if isinstance(found, NotKept):
        return ToolOutcome(f"not kept: {found.why}", ok=False)
    if await memory.is_forgotten(told_with(found, memory.said), found.position):
        return ToolOutcome(FORGOTTEN, ok=False)
    return found


async def _find_facts(arguments: JsonMapping, scope: ToolScope) -> Sequence[Fact] | ToolOutcome:
    """The facts with these numbers, all of which the person may change; otherwise what is told instead."""
    if scope.memory is None:
        return NOWHERE
    known = await scope.memory.known()
    found = {one.lower(): find_numbered(known, one.lower()) for one in arguments["numbers"]}
    facts = [one for one in found.values() if one is not None]
    missing = next((number for number, one in found.items() if one is None), None)
    if missing is not None:
        return ToolOutcome(NO_NUMBER.format(number=missing), ok=False)
    theirs = await scope.memory.may_change([one.fact_id for one in facts])
    others = next((one for one in facts if one.fact_id not in theirs), None)
    return facts if others is None else ToolOutcome(_NOT_THEIRS.format(number=number_of(others.fact_id)), ok=False)


async def _is_named(subject: str, memory: PersonalMemory) -> bool:
    """Whether the person has written it here, or something is remembered of it: what others write is no subject."""
    wanted = same_value(subject)
    if any(wanted in same_value(one.text) for one in memory.said):
        return True
    names = ((one.name, *(other.alias for other in one.also)) for one in await memory.entities())
    return any(wanted == same_value(name) for known in names for name in known)


def _end_of_day(day: str, zone: str) -> datetime | None:
    if not day:
        return None
    return read_day(day, zone).replace(hour=23, minute=59, second=59)
