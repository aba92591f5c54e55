"""The port by which modules know people: who certainly makes a call, and who else reads its result.

The kernel hands a `PeopleSeen` to modules that have the need `people`; a worker implements it over the persons that
operators have linked. It is asked for each call, so that whoever is unlinked is nobody at once. Next: `module.py`.
"""

from __future__ import annotations

from typing import Final, Protocol

from msgspec import Struct

from switchboard.ports.tools import ToolScope

PEOPLE: Final = "people"
"""The name in the `needs` of a manifest."""


class SeenPerson(Struct, frozen=True):
    """For whom a call is made. It comes from the request context, never from arguments."""

    person: str = ""
    """The id of the person who certainly wrote; empty: nobody is certain, or is linked."""
    groups: frozenset[str] = frozenset()
    """Those of people, of which the person is a member."""
    private: bool = False
    """Whether nobody else reads the result."""
    household: bool = False
    """A call outside a turn that is made for nobody in particular, by a butler's token or by an operator."""


NOBODY_SEEN: Final = SeenPerson()


class PeopleSeen(Protocol):
    """Says for whom a call is made."""

    async def seen_in(self, scope: ToolScope) -> SeenPerson:
        """As operators have linked people at this moment. Raises `Unavailable`."""
        ...


class NobodyKnown:
    """Where no people are known: nobody is certain."""

    async def seen_in(self, scope: ToolScope) -> SeenPerson:  # noqa: ARG002
        """As in the port."""
        return NOBODY_SEEN
