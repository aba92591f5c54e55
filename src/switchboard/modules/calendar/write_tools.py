"""The tools that write calendars: create, change, delete, answer, undo. Each is prepared: what it would do is found out
before anybody is asked, and once more when it is done.

The kernel calls them with the opened module. In: arguments of a model, of which each function makes a `CalendarWrite`;
out: what the model is told, with weekday, time and zone. Next: `write_plans.py` for what a call means, `carrying.py`
for how it is done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from functools import partial, wraps
from typing import Annotated, Final, Literal, Protocol, TypeVar
from zoneinfo import ZoneInfo

from msgspec import Meta, Struct
from msgspec.structs import replace

from switchboard.domain.errors import InvalidInput
from switchboard.domain.json_values import JsonObject
from switchboard.modules.accounts.servers import OpenServer
from switchboard.modules.calendar.carrying import (
    Conflicts,
    WriteCall,
    WritePlan,
    carry_out,
    find_conflicts_now,
    open_account,
    refusal_of,
)
from switchboard.modules.calendar.days import find_asked_zone
from switchboard.modules.calendar.editing.fields import EventEdit, PartStat
from switchboard.modules.calendar.editing.rules import read_repeats
from switchboard.modules.calendar.editing.times import WrittenTime
from switchboard.modules.calendar.guests import resolve_guests
from switchboard.modules.calendar.looking import CalendarAccounts, CalendarRefusal, SeenAccount, as_sentence
from switchboard.modules.calendar.mailed_writes import settle_attendees
from switchboard.modules.calendar.mails import MailQueue
from switchboard.modules.calendar.sending import describe_error
from switchboard.modules.calendar.undoing import propose_undo
from switchboard.modules.calendar.wall_times import read_end, read_start, settle_start
from switchboard.modules.calendar.write_plans import (
    ChangeWish,
    EventWish,
    FoundEvent,
    NotInAccount,
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
from switchboard.ports.collection_server import CollectionServer, ServerError
from switchboard.ports.contact_resolver import ContactResolver
from switchboard.ports.mail_desk import MailDesk
from switchboard.ports.module import ModuleTool, typed_tool
from switchboard.ports.tools import PreparedCall, Risk, ToolOutcome, ToolScope

InvitationAnswer = Literal["accepted", "declined", "tentative"]
Start = Annotated[
    str,
    "Local, as they said it: thursday HH:MM or YYYY-MM-DD HH:MM, with both if they named both; a day for all of it",
    Meta(max_length=60),
]
End = Annotated[str, "How long: 1 h, 90 min; or HH:MM; of days the last one", Meta(max_length=40)]
Zone = Annotated[str, "IANA zone, if not the person's", Meta(max_length=64)]
Title = Annotated[str, Meta(max_length=500)]
Place = Annotated[str, Meta(max_length=500)]
Notes = Annotated[str, Meta(max_length=4000)]
People = Annotated[
    list[Annotated[str, Meta(max_length=254)]], "Names as they said them, or addresses", Meta(max_length=50)
]
Recurs = Annotated[str, "Such as: 2 weeks on mon, wed until 2027-01-31; month 10 times", Meta(max_length=100)]
EventId = Annotated[str, "Its id, as in calendar_query", Meta(min_length=1, max_length=600)]
Which = Annotated[Scope | None, "Needed if it recurs"]

_T = TypeVar("_T")

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

    @property
    def opens(self) -> OpenServer: ...

    @property
    def desk(self) -> MailDesk | None: ...


Propose = Callable[[WritingIn], Awaitable[ProposedWrite]]
"""Raises NotInAccount if it is not there, so that the next account is asked."""


class _Wanted(Struct, frozen=True):
    """A call before its account is known. `note`: what is said beside the answer."""

    propose: Propose
    calendar: str = ""
    conflicts: Conflicts = "suggest"
    note: str = ""


class CalendarWrite(Struct, frozen=True):
    """A call that is prepared, or carried out; `want` reads its arguments, and looks up whom they name."""

    calendar: WritesCalendars
    call: ToolScope
    want: Callable[[], Awaitable[_Wanted]]


_Tool = Callable[..., Awaitable[CalendarWrite]]


def writing_tool(tool: _Tool, *, risk: Risk = "low", core: bool = True) -> ModuleTool:
    """A tool that is carried out, and prepared, as the `CalendarWrite` says that a function makes of its arguments."""

    @wraps(tool)
    async def carry_out_call(*args: object, **given: object) -> JsonObject | ToolOutcome:
        return await _carry_out_write(await tool(*args, **given))

    @wraps(tool)
    async def prepare_call(*args: object, **given: object) -> PreparedCall | ToolOutcome:
        return await _prepare_write(await tool(*args, **given))

    return typed_tool(carry_out_call, prepare=prepare_call, effect="idempotent", risk=risk, ordered=True, core=core)


# The tools ------------------------------------------------------------------------------------------------------------


async def calendar_create(  # noqa: PLR0913 - one parameter per argument of the tool
    calendar: WritesCalendars,
    title: Title,
    start: Start,
    call: ToolScope,
    *,
    end: End = "",
    zone: Zone = "",
    place: Place = "",
    notes: Notes = "",
    invite: People = [],  # noqa: B006 - it is not changed
    repeats: Recurs = "",
    conflicts: Conflicts = "suggest",
    into: Annotated[str, "A calendar, if not the first", Meta(max_length=200)] = "",
) -> CalendarWrite:
    """Put an event into the calendar."""
    times = (start, end, zone)
    texts, rest = (title, place, notes), (invite, repeats, into, conflicts)
    return CalendarWrite(calendar, call, partial(_wanted_event, calendar, call, times, texts, rest))


async def calendar_update(  # noqa: PLR0913 - one parameter per argument of the tool
    calendar: WritesCalendars,
    event: EventId,
    call: ToolScope,
    *,
    scope: Which = None,
    title: Title | None = None,
    start: Start = "",
    end: End = "",
    zone: Zone = "",
    place: Place | None = None,
    notes: Notes | None = None,
    invite: People = [],  # noqa: B006 - it is not changed
    uninvite: People = [],  # noqa: B006 - it is not changed
    conflicts: Conflicts = "suggest",
) -> CalendarWrite:
    """Change an event; what is not given stays."""
    times = (start, end, zone)
    texts, rest = (title, place, notes), (invite, uninvite, conflicts)
    return CalendarWrite(calendar, call, partial(_wanted_change, calendar, call, (event, scope), times, texts, rest))


async def calendar_delete(
    calendar: WritesCalendars, event: EventId, call: ToolScope, *, scope: Which = None
) -> CalendarWrite:
    """Delete an event."""
    return CalendarWrite(calendar, call, partial(_wanted_deletion, event, scope))


async def calendar_respond(
    calendar: WritesCalendars,
    event: EventId,
    answer: InvitationAnswer,
    call: ToolScope,
    *,
    scope: Which = None,
    comment: Annotated[str, "Mailed with it", Meta(max_length=200)] = "",
) -> CalendarWrite:
    """Answer an invitation."""
    return CalendarWrite(calendar, call, partial(_wanted_answer, event, answer, scope, comment))


async def calendar_undo(
    calendar: WritesCalendars,
    change: Annotated[str, "The id of the change, as told when it was made", Meta(min_length=8, max_length=40)],
    call: ToolScope,
) -> CalendarWrite:
    """Undo a change of the last 30 days, if nobody has changed the event since."""
    return CalendarWrite(calendar, call, partial(_wanted_undo, change))


WRITING_TOOLS: Final = (
    writing_tool(calendar_create),
    writing_tool(calendar_update, risk="medium"),
    writing_tool(calendar_delete, risk="medium"),
    writing_tool(calendar_respond, risk="high", core=False),
    writing_tool(calendar_undo, risk="medium", core=False),
)


# What a call wants ----------------------------------------------------------------------------------------------------


_Times = tuple[str, str, str]


async def _wanted_event(
    calendar: WritesCalendars,
    call: ToolScope,
    times: _Times,
    texts: tuple[str, str, str],
    rest: tuple[list[str], str, str, Conflicts],
) -> _Wanted:
    invite, repeats, into, conflicts = rest
    zone = find_asked_zone(times[2].strip() or call.zone)
    start, note = settle_start(_start_of(times, zone), zone)
    end = read_end(times[1], start, zone) if times[1].strip() else None
    guests = await resolve_guests(calendar.contacts, call, invite)
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
    zone = find_asked_zone(times[2].strip() or call.zone)
    start, note = settle_start(_start_of(times, zone), zone) if times[0].strip() else (None, "")
    guests = await resolve_guests(calendar.contacts, call, invite)
    leaving = tuple(one.address for one in await resolve_guests(calendar.contacts, call, uninvite))
    end = (lambda begins: read_end(times[1], begins, zone)) if times[1].strip() else None
    wish = ChangeWish(EventEdit(*texts, start, None, guests, leaving), end)

    async def propose(where: WritingIn) -> ProposedWrite:
        return await asyncio.to_thread(propose_change, where, await find_event(where, named[0]), wish, named[1])

    return _Wanted(propose, conflicts=conflicts, note=note)


def _start_of(times: _Times, zone: ZoneInfo) -> WrittenTime:
    return read_start(times[0], datetime.now(UTC).astimezone(zone).date(), zone)


async def _wanted_deletion(event: str, scope: Scope | None) -> _Wanted:
    return _of_event(event, lambda where, found: propose_deletion(where, found, scope))


async def _wanted_answer(event: str, answer: InvitationAnswer, scope: Scope | None, comment: str) -> _Wanted:
    return _of_event(event, lambda where, found: propose_answer(where, found, _ANSWERS[answer], scope, comment.strip()))


def _of_event(event: str, propose: Callable[[WritingIn, FoundEvent], ProposedWrite]) -> _Wanted:
    async def propose_found(where: WritingIn) -> ProposedWrite:
        return await asyncio.to_thread(propose, where, await find_event(where, event))

    return _Wanted(propose_found, conflicts="allow")


async def _wanted_undo(change: str) -> _Wanted:
    return _Wanted(lambda where: propose_undo(where, change), conflicts="allow")


# How it is found out, and done ----------------------------------------------------------------------------------------


async def _prepare_write(wanted: CalendarWrite) -> PreparedCall | ToolOutcome:
    """Changes nothing. A conflict is told at once, rather than after somebody has approved."""
    try:
        accounts = await _accounts_of(wanted)
        if await _find_begun(accounts, wanted.call) is not None:
            return PreparedCall("idempotent", "low", begun=True)
        wish = await wanted.want()
        return await _first_of(_accounts_named(accounts, wish), partial(_prepare_in, wanted, wish))
    except (CalendarRefusal, InvalidInput, ValueError, ServerError) as error:
        return _refusal_of(error)


async def _prepare_in(wanted: CalendarWrite, wish: _Wanted, account: SeenAccount) -> PreparedCall:
    async with open_account(account, wanted.calendar.opens) as server:
        proposal = await _propose_in(wanted, wish, account, server)
        write = _write_call(account, wanted, wish.conflicts)
        found = () if wish.conflicts == "allow" else await find_conflicts_now(write, server, proposal.plan)
        if any(one.certain for one in found):
            raise CalendarRefusal(await refusal_of(write, server, proposal.plan, found))
        return proposal.prepared


async def _carry_out_write(wanted: CalendarWrite) -> JsonObject | ToolOutcome:
    """What was begun is finished, whatever its arguments would mean by now."""
    try:
        accounts = await _accounts_of(wanted)
        if (begun := await _find_begun(accounts, wanted.call)) is not None:
            return await carry_out(_write_call(begun, wanted), _plan_nothing)
        wish = await wanted.want()
        return await _first_of(_accounts_named(accounts, wish), partial(_carry_out_in, wanted, wish))
    except (CalendarRefusal, InvalidInput, ValueError, ServerError) as error:
        return _refusal_of(error)


async def _plan_nothing(_: CollectionServer) -> WritePlan:
    raise CalendarRefusal(_NO_EVENT)


async def _carry_out_in(wanted: CalendarWrite, wish: _Wanted, account: SeenAccount) -> JsonObject:
    async def make_plan(server: CollectionServer) -> WritePlan:
        proposal = await _propose_in(wanted, wish, account, server)
        if objection := wanted.call.objection_to(proposal.prepared):
            raise CalendarRefusal(
                f"nothing was written: {objection}. Call it again, so that it is asked about as it is"
            )
        said = {**proposal.plan.said, "note": wish.note} if wish.note else proposal.plan.said
        return replace(proposal.plan, said=said)

    return await carry_out(_write_call(account, wanted, wish.conflicts), make_plan)


async def _find_begun(accounts: Sequence[SeenAccount], call: ToolScope) -> SeenAccount | None:
    """The account in which an earlier attempt of the call has begun to write."""
    for account in accounts:
        if await writes_of_step(account.store, call.key):
            return account
    return None


async def _first_of(accounts: Sequence[SeenAccount], act: Callable[[SeenAccount], Awaitable[_T]]) -> _T:
    """What comes of the first account that has what is meant. Raises CalendarRefusal with what there is instead."""
    lacking: list[NotInAccount] = []
    for account in accounts:
        try:
            return await act(account)
        except NotInAccount as error:
            lacking.append(error)
    told = next((one.why for one in lacking if one.why), _NO_EVENT)
    names = [name for one in lacking for name in one.there]
    raise CalendarRefusal(f"{told}; there is: {', '.join(names)}" if names else told)


_NO_EVENT: Final = "nothing was written: there is no such event; look for its id with calendar_query"


async def _propose_in(
    wanted: CalendarWrite, wish: _Wanted, account: SeenAccount, server: CollectionServer
) -> ProposedWrite:
    """What it would write, and whom it would mail."""
    desk = wanted.calendar.desk if account.account.sends == "mail" else None
    senders = frozenset(await desk.senders()) if desk is not None else frozenset[str]()
    where = WritingIn(account, server, find_asked_zone(wanted.call.zone), datetime.now(UTC), senders)
    return await settle_attendees(where, await wish.propose(where))


def _write_call(account: SeenAccount, wanted: CalendarWrite, conflicts: Conflicts = "suggest") -> WriteCall:
    call = wanted.call
    made_by = call.reader.person if call.reader is not None else ""
    within = looking_of(account, find_asked_zone(call.zone))
    desk = wanted.calendar.desk if account.account.sends == "mail" else None
    mails = MailQueue(desk, call, account.name) if desk is not None else None
    return WriteCall(account, call.key, made_by, within, wanted.calendar.opens, conflicts, mails)


async def _accounts_of(wanted: CalendarWrite) -> tuple[SeenAccount, ...]:
    """Those into which the call may write, its person's own first."""
    caller = await wanted.calendar.held.seen_by(wanted.call)
    found = tuple(one for one in caller.accounts if one.sight == "all")
    if not found:
        raise CalendarRefusal("nothing was written: no calendar that is seen here is yours or your household's")
    return found


def _accounts_named(accounts: tuple[SeenAccount, ...], wish: _Wanted) -> tuple[SeenAccount, ...]:
    """The one with whose name that of the calendar begins, if there is one."""
    chosen = wish.calendar.strip().partition("/")[0]
    return tuple(one for one in accounts if one.name == chosen) or accounts


def _refusal_of(error: Exception) -> ToolOutcome:
    if isinstance(error, ServerError):
        sentence = describe_error(error)
    else:
        sentence = str(error)
        if not isinstance(error, CalendarRefusal):
            sentence = f"nothing was written: {sentence}"
    return ToolOutcome(as_sentence(sentence), ok=False)
