"""The ledger of what tools have written, for repeating a step and for undoing, and the lease of who writes now.

`carrying.py` calls it with the store of an account; the statements are in `sql/`. Next: `carrying.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Final, Literal
from uuid import UUID, uuid5

from msgspec import Struct, convert

from switchboard.modules.calendar.looking import CalendarRefusal
from switchboard.ports.module_store import ModuleStore

LEASE: Final = timedelta(seconds=60)
FORGET_EVERY_S: Final = 86_400.0
_PATIENCE_S: Final = 15.0
_AGAIN_S: Final = 0.05

WriteState = Literal["started", "done", "failed", "undone"]


class NewWrite(Struct, frozen=True):
    """One object that is to be written. `before` and `after` are its bytes; None: it is not there. `etag`: before."""

    collection: str
    url: str
    name: str
    before: bytes | None
    etag: str
    after: bytes | None


class NotedWrite(NewWrite, frozen=True):
    """The same in the ledger. `said` is the answer of its step, as JSON; `now_etag` what the write made."""

    write_id: UUID
    step: UUID
    now_etag: str
    state: WriteState
    said: str
    made_at: datetime

    @property
    def short_id(self) -> str:
        """What people and models call it."""
        return self.write_id.hex[:12]


@asynccontextmanager
async def lease_account(store: ModuleStore, holder: UUID) -> AsyncIterator[None]:
    """Nobody else of us writes into the calendars of the account meanwhile. Raises CalendarRefusal after 15 s."""
    loop = asyncio.get_running_loop()
    until = loop.time() + _PATIENCE_S
    while not await store.rows("writes.lease", holder, LEASE):
        if loop.time() > until:
            raise CalendarRefusal("something else is being written into these calendars; try again in a minute")
        await asyncio.sleep(_AGAIN_S)
    try:
        yield
    finally:
        await store.run("writes.release", holder)


async def renew_lease(store: ModuleStore, holder: UUID) -> None:
    """Before each write. Raises CalendarRefusal if it was so slow that another has the lease."""
    if not await store.rows("writes.lease", holder, LEASE):
        raise CalendarRefusal("it took too long, and something else is being written; nothing more was; try again")


async def note_writes(
    store: ModuleStore, step: UUID, writes: Sequence[NewWrite], said: str, made_by: str
) -> tuple[NotedWrite, ...]:
    """All writes of a step, before the first is sent; those that the step has noted before are as they were."""
    async with store.transaction() as one:
        for place, write in enumerate(writes):
            columns = (write.collection, write.url, write.name, write.before, write.etag, write.after)
            await one.run("writes.note", uuid5(step, str(place)), step, place, *columns, said, made_by)
    return await writes_of_step(store, step)


async def writes_of_step(store: ModuleStore, step: UUID) -> tuple[NotedWrite, ...]:
    """What a step has noted, in order."""
    return tuple(convert(dict(row), NotedWrite) for row in await store.rows("writes.of_step", step))


async def finish_write(store: ModuleStore, write: NotedWrite, state: WriteState, etag: str = "") -> None:
    """What became of it."""
    await store.run("writes.finish", write.write_id, state, etag or write.now_etag)


async def find_write(store: ModuleStore, named: str) -> NotedWrite | None:
    """The write whose id begins so; None: there is none, or several."""
    wanted = named.strip().lower().replace("-", "")
    rows = await store.rows("writes.find", wanted) if wanted.isalnum() and len(wanted) >= 8 else []
    return convert(dict(rows[0]), NotedWrite) if len(rows) == 1 else None


async def forget_writes(store: ModuleStore) -> None:
    """What is older than 30 days."""
    await store.run("writes.forget")
