"""Undo what a tool has written: the bytes from before it, if the server has what it wrote.

`write_tools.py` calls it for `calendar_undo`. In: the id of a change; out: a `ProposedWrite`, a write as any other that
can be undone, too. Next: `writes.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from switchboard.domain.json_values import JsonObject
from switchboard.modules.calendar.describing import describe_object
from switchboard.modules.calendar.editing.fields import Guest
from switchboard.modules.calendar.editing.series import read_source
from switchboard.modules.calendar.looking import CalendarRefusal
from switchboard.modules.calendar.write_plans import (
    NotInAccount,
    ProposedWrite,
    ToldPeople,
    WritingIn,
    has_private,
    looking_of,
    propose_writes,
)
from switchboard.modules.calendar.writes import NewWrite, NotedWrite, find_write, is_as_written, writes_of_step
from switchboard.ports.collection_server import ServerObject, find_object

_NO_CHANGE: Final = "nothing was written: there is no such change of the last 30 days"
_NOT_DONE: Final = "nothing was written: this change was not carried out, or is undone already"
_CHANGED: Final = (
    "nothing was written: somebody has changed the event since, or it is undone already; change it as it is wanted now"
)


async def propose_undo(where: WritingIn, change: str) -> ProposedWrite:
    """What the step has written, the last first. Raises CalendarRefusal, NotInAccount if there is no such change."""
    found = await find_write(where.account.store, change)
    if found is None:
        raise NotInAccount(_NO_CHANGE)
    step = await writes_of_step(where.account.store, found.step)
    if not where.account.own and await asyncio.to_thread(_has_private, step):
        raise NotInAccount(_NO_CHANGE)
    reversed_ = [await _reverse_write(where, one) for one in reversed(step)]
    writes = tuple(one for one in reversed_ if one is not None)
    if not writes:
        raise CalendarRefusal(_NOT_DONE)
    return await asyncio.to_thread(_propose_reversed, where, found.short_id, writes)


def _has_private(step: Sequence[NotedWrite]) -> bool:
    return any(has_private(data) for one in step for data in (one.before, one.after))


def _propose_reversed(where: WritingIn, change: str, writes: tuple[NewWrite, ...]) -> ProposedWrite:
    within = looking_of(where.account, where.zone)
    told = [
        f"back to {describe_object(one.after, within)}"
        if one.after
        else f"delete {describe_object(one.before or b'', within)}"
        for one in writes
    ]
    now = [
        describe_object(one.after, within) if one.after else f"deleted: {describe_object(one.before or b'', within)}"
        for one in writes
    ]
    said: JsonObject = {"undone": change, "now": now}
    shown = "\n".join([f"Undo the change {change} in {where.account.name}", *told])
    return propose_writes(where, writes, said, shown, ToldPeople(_guests_of(writes), "medium"))


async def _reverse_write(where: WritingIn, write: NotedWrite) -> NewWrite | None:
    """None: nothing is left of it. Raises CalendarRefusal if somebody else has changed the object since."""
    if write.state in ("failed", "undone"):
        return None
    there = await find_object(where.server, write.url, write.name)
    if write.state != "done" and await _is_there(there, write.before):  # it was not carried out, or is taken back
        return None
    if not await _is_there(there, write.after) and (there is None or there.etag != write.now_etag):
        raise CalendarRefusal(_CHANGED)
    if there is None:
        return NewWrite(write.collection, write.url, write.name, None, "", write.before)
    return NewWrite(write.collection, write.url, write.name, there.data, there.etag, write.before)


async def _is_there(there: ServerObject | None, data: bytes | None) -> bool:
    """Whether the server has this, without anything that somebody has added to it."""
    if there is None or data is None:
        return there is None and data is None
    return await is_as_written(there.data, data)


def _guests_of(writes: tuple[NewWrite, ...]) -> tuple[Guest, ...]:
    sources = [read_source(data) for one in writes for data in (one.before, one.after) if data is not None]
    lines = [line for source in sources for part in source.parts for _, line in part.attendees]
    return tuple(Guest(address) for address in {line.value.lower().removeprefix("mailto:") for line in lines})
