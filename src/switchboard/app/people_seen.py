"""Who makes a call of a module's tool: the persons in a worker, as operators have linked them at this moment.

The kernel of the modules hands `WorkerPeople` and `WorkerWriters` to modules that need them. In: the scope of a call;
out: a `SeenPerson`, and who has written where that person has.
Next: `core/people/handle.py`, `journey/people_book.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from msgspec import Struct

from switchboard.core.calls import CALL, NOBODY
from switchboard.core.people.handle import handle_behind
from switchboard.journey.people_book import PeopleBook
from switchboard.ports.people_seen import NOBODY_SEEN, SeenPerson
from switchboard.ports.recent_writers import RecentWriter
from switchboard.ports.tools import ToolScope
from switchboard.store.database import Database
from switchboard.store.people.writers import find_recent

_LATELY: Final = timedelta(days=30)
_CALL_FOR_NOBODY: Final = (f"{CALL}/", f"/{NOBODY}")


class WorkerPeople(Struct, frozen=True):
    """The people of a worker, which looks whether they have changed before it says who somebody is."""

    book: PeopleBook

    async def seen_in(self, scope: ToolScope) -> SeenPerson:
        """As in the port."""
        reader = scope.reader
        if _is_for_nobody(scope):
            return SeenPerson(private=True, household=True)
        if reader is None:
            return NOBODY_SEEN
        handle = handle_behind(reader.person) if reader.authentic and reader.person else None
        if handle is None:
            return SeenPerson(private=reader.private)
        await self.book.refresh()
        known = self.book.people.handles.get(handle)
        if known is None:
            return SeenPerson(private=reader.private)
        return SeenPerson(known.person, frozenset(known.groups), reader.private)


class WorkerWriters(Struct, frozen=True):
    """`RecentWriters` of a worker."""

    people: WorkerPeople
    database: Database

    async def find_writers(self, scope: ToolScope, limit: int) -> Sequence[RecentWriter]:
        """As in the port."""
        seen = await self.people.seen_in(scope)
        if not (seen.person and seen.private):
            return ()
        known = self.people.book.people.handles.items()
        handles = frozenset(handle for handle, one in known if one.person == seen.person)
        return await find_recent(self.database, handles, datetime.now(UTC) - _LATELY, limit)


def _is_for_nobody(scope: ToolScope) -> bool:
    """Whether it is a call outside a turn by a token that stands for no person; nobody else's key looks like this.

    Such a call has no reader, as all that are for nobody in particular.
    """
    if scope.cause != CALL or scope.reader is None:
        return scope.cause == CALL
    begins, ends = _CALL_FOR_NOBODY
    return scope.reader.person.startswith(begins) and scope.reader.person.endswith(ends)
