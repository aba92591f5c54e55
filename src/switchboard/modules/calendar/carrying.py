"""Carry out a plan against the server, so that each step is done once, and nobody else's change is lost.

`write_tools.py` calls it. In: an account, the key of the step, and how to make a plan; out: JSON for the model. All is
noted before it is sent (`writes.py`); a step that is repeated sends the same bytes, or tells what has become of them.
The server is asked whether a time is free before the write, and again after it. Next: `transport/dav/writing.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from itertools import chain
from typing import Any, Final, Literal
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
from msgspec import Struct

from switchboard.core.text.content_lines import content_lines
from switchboard.domain.errors import ConfigurationError
from switchboard.domain.json_values import JsonObject
from switchboard.modules.accounts.logins import read_login
from switchboard.modules.calendar.conflicts import (
    LookingCalendar,
    TimeConflict,
    WantedTime,
    find_conflicts,
    suggest_times,
)
from switchboard.modules.calendar.describing import describe_object
from switchboard.modules.calendar.looking import CalendarRefusal, SeenAccount
from switchboard.modules.calendar.occurrences import CalendarKeeper
from switchboard.modules.calendar.writes import (
    NewWrite,
    NotedWrite,
    finish_write,
    lease_account,
    note_writes,
    renew_lease,
    writes_of_step,
)
from switchboard.modules.mirror.kept import collections_in, forget_object, write_object
from switchboard.transport.dav.client import DavClient, open_dav
from switchboard.transport.dav.discovery import DavCollection, find_collections
from switchboard.transport.dav.kinds import CALDAV, DavError
from switchboard.transport.dav.places import path_of, start_of
from switchboard.transport.dav.ranges import objects_between
from switchboard.transport.dav.reading import DavObject, read_object
from switchboard.transport.dav.writing import create_object, delete_object, has_all_lines, replace_object

Conflicts = Literal["suggest", "fail", "allow"]

_REQUEST_S: Final = 20.0
"""Of one request: less than the lease."""
_DAY: Final = timedelta(days=1)
_TOLD: Final = 5


class WritePlan(Struct, frozen=True):
    """What a call writes. `times` must be free, but for the events `uids`; `others`: somebody is told of it.

    `said`: what the model is told once it is done.
    """

    writes: tuple[NewWrite, ...]
    said: JsonObject
    times: tuple[WantedTime, ...] = ()
    uids: frozenset[str] = frozenset()
    others: bool = False


class WriteCall(Struct, frozen=True):
    """A call: its account, the key of its step, who made it, and what conflicts do. `within`: how objects are read."""

    account: SeenAccount
    step: UUID
    made_by: str
    within: LookingCalendar
    conflicts: Conflicts = "suggest"

    @property
    def zone(self) -> ZoneInfo:
        """That of the person."""
        return self.within.floating


MakePlan = Callable[[DavClient], Awaitable[WritePlan]]


@asynccontextmanager
async def open_account(account: SeenAccount) -> AsyncIterator[DavClient]:
    """Raises CalendarRefusal for all that goes wrong with the server."""
    try:
        async with open_dav(read_login(account.name, account.account), CALDAV, whole=_REQUEST_S) as client:
            yield client
    except ConfigurationError as error:
        raise CalendarRefusal(f"nothing was written: {error.message}") from error
    except DavError as error:
        raise CalendarRefusal(describe_error(error)) from error


def describe_error(error: DavError) -> str:
    """Why something was not written, in a sentence that says what would be right."""
    match error.state:
        case "unknown":
            return f"it is not certain whether it was written ({error}); look at the calendar before you try again"
        case "later":
            return f"nothing was written, as the server cannot be reached now ({error}); try again later"
        case "login" | "login_page":
            return f"nothing was written: the server does not accept the log-in ({error}); an operator must look at it"
        case "forbidden":
            return f"nothing was written: the server does not allow it ({error})"
        case "quota":
            return f"nothing was written: there is no space left on the server ({error})"
        case _:
            return f"nothing was written: {error}"


async def calendars_of(account: SeenAccount, client: DavClient) -> tuple[DavCollection, ...]:
    """All calendars of an account: by the mirror, or by the server if nothing was mirrored yet. Raises DavError."""
    if mirrored := [one for one in await collections_in(account.store) if not one.missing]:
        return tuple(DavCollection(one.url, one.name, one.writable, zone=one.zone) for one in mirrored)
    return await find_collections(client)


def mirrored_path(calendar: DavCollection) -> str:
    """What the mirror knows a calendar by."""
    return path_of(start_of(calendar.url))


async def carry_out(call: WriteCall, make_plan: MakePlan) -> JsonObject:
    """Do what the step is about, or tell what it has done before. Raises CalendarRefusal."""
    store = call.account.store
    async with lease_account(store, call.step), open_account(call.account) as client:
        if noted := await writes_of_step(store, call.step):
            return await _finish_step(call, client, noted)
        plan = await make_plan(client)
        told = await _require_free(call, client, plan)
        said = msgspec.json.encode({**plan.said, **told}).decode()
        noted = await note_writes(store, call.step, plan.writes, said, call.made_by)
        for write in noted:
            await _send_write(call, client, write)
        await _look_again(call, client, plan)
        return _answer_of(noted)


def _answer_of(noted: Sequence[NotedWrite]) -> JsonObject:
    said: JsonObject = msgspec.json.decode(noted[0].said, type=dict[str, Any])
    return {**said, "change": noted[-1].short_id}


# Conflicts ------------------------------------------------------------------------------------------------------------


async def find_conflicts_now(call: WriteCall, client: DavClient, plan: WritePlan) -> tuple[TimeConflict, ...]:
    """What the server has at those times at this moment, in all calendars of the account. Raises DavError."""
    if not plan.times:
        return ()
    since, until = plan.times[0].start - _DAY, max(one.end for one in plan.times) + _DAY
    objects = await _read_between(call, client, WantedTime(since, until))
    return await asyncio.to_thread(find_conflicts, objects, plan.times, plan.uids, call.within)


async def _read_between(call: WriteCall, client: DavClient, time: WantedTime) -> tuple[bytes, ...]:
    found: list[bytes] = []
    for one in await calendars_of(call.account, client):
        if one.writable is not False:
            found += [each.data for each in await objects_between(client, one.url, time.start, time.end)]
    return tuple(found)


async def _require_free(call: WriteCall, client: DavClient, plan: WritePlan) -> JsonObject:
    """What is told beside the answer. Raises CalendarRefusal with what is in the way, and with other times."""
    if call.conflicts == "allow":
        return {}
    found = await find_conflicts_now(call, client, plan)
    if any(one.certain for one in found):
        raise CalendarRefusal(await refusal_of(call, client, plan, found))
    return {"also_then": [_told_conflict(one, call.zone) for one in found[:_TOLD]]} if found else {}


async def refusal_of(call: WriteCall, client: DavClient, plan: WritePlan, found: Sequence[TimeConflict]) -> str:
    """What is in the way, and by default three times that are free."""
    told = "; ".join(_told_conflict(one, call.zone) for one in found[:_TOLD] if one.certain)
    sentence = f"nothing was written, as there is something else then: {told}"
    if call.conflicts == "fail":
        return sentence
    wanted = plan.times[0]
    objects = await _read_between(call, client, WantedTime(wanted.start - _DAY, wanted.start + 8 * _DAY))
    free = await asyncio.to_thread(suggest_times, objects, wanted, plan.uids, call.within)
    others = ", ".join(describe_span(one, call.zone) for one in free) or "none within a week"
    return f"{sentence}. Free are: {others}. Ask which one, or repeat it with conflicts=allow if both are meant"


def describe_span(time: WantedTime, zone: ZoneInfo) -> str:
    """With weekday, local time and zone."""
    start, end = time.start.astimezone(zone), time.end.astimezone(zone)
    last = f"{end:%H:%M}" if start.date() == end.date() else f"{end:%Y-%m-%d %H:%M}"
    return f"{start:%A %Y-%m-%d %H:%M}-{last} {zone.key}"


def _told_conflict(one: TimeConflict, zone: ZoneInfo) -> str:
    return f"“{one.title[:100]}”, {describe_span(WantedTime(one.start, one.end), zone)}"


async def _look_again(call: WriteCall, client: DavClient, plan: WritePlan) -> None:
    """Whether another program has taken the time meanwhile; then ours is taken back, unless others were told of it."""
    if call.conflicts == "allow" or not plan.times:
        return
    found = await find_conflicts_now(call, client, plan)
    if not any(one.certain for one in found):
        return
    if plan.others:
        raise CalendarRefusal(
            f"it was written, and its attendees were told, but at that moment somebody else has booked the time: "
            f"{_told_conflict(found[0], call.zone)}. Tell the person"
        )
    for write in reversed(await writes_of_step(call.account.store, call.step)):
        await take_back(call.account, client, write)
    raise CalendarRefusal(await refusal_of(call, client, plan, found))


# One write ------------------------------------------------------------------------------------------------------------


async def _send_write(call: WriteCall, client: DavClient, write: NotedWrite) -> None:
    """Send it, and put it into the mirror. Raises CalendarRefusal with what is there, if somebody was faster."""
    store = call.account.store
    await renew_lease(store, call.step)
    try:
        etag = await _write_object(call.account, client, write, (write.before, write.etag), write.after)
    except DavError as error:
        if error.state != "unknown":
            await finish_write(store, write, "failed")
        if error.state in ("changed", "missing"):
            raise CalendarRefusal(await _lost_race(call.account, client, write)) from error
        raise
    await finish_write(store, write, "done", etag)


async def _write_object(
    account: SeenAccount,
    client: DavClient,
    write: NewWrite,
    old: tuple[bytes | None, str],
    new: bytes | None,
) -> str:
    """Put `new` in place of `old`, which has an ETag, on the server and in the mirror. Returns the new ETag."""
    before, etag = old
    keeper = CalendarKeeper(account.account)
    if new is None:
        await delete_object(client, write.url, DavObject(write.name, etag, before or b""))
        await forget_object(account.store, write.collection, write.name, keeper)
        return ""
    if before is None:
        written = await create_object(client, write.url, DavObject(write.name, "", new))
    else:
        written = await replace_object(client, write.url, DavObject(write.name, etag, before), new)
    if await _is_mirrored(account, write.collection):
        await write_object(account.store, write.collection, written, etag, keeper)
    return written.etag


async def _is_mirrored(account: SeenAccount, collection: str) -> bool:
    return any(one.collection == collection for one in await collections_in(account.store))


async def _lost_race(account: SeenAccount, client: DavClient, write: NotedWrite) -> str:
    """What is there now, which is put into the mirror."""
    try:
        there = await read_object(client, write.url, write.name)
    except DavError as error:
        if error.state != "missing":
            raise
        await forget_object(account.store, write.collection, write.name, CalendarKeeper(account.account))
        return "nothing was written, as somebody has deleted this event meanwhile; ask whether to create it again"
    if await _is_mirrored(account, write.collection):
        await write_object(account.store, write.collection, there, write.etag, CalendarKeeper(account.account))
    return (
        "nothing was written, as somebody else has changed this event meanwhile. "
        f"There is now: {describe_object(there.data)}. Look at it, and repeat what is still wanted"
    )


async def take_back(account: SeenAccount, client: DavClient, write: NotedWrite) -> None:
    """Undo a write, if nobody has changed the object since. Raises DavError."""
    await _write_object(account, client, write, (write.after, write.now_etag), write.before)
    await finish_write(account.store, write, "undone")


# A step that is repeated ----------------------------------------------------------------------------------------------


async def _finish_step(call: WriteCall, client: DavClient, noted: Sequence[NotedWrite]) -> JsonObject:
    """What was begun is finished; what was done is told again. Raises CalendarRefusal."""
    for write in noted:
        match write.state:
            case "started":
                await _send_again(call, client, write)
            case "failed" | "undone":
                raise CalendarRefusal("this was tried before, and nothing was written; look at the calendar")
            case "done":
                await _require_there(client, write)
    return _answer_of(noted)


async def _send_again(call: WriteCall, client: DavClient, write: NotedWrite) -> None:
    """Send the same bytes, unless the server has them."""
    there = await _find_object(client, write)
    if there is not None and write.after is not None and has_all_lines(there.data, write.after):
        if await _is_mirrored(call.account, write.collection):
            keeper = CalendarKeeper(call.account.account)
            await write_object(call.account.store, write.collection, there, write.etag, keeper)
        await finish_write(call.account.store, write, "done", there.etag)
        return
    await _send_write(call, client, write)


async def _require_there(client: DavClient, write: NotedWrite) -> None:
    if write.after is not None and await _find_object(client, write) is None:
        raise CalendarRefusal(
            "this was written before, and somebody has deleted it since; it is not written again: ask the person"
        )


async def _find_object(client: DavClient, write: NewWrite) -> DavObject | None:
    try:
        return await read_object(client, write.url, write.name)
    except DavError as error:
        if error.state == "missing":
            return None
        raise


def uids_in(objects: Collection[bytes | None]) -> frozenset[str]:
    """The UIDs of objects."""
    lines = chain.from_iterable(content_lines(data) for data in objects if data is not None)
    return frozenset(line.value.strip() for line in lines if line.name == "UID")
