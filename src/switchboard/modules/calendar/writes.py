"""The ledger of what tools have written, for repeating a step and for undoing, and the lease of who writes now.

`carrying.py` calls it with the store of an account; the statements are in `sql/`. Next: `carrying.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Final, Literal
from uuid import UUID, uuid4, uuid5

from msgspec import Struct, convert

from switchboard.core.text.compared_lines import counted_lines
from switchboard.core.text.content_lines import ContentLine, content_lines
from switchboard.modules.calendar.looking import CalendarRefusal
from switchboard.modules.calendar.mailing.recipients import PlannedMail
from switchboard.modules.calendar.mails import note_mails
from switchboard.ports.module_store import ModuleStore

LEASE: Final = timedelta(seconds=60)
FORGET_EVERY_S: Final = 86_400.0
_PATIENCE_S: Final = 15.0
_AGAIN_S: Final = 0.05

_TAKEN_OVER: Final = (
    "it took too long, and something else writes into these calendars by now; whether this was written is not certain: "
    "look at the calendar before you try again"
)

_OF_SERVERS: Final = frozenset({"CREATED", "DTSTAMP", "LAST-MODIFIED", "PRODID", "SEQUENCE"})
"""What says when something was written, and how often. Google counts by itself."""

WriteState = Literal["started", "done", "failed", "undoing", "undone"]
"""`undoing`: it was carried out, and is being taken back."""


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


async def is_as_written(found: bytes, written: bytes) -> bool:
    """Whether an object has the lines that were written and no others, but for stamps and zones, which servers add."""
    return await asyncio.to_thread(_has_same_lines, found, written)


def _has_same_lines(found: bytes, written: bytes) -> bool:
    return counted_lines(_own_lines(found)) == counted_lines(_own_lines(written))


def _own_lines(data: bytes) -> Iterator[ContentLine]:
    zone = False
    for line in content_lines(data):
        zone = zone or (line.name == "BEGIN" and line.value.upper() == "VTIMEZONE")
        if not zone and line.name not in _OF_SERVERS:
            yield line
        zone = zone and not (line.name == "END" and line.value.upper() == "VTIMEZONE")


class WriteLease(Struct, frozen=True):
    """That of one attempt of a step. All it does raises CalendarRefusal once another attempt has the lease."""

    store: ModuleStore
    step: UUID
    holder: UUID

    async def renew(self) -> None:
        """Before each write."""
        if not await self.store.rows("writes.renew", self.holder, LEASE):
            raise CalendarRefusal(_TAKEN_OVER)

    async def note_writes(
        self, writes: Sequence[NewWrite], said: str, made_by: str, mails: Sequence[PlannedMail] = ()
    ) -> tuple[NotedWrite, ...]:
        """All writes of the step, before the first is sent; those that it has noted before are as they were."""
        async with self.store.transaction() as one:
            if not await one.rows("writes.renew", self.holder, LEASE):
                raise CalendarRefusal(_TAKEN_OVER)
            for place, write in enumerate(writes):
                columns = (write.collection, write.url, write.name, write.before, write.etag, write.after)
                write_id = uuid5(self.step, str(place))
                await one.run("writes.note", write_id, self.step, place, *columns, said, made_by)
            await note_mails(one, self.step, mails, made_by)
        return await writes_of_step(self.store, self.step)

    async def finish_write(self, write: NotedWrite, state: WriteState, etag: str = "", name: str = "") -> None:
        """What became of it; `name`: what the server calls the object, if not as proposed."""
        now = (etag or write.now_etag, self.holder, name or write.name)
        if not await self.store.rows("writes.finish", write.write_id, state, *now):
            raise CalendarRefusal(_TAKEN_OVER)


@asynccontextmanager
async def lease_account(store: ModuleStore, step: UUID) -> AsyncIterator[WriteLease]:
    """Nobody else of us writes into the calendars of the account meanwhile: no other step, and no earlier attempt of
    this one. Raises CalendarRefusal after 15 s.
    """
    lease = WriteLease(store, step, uuid4())
    loop = asyncio.get_running_loop()
    until = loop.time() + _PATIENCE_S
    while not await store.rows("writes.lease", lease.holder, step, LEASE):
        if loop.time() > until:
            raise CalendarRefusal("something else is being written into these calendars; try again in a minute")
        await asyncio.sleep(_AGAIN_S)
    try:
        yield lease
    finally:
        await store.run("writes.release", lease.holder)


async def writes_of_step(store: ModuleStore, step: UUID) -> tuple[NotedWrite, ...]:
    """What a step has noted, in order."""
    return tuple(convert(dict(row), NotedWrite) for row in await store.rows("writes.of_step", step))


async def find_write(store: ModuleStore, named: str) -> NotedWrite | None:
    """The write whose id begins so; None: there is none, or several."""
    wanted = named.strip().lower().replace("-", "")
    rows = await store.rows("writes.find", wanted) if wanted.isalnum() and len(wanted) >= 8 else []
    return convert(dict(rows[0]), NotedWrite) if len(rows) == 1 else None


async def forget_writes(store: ModuleStore) -> None:
    """What is older than 30 days, and messages of which nobody speaks any more."""
    await store.run("writes.forget")
    await store.run("mails.forget")
