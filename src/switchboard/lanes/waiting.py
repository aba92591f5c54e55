"""Waiting: the holder of its key decides an event that a step waits for.

`Journal.wait` registers the key and parks the item; once decided, the item runs next in its lane, on any free worker.
The first decision stands, one made before the item is parked is kept, and deadlines are by the database's clock. Next:
`store/work/steps.py`.
"""

from __future__ import annotations

from uuid import UUID

from switchboard.domain.errors import Conflict, NotFound
from switchboard.lanes.faults import point
from switchboard.lanes.journal import decided_from_result
from switchboard.lanes.notifier import WORK, Notifier
from switchboard.ports.engine import Decided
from switchboard.store.database import Database
from switchboard.store.work import steps as store


async def resume(database: Database, notifier: Notifier, key: UUID, value: object) -> Decided:
    """Decide the event with this key; returns the decision that stands, which is the first one.

    Raises NotFound for a key that nothing ever waited for, Conflict if the item ended without the decision.
    """
    event = await store.decide(database, key, value)
    if event is None:
        raise NotFound(f"nothing waits for {key}")
    if event.result is None:
        raise Conflict(f"what waited for {key} has ended")
    point("after_resume")
    notifier.notify(WORK)
    return decided_from_result(event.result)
