"""Who may be told what, in plain terms: what `visible` and its kin should decide, written down a second time. Pure.

A canary is a word that occurs in one statement only. The oracle knows of each canary who said it, under which account,
where, and in front of whom; links between accounts and persons; and what was forgotten.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from switchboard.core.people.handle import Handle
from switchboard.core.people.readers import person_named
from switchboard.domain.message import Conversation
from switchboard.domain.routing import SystemId
from switchboard.ports.facts import Reader

PERSONS: Final = ("ann", "bob", "cem", "dan")


class Account(Struct, frozen=True, order=True):
    """A sender at an endpoint. `handle`: what it is linked by; `vouched`: whether anybody says that it is theirs."""

    channel: str
    endpoint: str
    sender: str
    handle: tuple[str, str, str]
    vouched: bool = True

    @property
    def author(self) -> str:
        """As stored rows name it; empty for nobody, to whom notices are."""
        return person_named(self.channel, self.endpoint, self.sender) if self.channel else ""

    @property
    def known_as(self) -> Handle:
        """What is linked."""
        return Handle(*self.handle)


class Seat(Struct, frozen=True):
    """From where somebody speaks and listens: an account, in a conversation with a butler."""

    account: Account
    butler: SystemId
    conversation: Conversation
    private: bool
    authentic: bool = True

    @property
    def reader(self) -> Reader:
        """As the code under test has it."""
        return Reader(self.butler, self.conversation, self.account.author, self.private, self.authentic)


class Told(Struct, frozen=True):
    """A fact that should be there, as it was said from a seat."""

    canary: str
    seat: Seat
    special: bool = False
    shared: bool = False
    undone: bool = False
    run: UUID | None = None
    """The consolidation that has found it, if nobody has said it otherwise."""

    @property
    def key(self) -> tuple[object, ...]:
        """Of one key there is one fact."""
        one = self.seat
        return self.canary, one.account.author, one.butler, one.conversation, one.private


class Line(Struct, frozen=True):
    """A canary in a history: `account` said it, or was told it."""

    canary: str
    seat: Seat


@dataclass
class Oracle:
    """What should be known, and to whom."""

    linked: dict[Handle, str] = field(default_factory=dict)
    facts: dict[tuple[object, ...], Told] = field(default_factory=dict)
    switched_off: set[Conversation] = field(default_factory=set)
    """Where nothing is learned."""
    never_learned: set[str] = field(default_factory=set)
    """What was said there: no fact comes of it later on either."""
    lines: set[Line] = field(default_factory=set)
    notes: set[Line] = field(default_factory=set)
    """What is kept with somebody's message, also if no history has it: their and their model's words, the reply."""
    forgotten: set[tuple[str, SystemId, object]] = field(default_factory=set)
    """Canary and butler with an author, or with a handle."""

    # Persons ----------------------------------------------------------------------------------------------------------

    def person_of(self, account: Account) -> str | None:
        """Who an account certainly is."""
        return self.linked.get(account.known_as) if account.vouched else None

    def is_same(self, one: Account, other: Account) -> bool:
        """Whether two accounts are one person's, as far as is known."""
        person = self.person_of(one)
        return one.author == other.author or (person is not None and person == self.person_of(other))

    # Who may hear what ------------------------------------------------------------------------------------------------

    def hears(self, by: Seat, one: Told) -> bool:
        """Whether a fact may be told where this seat is answered."""
        said = one.seat
        if one.undone or not by.authentic or by.butler != said.butler or (one.special and not by.private):
            return False
        if one.shared:
            return True
        if not by.account.author:
            return False
        if not said.private:
            return not by.private and by.conversation == said.conversation
        return by.private and self.is_same(by.account, said.account)

    def heard(self, by: Seat) -> dict[str, bool]:
        """The canaries of all facts that may be told, and whether they are the listener's own."""
        heard = dict[str, bool]()
        for one in self.facts.values():
            if self.hears(by, one):
                own = self.is_same(by.account, one.seat.account)
                heard[one.canary] = own or heard.get(one.canary, False)
        return heard

    def reads(self, by: Seat) -> set[str]:
        """The canaries in the history that may be shown."""
        return {one.canary for one in self.lines if by.authentic and _reads(by, one.seat)}

    def finds(self, by: Seat) -> set[str]:
        """The canaries in what may be searched of all that was said: one's own in private, and what was said here."""
        return {one.canary for one in self.lines if by.authentic and self._finds(by, one.seat)}

    def _finds(self, by: Seat, said: Seat) -> bool:
        if by.butler != said.butler or not by.account.author:
            return False
        if not said.private:
            return by.conversation == said.conversation
        return by.private and self.is_same(by.account, said.account)

    def may_see(self, by: Seat) -> set[str]:
        """All canaries that a turn for this seat may be shown unless it searches."""
        return {*self.heard(by), *self.reads(by)}

    # What happens -----------------------------------------------------------------------------------------------------

    def is_forgotten(self, canary: str, seat: Seat) -> bool:
        """Whether the same was forgotten, of this account, or of another one of the same person."""
        person = self.person_of(seat.account)
        handles = {handle for handle, other in self.linked.items() if other == person}
        return any((canary, seat.butler, one) in self.forgotten for one in (seat.account.author, *handles))

    def learn(self, one: Told) -> bool:
        """A statement. Whether there is a fact of it now."""
        if not one.seat.authentic or one.canary in self.never_learned or self.is_forgotten(one.canary, one.seat):
            return False
        beside = (_shared_key(other) == _shared_key(one) for other in self.facts.values() if other.shared)
        if one.key not in self.facts and any(beside):
            return False
        self.facts[one.key] = replace(self.facts.get(one.key, one), undone=False, run=one.run)
        return True

    def may_share(self, by: Seat, one: Told) -> bool:
        """Whether somebody may let everybody hear a fact."""
        said = one.seat
        return by.authentic and by.butler == said.butler and self.is_same(by.account, said.account)

    def share(self, one: Told) -> None:
        """It is for everybody, unless the same is so already."""
        others = (other for other in self.facts.values() if other.shared)
        if not any(_shared_key(other) == _shared_key(one) for other in others):
            self.facts[one.key] = replace(one, shared=True)

    def forget(self, one: Told) -> int:
        """It goes with what the same person has said in the same words; returns how many facts are gone."""
        gone = [
            other
            for other in self.facts.values()
            if (other.canary, other.seat.butler) == (one.canary, one.seat.butler)
            and self.is_same(other.seat.account, one.seat.account)
        ]
        for other in gone:
            self._drop(other)
        return len(gone)

    def accounts_of(self, person: str, accounts: tuple[Account, ...]) -> set[Account]:
        """What an erasure means: also accounts that prove nothing."""
        return {one for one in accounts if self.linked.get(one.known_as) == person}

    def erase(self, accounts: set[Account]) -> set[str]:
        """All that these have said and were told is gone; returns the canaries of which nothing may be left."""
        gone = [one for one in self.facts.values() if one.seat.account in accounts]
        of_these = self._lines_of(accounts)
        canaries = {one.canary for one in gone} | {one.canary for one in of_these}
        for one in gone:
            self.forget(one)
        self.lines -= of_these
        self.notes -= of_these
        others = {one.canary for one in self.facts.values()} | {one.canary for one in self.lines | self.notes}
        return canaries - others

    def _lines_of(self, accounts: set[Account]) -> set[Line]:
        return {one for one in self.lines | self.notes if one.seat.account in accounts}

    def _drop(self, one: Told) -> None:
        account = one.seat.account
        del self.facts[one.key]
        self.forgotten.add((one.canary, one.seat.butler, account.author))
        if account.vouched:
            self.forgotten.add((one.canary, one.seat.butler, account.known_as))


def _reads(by: Seat, said: Seat) -> bool:
    if (by.butler, by.conversation) != (said.butler, said.conversation):
        return False
    return not said.private or (by.private and by.account.author == said.account.author)


def _shared_key(one: Told) -> tuple[object, ...]:
    return one.canary, one.seat.account.author, one.seat.butler, one.seat.conversation
