"""Who is meant by a handle, a name or half a name: people of the address books, ranked, each with the reason.

Tools look in each account that the caller may see, so that nobody is found in another's books. Cards are ranked by
what the mirror keeps beside them, and none is read for it. Two who are about as likely are both told; a guess could
send something to the wrong one. One person in two books is one. Next: `keys.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

from msgspec import Struct

from switchboard.modules.contacts.keys import CardWords, card_words, keys_sought, name_digest, words_of
from switchboard.ports.module_store import ModuleStore

AS_LIKELY: Final = 0.9
"""Whoever has this part of the best score may be meant as well."""
MOST_FOUND: Final = 100
"""Cards of an account that are ranked."""
_LAST: Final = "\U0010ffff"
"""After every word that begins in the same way."""
_KEY_SAYS: Final = {"email": "has this e-mail address", "phone": "has this number", "handle": "has this handle"}

CardKey: TypeAlias = tuple[str, str, str]
"""An account, the path of a book, and the name of a card in it."""
_Mark: TypeAlias = tuple[object, ...]


class ContactMatch(Struct, frozen=True):
    """A card of somebody who may be meant: `name` of a `collection`, a score of at most 1, and `why`.

    `keys` are those of its ways.
    """

    account: str
    collection: str
    name: str
    uid: str
    shown: str
    words: CardWords
    score: float
    why: str
    keys: frozenset[str] = frozenset()

    @property
    def key(self) -> CardKey:
        """Which card it is."""
        return self.account, self.collection, self.name


class MatchedPerson(Struct, frozen=True):
    """Somebody who may be meant, with all their cards, the likeliest first."""

    cards: tuple[ContactMatch, ...]

    @property
    def score(self) -> float:
        return self.cards[0].score


class Resolved(Struct, frozen=True):
    """Who may be meant, the likeliest first. `certain`: the first one is, as nobody else is about as likely."""

    people: tuple[MatchedPerson, ...]

    @property
    def certain(self) -> MatchedPerson | None:
        """Whom a tool may write to without asking; None: nobody, or more than one."""
        return self.people[0] if len(self.likely) == 1 else None

    @property
    def likely(self) -> tuple[MatchedPerson, ...]:
        """The first one, and those within a tenth of it."""
        return tuple(one for one in self.people if one.score >= self.people[0].score * AS_LIKELY)


async def find_matches(store: ModuleStore, account: str, text: str, region: str = "") -> tuple[ContactMatch, ...]:
    """Look in the books of an account, the likeliest first. `region`: the country of numbers without its code."""
    return await _find_cards(store, account, keys_sought(text, region), words_of(text))


async def find_by_keys(store: ModuleStore, account: str, keys: Sequence[str]) -> tuple[ContactMatch, ...]:
    """The same for whoever has one of these keys."""
    return await _find_cards(store, account, keys, ())


async def _find_cards(
    store: ModuleStore, account: str, keys: Sequence[str], words: tuple[str, ...]
) -> tuple[ContactMatch, ...]:
    rows = await store.rows("people.candidates", keys, words, _LAST, name_digest(words), MOST_FOUND)
    found = []
    for row in rows:
        own = card_words(row["words"])
        score, why = score_of_keys(row["keys"]) or score_of_words(own, words)
        where = (account, row["collection"], row["name"], row["uid"], row["shown"])
        found.append(ContactMatch(*where, own, score, why, frozenset(row["ways"])))
    return rank_matches(found)


def resolve_matches(found: Iterable[ContactMatch]) -> Resolved:
    """Whom these cards are of."""
    people: list[list[ContactMatch]] = []
    owners: dict[_Mark, list[ContactMatch]] = {}
    for match in rank_matches(found):
        marks = _marks_of(match)
        same = {id(owners[mark]): owners[mark] for mark in marks if mark in owners}
        person = _join_cards(people, [*same.values()])
        person.append(match)
        changed = [match] if len(same) < 2 else person  # those of the others are the first one's now
        owners |= dict.fromkeys((mark for card in changed for mark in _marks_of(card)), person)
    return Resolved(tuple(MatchedPerson(tuple(cards)) for cards in people))


def _join_cards(people: list[list[ContactMatch]], same: Sequence[list[ContactMatch]]) -> list[ContactMatch]:
    """The cards of the first of these, to which those of the others are moved; a new person if there is none."""
    if not same:
        people.append([])
        return people[-1]
    first, *others = same
    for other in others:
        first += other
        people[:] = [one for one in people if one is not other]
    return first


def _marks_of(match: ContactMatch) -> tuple[_Mark, ...]:
    """Cards that share one of these are of one person: two of a UID, the same name, and an address or number.

    A UID alone says nothing: whoever may write into a book can give a card that of another one.
    """
    name = tuple(sorted(match.words.full))
    ways = [key for key in match.keys if key.startswith(("email ", "phone "))]
    of_uid = [("uid", match.uid, same) for same in ([name] if name else []) + ways] if match.uid else []
    return (*of_uid, *((key, name) for key in ways if name))


def rank_matches(found: Iterable[ContactMatch]) -> tuple[ContactMatch, ...]:
    """The likeliest first; those who are equally likely by name, always in one order."""
    return tuple(
        sorted(found, key=lambda one: (-one.score, one.shown.casefold(), one.account, one.collection, one.name))
    )


def score_of_keys(keys: Iterable[str]) -> tuple[float, str] | None:
    """An address says more than a number, which a household may share, and that more than a name on some platform."""
    kinds = {key.partition(" ")[0] for key in keys}
    for kind, score in (("email", 1.0), ("phone", 0.98), ("handle", 0.96)):
        if kind in kinds:
            return score, _KEY_SAYS[kind]
    return None


def score_of_words(card: CardWords, words: tuple[str, ...]) -> tuple[float, str]:
    """How well words fit a card that has them all: a whole name better than a part, that better than its beginning."""
    if sorted(words) == sorted(card.full) or words == card.spoken:
        return 0.95, "is called so"
    if words in card.nicknames:
        return 0.9, "has this nickname"
    if card.parts.issuperset(words):
        return 0.8, "has this as a part of the name"
    if all(any(part.startswith(word) for part in card.parts) for word in words):
        return 0.6, "has a name that begins so"
    return 0.4, "is of an organisation that is called so, or has a nickname that begins so"
