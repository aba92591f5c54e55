"""Who is meant by a handle, a name or half a name: people of the address books, ranked, each with the reason.

Tools call `resolve_contact` for one account, so that nobody is found in another's books. Two who are about as likely
are both told; a guess could send something to the wrong one. Next: `keys.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from switchboard.modules.contacts.cards import Card, card_of
from switchboard.modules.contacts.keys import keys_sought, words_of
from switchboard.ports.module_store import ModuleStore

AS_LIKELY: Final = 0.9
"""Whoever has this part of the best score may be meant as well."""
_MOST: Final = 200
_KEY_SAYS: Final = {"email": "has this e-mail address", "phone": "has this number", "handle": "has this handle"}


class ContactMatch(Struct, frozen=True):
    """Somebody who may be meant: the card `name` of a `collection`, a score of at most 1, and `why`."""

    collection: str
    name: str
    card: Card
    score: float
    why: str


class Resolved(Struct, frozen=True):
    """Who may be meant, the likeliest first. `certain`: the first one is, as nobody else is about as likely."""

    matches: tuple[ContactMatch, ...]

    @property
    def certain(self) -> ContactMatch | None:
        """Whom a tool may write to without asking; None: nobody, or more than one."""
        if len(self.likely) != 1:
            return None
        return self.matches[0]

    @property
    def likely(self) -> tuple[ContactMatch, ...]:
        """The first one, and those within a tenth of it."""
        return tuple(one for one in self.matches if one.score >= self.matches[0].score * AS_LIKELY)


async def resolve_contact(store: ModuleStore, text: str, region: str = "") -> Resolved:
    """Look for somebody in the books of an account. `region`: the country of numbers without its code."""
    keys, words = keys_sought(text, region), words_of(text)
    patterns = [f"% {word}%" for word in words]
    rows = await store.rows("people.candidates", keys, patterns, _MOST)
    found = (
        _match_of(row["collection"], row["name"], card_of(row["data"]), frozenset(row["keys"]), words) for row in rows
    )
    return Resolved(rank_matches(one for one in found if not one.card.group))


def rank_matches(found: Iterable[ContactMatch]) -> tuple[ContactMatch, ...]:
    """The likeliest first; those who are equally likely by name, always in one order."""
    return tuple(sorted(found, key=lambda one: (-one.score, one.card.name.casefold(), one.collection, one.name)))


def _match_of(collection: str, name: str, card: Card, keys: frozenset[str], words: tuple[str, ...]) -> ContactMatch:
    score, why = score_of_keys(keys) or score_of_words(card, words)
    return ContactMatch(collection, name, card, score, why)


def score_of_keys(keys: frozenset[str]) -> tuple[float, str] | None:
    """An address says more than a number, which a household may share, and that more than a name on some platform."""
    for kind, score in (("email", 1.0), ("phone", 0.98), ("handle", 0.96)):
        if any(key.startswith(f"{kind} ") for key in keys):
            return score, _KEY_SAYS[kind]
    return None


def score_of_words(card: Card, words: tuple[str, ...]) -> tuple[float, str]:
    """How well words fit a card that has them all: a whole name better than a part, that better than its beginning."""
    full, parts = words_of(card.name), words_of(f"{card.given} {card.family} {card.name}")
    nicknames = [words_of(one) for one in card.nicknames]
    if sorted(words) == sorted(full) or words == words_of(f"{card.given} {card.family}"):
        return 0.95, "is called so"
    if words in nicknames:
        return 0.9, "has this nickname"
    if set(words) <= set(parts):
        return 0.8, "has this as a part of the name"
    if all(any(part.startswith(word) for part in parts) for word in words):
        return 0.6, "has a name that begins so"
    return 0.4, "is of an organisation that is called so, or has a nickname that begins so"
