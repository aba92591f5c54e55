"""The tools that write calendars: create, change, delete, answer, undo. Each is prepared: what it would do is found out
before anybody is asked, and once more when it is done.

The kernel calls them with the opened module. In: arguments of a model; out: what it is told, with weekday, time and
zone. Next: `write_plans.py` for what a call means, `carrying.py` for how it is done.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Final, Literal, Protocol
from zoneinfo import ZoneInfo

from msgspec import Meta, Struct

from switchboard.domain.errors import InvalidInput
from switchboard.domain.json_values import JsonObject
from switchboard.modules.calendar.carrying import (
    Conflicts,
    WriteCall,
    WritePlan,
    carry_out,
    describe_error,
    find_conflicts_now,
    open_account,
    refusal_of,
)
from switchboard.modules.calendar.days import find_asked_zone
from switchboard.modules.calendar.editing.fields import EventEdit, PartStat
from switchboard.modules.calendar.editing.rules import read_repeats
from switchboard.modules.calendar.editing.times import WrittenTime
from switchboard.modules.calendar.guests import resolve_guests
from switchboard.modules.calendar.looking import CalendarAccounts, CalendarRefusal, SeenAccount
from switchboard.modules.calendar.undoing import propose_undo
from switchboard.modules.calendar.wall_times import read_end, read_start, require_weekday, settle_start
from switchboard.modules.calendar.write_plans import (
    ChangeWish,
    EventWish,
    FoundEvent,
    ProposedWrite,
    Scope,
    WritingIn,
    find_event,
    looking_of,
    propose_answer,
    propose_change,
    propose_deletion,
    propose_event,
)
from switchboard.modules.calendar.writes import writes_of_step
from switchboard.ports.contact_resolver import ContactResolver
from switchboard.ports.tools import PreparedCall, ToolOutcome, ToolScope
from switchboard.transport.dav.client import DavClient
from switchboard.transport.dav.kinds import DavError

InvitationAnswer = Literal["accepted", "declined", "tentative"]
Start = Annotated[str, "Local: YYYY-MM-DD HH:MM, or YYYY-MM-DD for all day", Meta(max_length=40)]
End = Annotated[str, "Likewise, or HH:MM; of days the last one", Meta(max_length=40)]
Day = Annotated[str, "If they named a weekday", Meta(max_length=12)]
Zone = Annotated[str, "IANA zone, if not the person's", Meta(max_length=64)]
Title = Annotated[str, Meta(max_length=500)]
Place = Annotated[str, Meta(max_length=500)]
Notes = Annotated[str, Meta(max_length=4000)]
People = Annotated[list[Annotated[str, Meta(max_length=254)]], "Addresses, names or contact ids", Meta(max_length=50)]
Recurs = Annotated[str, "Such as: 2 weeks on mon, wed until 2027-01-31; month 10 times", Meta(max_length=100)]
EventId = Annotated[str, "Its id, as in calendar_query", Meta(min_length=1, max_length=600)]
Which = Annotated[Scope | None, "Needed if it recurs"]

_ANSWERS: Final[dict[InvitationAnswer, PartStat]] = {
    "accepted": "ACCEPTED",
    "declined": "DECLINED",
    "tentative": "TENTATIVE",
}


class WritesCalendars(Protocol):
    """What the tools need of the opened module."""

    @property
    def held(self) -> CalendarAccounts: ...

    @property
    def contacts(self) -> ContactResolver | None: ...


Propose = Callable[[WritingIn], Awaitable[ProposedWrite | None]]
"""None: the account has no such event."""


class _Wanted(Struct, frozen=True):
    """A call before its account is known. `note`: what is said beside the answer."""

    propose: Propose
    calendar: str = ""
    conflicts: Conflicts = "suggest"
    note: str = ""


# The tools ------------------------------------------------------------------------------------------------------------


async def calendar_create(  # noqa: PLR0913 - one parameter per argument of the tool
    calendar: WritesCalendars,
    title: Title,
    start: Start,
    call: ToolScope,
    *,
    end: End = "",
    weekday: Day = "",
    zone: Zone = "",
    place: Place = "",
    notes: Notes = "",
    attendees: People = [],  # noqa: B006 - it is not changed
    repeats: Recurs = "",
    conflicts: Conflicts = "suggest",
    into: Annotated[str, "A calendar, if not the first", Meta(max_length=200)] = "",
) -> JsonObject | ToolOutcome:
    """Put an event into the calendar."""
    times = (start, end, weekday, zone)
    texts, rest = (title, place, notes), (attendees, repeats, into, conflicts)
    return await _carry_out_wish(calendar, call, partial(_wanted_event, calendar, call, times, texts, rest))


async def prepare_creation(  # noqa: PLR0913 - one parameter per argument of the tool
    calendar: WritesCalendars,
    title: Title,
    start: Start,
    call: ToolScope,
    *,
    end: End = "",
    weekday: Day = "",
    zone: Zone = "",
    place: Place = "",
    notes: Notes = "",
    attendees: People = [],  # noqa: B006 - it is not changed
    repeats: Recurs = "",
    conflicts: Conflicts = "suggest",
    into: str = "",
) -> PreparedCall | ToolOutcome:
    """What `calendar_create` would do."""
    times = (start, end, weekday, zone)
    texts, rest = (title, place, notes), (attendees, repeats, into, conflicts)
    return await _prepare_wish(calendar, call, partial(_wanted_event, calendar, call, times, texts, rest))


async def calendar_update(  # noqa: PLR0913 - one parameter per argument of the tool
    calendar: WritesCalendars,
    event: EventId,
    call: ToolScope,
    *,
    scope: Which = None,
    title: Title | None = None,
    start: Start = "",
    end: End = "",
    weekday: Day = "",
    zone: Zone = "",
    place: Place | None = None,
    notes: Notes | None = None,
    invite: People = [],  # noqa: B006 - it is not changed
    uninvite: People = [],  # noqa: B006 - it is not changed
    conflicts: Conflicts = "suggest",
) -> JsonObject | ToolOutcome:
    """Change an event; what is not given stays."""
    times = (start, end, weekday, zone)
    texts, rest = (title, place, notes), (invite, uninvite, conflicts)
    return await _carry_out_wish(
        calendar,
        call,
        partial(_wanted_change, calendar, call, (event, scope), times, texts, rest),
    )


async def prepare_change(  # noqa: PLR0913 - one parameter per argument of the tool
    calendar: WritesCalendars,
    event: EventId,
    call: ToolScope,
    *,
    scope: Which = None,
    title: Title | None = None,
    start: Start = "",
    end: End = "",
    weekday: Day = "",
    zone: Zone = "",
    place: Place | None = None,
    notes: Notes | None = None,
    invite: People = [],  # noqa: B006 - it is not changed
    uninvite: People = [],  # noqa: B006 - it is not changed
    conflicts: Conflicts = "suggest",
) -> PreparedCall | ToolOutcome:
    """What `calendar_update` would do."""
    times = (start, end, weekday, zone)
    texts, rest = (title, place, notes), (invite, uninvite, conflicts)
    return await _prepare_wish(
        calendar,
        call,
        partial(_wanted_change, calendar, call, (event, scope), times, texts, rest),
    )


async def calendar_delete(
    calendar: WritesCalendars, event: EventId, call: ToolScope, *, scope: Which = None
) -> JsonObject | ToolOutcome:
    """Delete an event."""
    return await _carry_out_wish(calendar, call, lambda: _wanted_deletion(event, scope))


async def prepare_deletion(
    calendar: WritesCalendars, event: EventId, call: ToolScope, *, scope: Which = None
) -> PreparedCall | ToolOutcome:
    """What `calendar_delete` would do."""
    return await _prepare_wish(calendar, call, lambda: _wanted_deletion(event, scope))


async def calendar_respond(
    calendar: WritesCalendars, event: EventId, answer: InvitationAnswer, call: ToolScope, *, scope: Which = None
) -> JsonObject | ToolOutcome:
    """Answer an invitation."""
    return await _carry_out_wish(calendar, call, lambda: _wanted_answer(event, answer, scope))


async def prepare_answer(
    calendar: WritesCalendars, event: EventId, answer: InvitationAnswer, call: ToolScope, *, scope: Which = None
) -> PreparedCall | ToolOutcome:
    """What `calendar_respond` would do."""
    return await _prepare_wish(calendar, call, lambda: _wanted_answer(event, answer, scope))


async def calendar_undo(
    calendar: WritesCalendars,
    change: Annotated[str, "The id of the change, as told when it was made", Meta(min_length=8, max_length=40)],
    call: ToolScope,
) -> JsonObject | ToolOutcome:
    """Undo a change of the last 30 days, if nobody has changed the event since."""
    return await _carry_out_wish(calendar, call, lambda: _wanted_undo(change))


async def prepare_undo(calendar: WritesCalendars, change: str, call: ToolScope) -> PreparedCall | ToolOutcome:
    """What `calendar_undo` would do."""
    return await _prepare_wish(calendar, call, lambda: _wanted_undo(change))


# What a call wants ----------------------------------------------------------------------------------------------------


_Times = tuple[str, str, str, str]


async def _wanted_event(
    calendar: WritesCalendars,
    call: ToolScope,
    times: _Times,
    texts: tuple[str, str, str],
    rest: tuple[list[str], str, str, Conflicts],
) -> _Wanted:
    attendees, repeats, into, conflicts = rest
    zone = find_asked_zone(times[3].strip() or call.zone)
    start, note = settle_start(_start_of(times, zone), zone)
    end = read_end(times[1], start, zone) if times[1].strip() else None
    guests = await resolve_guests(calendar.contacts, call, attendees)
    recurs = read_repeats(repeats) if repeats.strip() else None
    wish = EventWish(texts[0], start, end, texts[1], texts[2], guests, recurs, into)
    return _Wanted(lambda where: propose_event(where, call.key, wish), into, conflicts, note)


async def _wanted_change(
    calendar: WritesCalendars,
    call: ToolScope,
    named: tuple[str, Scope | None],
    times: _Times,
    texts: tuple[str | None, str | None, str | None],
    rest: tuple[list[str], list[str], Conflicts],
) -> _Wanted:
    invite, uninvite, conflicts = rest
    zone = find_asked_zone(times[3].strip() or call.zone)
    start, note = settle_start(_start_of(times, zone), zone) if times[0].strip() else (None, "")
    if start is None and times[2].strip():
        raise CalendarRefusal("nothing was written: a weekday is given together with a start")
    guests = await resolve_guests(calendar.contacts, call, invite)
    leaving = tuple(one.address for one in await resolve_guests(calendar.contacts, call, uninvite))
    end = (lambda begins: read_end(times[1], begins, zone)) if times[1].strip() else None
    wish = ChangeWish(EventEdit(*texts, start, None, guests, leaving), end)

    async def propose(where: WritingIn) -> ProposedWrite | None:
        found = await find_event(where, named[0])
        return None if found is None else await propose_change(where, found, wish, named[1])

    return _Wanted(propose, conflicts=conflicts, note=note)


def _start_of(times: _Times, zone: ZoneInfo) -> WrittenTime:
    start = read_start(times[0], zone)
    if times[2].strip():
        require_weekday(start.wall.date(), times[2].strip())
    return start


async def _wanted_deletion(event: str, scope: Scope | None) -> _Wanted:
    return _of_event(event, lambda where, found: propose_deletion(where, found, scope))


async def _wanted_answer(event: str, answer: InvitationAnswer, scope: Scope | None) -> _Wanted:
    return _of_event(event, lambda where, found: propose_answer(where, found, _ANSWERS[answer], scope))


def _of_event(event: str, propose: Callable[[WritingIn, FoundEvent], Awaitable[ProposedWrite]]) -> _Wanted:
    async def propose_found(where: WritingIn) -> ProposedWrite | None:
        found = await find_event(where, event)
        return None if found is None else await propose(where, found)

    return _Wanted(propose_found, conflicts="allow")


async def _wanted_undo(change: str) -> _Wanted:
    return _Wanted(lambda where: propose_undo(where, change), conflicts="allow")


# How it is found out, and done ----------------------------------------------------------------------------------------

_NO_EVENT: Final = "nothing was written: there is no such event; look for its id with calendar_query"


async def _prepare_wish(
    calendar: WritesCalendars, call: ToolScope, wanted: Callable[[], Awaitable[_Wanted]]
) -> PreparedCall | ToolOutcome:
    """Changes nothing. A conflict is told at once, rather than after somebody has approved."""
    try:
        wish = await wanted()
        for account in await _accounts_of(calendar, call, wish.calendar):
            if (found := await _prepare_in(account, call, wish)) is not None:
                return found
    except (CalendarRefusal, InvalidInput, ValueError, DavError) as error:
        return _refusal_of(error)
    return _refusal_of(CalendarRefusal(_NO_EVENT))


async def _prepare_in(account: SeenAccount, call: ToolScope, wish: _Wanted) -> PreparedCall | None:
    """None: this account has no such event."""
    if await writes_of_step(account.store, call.key):
        return PreparedCall("idempotent", "low", begun=True)
    async with open_account(account) as client:
        proposal = await wish.propose(_writing_in(account, client, call))
        if proposal is None:
            return None
        write = _write_call(account, call, wish)
        found = () if wish.conflicts == "allow" else await find_conflicts_now(write, client, proposal.plan)
        if any(one.certain for one in found):
            raise CalendarRefusal(await refusal_of(write, client, proposal.plan, found))
        return proposal.prepared


async def _carry_out_wish(
    calendar: WritesCalendars, call: ToolScope, wanted: Callable[[], Awaitable[_Wanted]]
) -> JsonObject | ToolOutcome:
    try:
        wish = await wanted()
        for account in await _accounts_of(calendar, call, wish.calendar):
            if (said := await _carry_out_in(account, call, wish)) is not None:
                return {**said, "note": wish.note} if wish.note else said
    except (CalendarRefusal, InvalidInput, ValueError, DavError) as error:
        return _refusal_of(error)
    return _refusal_of(CalendarRefusal(_NO_EVENT))


async def _carry_out_in(account: SeenAccount, call: ToolScope, wish: _Wanted) -> JsonObject | None:
    """None: this account has no such event."""

    async def make_plan(client: DavClient) -> WritePlan:
        proposal = await wish.propose(_writing_in(account, client, call))
        if proposal is None:
            raise _NotHere
        if objection := call.objection_to(proposal.prepared):
            raise CalendarRefusal(
                f"nothing was written: {objection}. Call it again, so that it is asked about as it is"
            )
        return proposal.plan

    try:
        return await carry_out(_write_call(account, call, wish), make_plan)
    except _NotHere:
        return None


class _NotHere(Exception):
    """The account has no such event."""


def _writing_in(account: SeenAccount, client: DavClient, call: ToolScope) -> WritingIn:
    return WritingIn(account, client, find_asked_zone(call.zone), datetime.now(UTC))


def _write_call(account: SeenAccount, call: ToolScope, wish: _Wanted) -> WriteCall:
    made_by = call.reader.person if call.reader is not None else ""
    within = looking_of(account, find_asked_zone(call.zone))
    return WriteCall(account, call.key, made_by, within, wish.conflicts)


async def _accounts_of(calendar: WritesCalendars, call: ToolScope, named: str) -> tuple[SeenAccount, ...]:
    """Those into which the call may write, its person's own first; of a name, the one that it begins with."""
    caller = await calendar.held.seen_by(call)
    found = tuple(one for one in caller.accounts if one.sight == "all")
    if not found:
        raise CalendarRefusal("nothing was written: no calendar that is seen here is yours or your household's")
    chosen = named.strip().partition("/")[0]
    return tuple(one for one in found if one.name == chosen) or found


def _refusal_of(error: Exception) -> ToolOutcome:
    if isinstance(error, DavError):
        sentence = describe_error(error)
    else:
        sentence = str(error)
        if not isinstance(error, CalendarRefusal):
            sentence = f"nothing was written: {sentence}"
    sentence = sentence.rstrip(".")
    return ToolOutcome(f"{sentence[:1].upper()}{sentence[1:]}.", ok=False)
