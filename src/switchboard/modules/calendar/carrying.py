"""Carry out a plan against the server, so that each step is done once, and nobody else's change is lost.

`write_tools.py` calls it. In: an account, the key of the step, and how to make a plan; out: JSON for the model. All is
noted before it is sent (`writes.py`); a step that is repeated sends the same bytes, or tells what has become of them.
The server is asked whether a time is free before the write, and again after it. Next: `sending.py`.
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
from switchboard.domain.errors import ConfigurationError, InvalidInput
from switchboard.domain.json_values import JsonObject
from switchboard.modules.accounts.servers import OpenServer
from switchboard.modules.calendar.conflicts import (
    TimeConflict,
    WantedTime,
    find_conflicts,
    suggest_times,
)
from switchboard.modules.calendar.describing import LookingCalendar
from switchboard.modules.calendar.looking import CalendarRefusal, SeenAccount
from switchboard.modules.calendar.mailing.recipients import PlannedMail
from switchboard.modules.calendar.mails import MailQueue
from switchboard.modules.calendar.sending import WriteAttempt, describe_error, give_up, send_step
from switchboard.modules.calendar.writes import (
    NewWrite,
    NotedWrite,
    lease_account,
    writes_of_step,
)
from switchboard.modules.mirror.kept import collections_in
from switchboard.ports.collection_server import CollectionServer, ServerCollection, ServerError

Conflicts = Literal["suggest", "fail", "allow"]

_DAY: Final = timedelta(days=1)
_TOLD: Final = 5


class WritePlan(Struct, frozen=True):
    """What a call writes. `times` must be free, but for the events `uids`; `others`: the server tells somebody of it.

    `said`: what the model is told once it is done. `mails`: what is mailed then.
    """

    writes: tuple[NewWrite, ...]
    said: JsonObject
    times: tuple[WantedTime, ...] = ()
    uids: frozenset[str] = frozenset()
    others: bool = False
    mails: tuple[PlannedMail, ...] = ()


class WriteCall(Struct, frozen=True):
    """A call: its account, the key of its step, who made it, and what conflicts do. `within`: how objects are read.

    `opens` the account's server. `mails`: where messages to attendees go; None: nowhere.
    """

    account: SeenAccount
    step: UUID
    made_by: str
    within: LookingCalendar
    opens: OpenServer
    conflicts: Conflicts = "suggest"
    mails: MailQueue | None = None

    @property
    def zone(self) -> ZoneInfo:
        """That of the person."""
        return self.within.floating


MakePlan = Callable[[CollectionServer], Awaitable[WritePlan]]


@asynccontextmanager
async def open_account(account: SeenAccount, opens: OpenServer) -> AsyncIterator[CollectionServer]:
    """Raises CalendarRefusal for all that goes wrong with the server."""
    try:
        async with opens(account.name, account.account) as server:
            yield server
    except ConfigurationError as error:
        raise CalendarRefusal(f"nothing was written: {error.message}") from error
    except ServerError as error:
        raise CalendarRefusal(describe_error(error)) from error


async def calendars_of(account: SeenAccount, server: CollectionServer) -> tuple[ServerCollection, ...]:
    """All calendars of an account by the mirror; if nothing is mirrored, its own by the server. Raises ServerError."""
    if mirrored := [one for one in await collections_in(account.store) if not one.missing]:
        return tuple(
            ServerCollection(one.url, one.collection, one.name, one.writable, zone=one.zone, shared=one.shared)
            for one in mirrored
        )
    return tuple(one for one in await server.find_collections() if not one.shared)


async def carry_out(call: WriteCall, make_plan: MakePlan) -> JsonObject:
    """Do what the step is about, or tell what it has done before. Raises CalendarRefusal."""
    store = call.account.store
    async with lease_account(store, call.step) as lease, open_account(call.account, call.opens) as server:
        attempt = WriteAttempt(call.account, server, lease, call.within)
        if noted := await writes_of_step(store, call.step):
            await send_step(attempt, noted, again=True)
            return {**_answer_of(noted), **await _tell_attendees(call)}
        plan = await make_plan(server)
        told = await _require_free(call, server, plan)
        said = msgspec.json.encode({**plan.said, **told}).decode()
        noted = await lease.note_writes(plan.writes, said, call.made_by, plan.mails)
        await send_step(attempt, noted, again=False)
        looked = await _look_again(call, attempt, plan)
        return {**_answer_of(noted), **looked, **await _tell_attendees(call)}


async def _tell_attendees(call: WriteCall) -> JsonObject:
    """Queue the messages of the step. What was written may still be taken back before, and nothing is after."""
    if call.mails is None:
        return {}
    mailed = await call.mails.queue_step(call.account.store, call.step)
    return {"mailed": [*dict.fromkeys(mailed)]} if mailed else {}


def _answer_of(noted: Sequence[NotedWrite]) -> JsonObject:
    said: JsonObject = msgspec.json.decode(noted[0].said, type=dict[str, Any])
    return {**said, "change": noted[-1].short_id}


# Conflicts ------------------------------------------------------------------------------------------------------------


async def find_conflicts_now(call: WriteCall, server: CollectionServer, plan: WritePlan) -> tuple[TimeConflict, ...]:
    """What the server has at those times at this moment, in all calendars of the account. Raises ServerError."""
    if not plan.times:
        return ()
    since, until = plan.times[0].start - _DAY, max(one.end for one in plan.times) + _DAY
    objects = await _read_between(call, server, WantedTime(since, until))
    return await asyncio.to_thread(find_conflicts, objects, plan.times, plan.uids, call.within)


async def _read_between(call: WriteCall, server: CollectionServer, time: WantedTime) -> tuple[bytes, ...]:
    found: list[bytes] = []
    for one in await calendars_of(call.account, server):
        if one.writable is not False and not one.shared:
            found += [each.data for each in await server.objects_between(one.url, time.start, time.end)]
    return tuple(found)


async def _require_free(call: WriteCall, server: CollectionServer, plan: WritePlan) -> JsonObject:
    """What is told beside the answer. Raises CalendarRefusal with what is in the way, and with other times."""
    if call.conflicts == "allow":
        return {}
    found = await find_conflicts_now(call, server, plan)
    if any(one.certain for one in found):
        raise CalendarRefusal(await refusal_of(call, server, plan, found))
    return {"also_then": [_told_conflict(one, call.zone) for one in found[:_TOLD]]} if found else {}


async def refusal_of(call: WriteCall, server: CollectionServer, plan: WritePlan, found: Sequence[TimeConflict]) -> str:
    """What is in the way, and by default three times that are free."""
    sentence = _refusal_without_times(call, found)
    if call.conflicts == "fail":
        return sentence
    wanted = plan.times[0]
    objects = await _read_between(call, server, WantedTime(wanted.start - _DAY, wanted.start + 8 * _DAY))
    free = await asyncio.to_thread(suggest_times, objects, wanted, plan.uids, call.within)
    others = ", ".join(describe_span(one, call.zone) for one in free) or "none within a week"
    return f"{sentence}. Free times: {others}. Ask which one, or repeat it with conflicts=allow if both are meant"


def _refusal_without_times(call: WriteCall, found: Sequence[TimeConflict]) -> str:
    certain = [one for one in found if one.certain]
    told = "; ".join(_told_conflict(one, call.zone) for one in certain[:_TOLD])
    return f"nothing was written, as that time is taken: {told}"


def describe_span(time: WantedTime, zone: ZoneInfo) -> str:
    """With weekday, local time and zone."""
    start, end = time.start.astimezone(zone), time.end.astimezone(zone)
    last = f"{end:%H:%M}" if start.date() == end.date() else f"{end:%Y-%m-%d %H:%M}"
    return f"{start:%A %Y-%m-%d %H:%M}-{last} {zone.key}"


def _told_conflict(one: TimeConflict, zone: ZoneInfo) -> str:
    return f"{one.told}, {describe_span(WantedTime(one.start, one.end), zone)}"


async def _look_again(call: WriteCall, attempt: WriteAttempt, plan: WritePlan) -> JsonObject:
    """Whether another program has taken the time meanwhile; then ours is taken back, unless others were told of it."""
    if call.conflicts == "allow" or not plan.times:
        return {}
    try:
        found = [one for one in await find_conflicts_now(call, attempt.server, plan) if one.certain]
    except (ServerError, InvalidInput) as error:
        return {"not_looked_up": f"whether somebody else has booked the time at that moment ({error})"}
    if not found:
        return {}
    if plan.others:
        raise CalendarRefusal(
            f"it was written, and its attendees were told, but at that moment somebody else has booked the time: "
            f"{_told_conflict(found[0], call.zone)}. Tell the person"
        )
    try:
        refusal = await refusal_of(call, attempt.server, plan, found)
    except (ServerError, InvalidInput):
        refusal = _refusal_without_times(call, found)
    raise await give_up(attempt, refusal)


def uids_in(objects: Collection[bytes | None]) -> frozenset[str]:
    """The UIDs of objects."""
    lines = chain.from_iterable(content_lines(data) for data in objects if data is not None)
    return frozenset(line.value.strip() for line in lines if line.name == "UID")
