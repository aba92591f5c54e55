"""Undo what a tool has written: the bytes from before it, if the server has what it wrote.

`write_tools.py` calls it for `calendar_undo`. In: the id of a change; out: a `ProposedWrite`, a write as any other that
can be undone, too. Next: `writes.py`.
"""

from __future__ import annotations

from switchboard.domain.json_values import JsonObject
from switchboard.modules.calendar.describing import describe_object
from switchboard.modules.calendar.editing.fields import Guest
from switchboard.modules.calendar.editing.series import read_source
from switchboard.modules.calendar.looking import CalendarRefusal
from switchboard.modules.calendar.write_plans import ProposedWrite, ToldPeople, WritingIn, propose_writes
from switchboard.modules.calendar.writes import NewWrite, NotedWrite, find_write, writes_of_step
from switchboard.transport.dav.kinds import DavError
from switchboard.transport.dav.reading import DavObject, read_object
from switchboard.transport.dav.writing import has_all_lines


async def propose_undo(where: WritingIn, change: str) -> ProposedWrite | None:
    """All writes of the step, the last first; None: this account has no such change. Raises CalendarRefusal."""
    found = await find_write(where.account.store, change)
    if found is None:
        return None
    step = await writes_of_step(where.account.store, found.step)
    if any(one.state != "done" for one in step):
        raise CalendarRefusal("nothing was written: this change was not completed, or is undone already")
    writes = tuple([await _reverse_write(where, one) for one in reversed(step)])
    told = [
        f"back to {describe_object(one.after)}" if one.after else f"delete {describe_object(one.before or b'')}"
        for one in writes
    ]
    said: JsonObject = {"undone": found.short_id, "now": told}
    shown = "\n".join([f"Undo the change {found.short_id} in {where.account.name}", *told])
    return propose_writes(where, writes, said, shown, ToldPeople(_guests_of(writes), "medium"))


async def _reverse_write(where: WritingIn, write: NotedWrite) -> NewWrite:
    there = await _read_there(where, write)
    changed = CalendarRefusal(
        "nothing was written: somebody has changed the event since; change it as it is wanted now"
    )
    if there is None:
        if write.after is not None:
            raise changed
        return NewWrite(write.collection, write.url, write.name, None, "", write.before)
    if write.after is None or (there.etag != write.now_etag and not has_all_lines(there.data, write.after)):
        raise changed
    return NewWrite(write.collection, write.url, write.name, there.data, there.etag, write.before)


async def _read_there(where: WritingIn, write: NotedWrite) -> DavObject | None:
    try:
        return await read_object(where.client, write.url, write.name)
    except DavError as error:
        if error.state == "missing":
            return None
        raise


def _describe_undoing(write: NewWrite) -> str:
    if write.after is None:
        return f"delete {describe_object(write.before or b'')}"
    return f"back to {describe_object(write.after)}"


def _guests_of(writes: tuple[NewWrite, ...]) -> tuple[Guest, ...]:
    sources = [read_source(data) for one in writes for data in (one.before, one.after) if data is not None]
    lines = [line for source in sources for part in source.parts for _, line in part.attendees]
    return tuple(Guest(address) for address in {line.value.lower().removeprefix("mailto:") for line in lines})
