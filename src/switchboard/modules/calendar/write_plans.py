"""What a call would write, found out before anybody is asked and again when it is done: events, their bytes, the risk.

`write_tools.py` calls it with the arguments of a model. In: the accounts that the call sees, and the server as it is
now; out: a `ProposedWrite`. Refused is what cannot be right: the past, a weekday that does not fit, a series without a
scope, invitations that nobody would send, events of others. Next: `carrying.py`, which carries it out.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from hashlib import sha256
from typing import Final, Literal
from uuid import UUID, uuid5
from zoneinfo import ZoneInfo

from msgspec import Struct
from msgspec.structs import replace

from switchboard.core.text.visible import visible
from switchboard.domain.json_values import JsonObject
from switchboard.modules.calendar.carrying import WritePlan, calendars_of, uids_in
from switchboard.modules.calendar.conflicts import new_times
from switchboard.modules.calendar.describing import (
    LookingCalendar,
    clip_text,
    describe_for,
    describe_part,
    describe_times,
    is_private,
)
from switchboard.modules.calendar.editing.building import NewEvent, build_event
from switchboard.modules.calendar.editing.fields import EditContext, EventEdit, Guest, PartStat
from switchboard.modules.calendar.editing.rules import Repeats, rule_of
from switchboard.modules.calendar.editing.scopes import (
    SplitSeries,
    answer_all,
    answer_this,
    delete_following,
    delete_orphan,
    delete_this,
    edit_all,
    edit_following,
    edit_single,
    edit_this,
)
from switchboard.modules.calendar.editing.series import (
    CalendarSource,
    EventPart,
    Series,
    count_scopes,
    find_date,
    read_source,
    series_of,
)
from switchboard.modules.calendar.editing.times import WrittenTime, ZoneOf, iana_zone, read_time
from switchboard.modules.calendar.looking import CalendarRefusal, SeenAccount
from switchboard.modules.calendar.mailing.composing import OwnAnswer
from switchboard.modules.calendar.mailing.recipients import PlannedMail, reply_to
from switchboard.modules.calendar.occurrences import addresses_of, zone_of_calendar
from switchboard.modules.calendar.writes import NewWrite
from switchboard.modules.calendar.zones import find_event_zone, zones_of
from switchboard.ports.collection_server import (
    CollectionServer,
    ServerCollection,
    ServerObject,
    find_object,
)
from switchboard.ports.tools import PreparedCall, Risk

Scope = Literal["this", "following", "all"]

_HTML: Final = re.compile(r"<\s*[/!]?[A-Za-z][^>]*>")
_MANY: Final = 5
_STAMPS: Final = re.compile(rb"(?m)^(?:DTSTAMP|CREATED|LAST-MODIFIED)[:;][^\r\n]*\r?\n")


class NotInAccount(CalendarRefusal):
    """An account has not what is meant, or cannot write it; another may. `why` is empty if nothing is said of it.

    `there`: the calendars that could be meant.
    """

    def __init__(self, why: str = "", there: Sequence[str] = ()) -> None:
        super().__init__(why)
        self.why = why
        self.there = tuple(there)


class ProposedWrite(Struct, frozen=True):
    """A plan with what a person has to see of it. `reaches`: who is told by the server."""

    plan: WritePlan
    shown: str
    risk: Risk
    why: str = ""
    reaches: tuple[Guest, ...] = ()

    @property
    def prepared(self) -> PreparedCall:
        """With a digest of what is approved: the events as they are now, and as they would be."""
        parts = [self.shown.encode()]
        for one in self.plan.writes:
            parts += [one.collection.encode(), one.name.encode(), one.etag.encode(), _STAMPS.sub(b"", one.after or b"")]
        return PreparedCall("idempotent", self.risk, self.why, self.shown, sha256(b"\0".join(parts)).hexdigest())


class WritingIn(Struct, frozen=True):
    """Where a call writes: an account, its server, the person's zone, and the time of the call.

    `senders`: the addresses by which mails can be sent, in lower case.
    """

    account: SeenAccount
    server: CollectionServer
    zone: ZoneInfo
    now: datetime
    senders: frozenset[str] = frozenset()

    @property
    def own(self) -> frozenset[str]:
        """The addresses of the account's person."""
        return addresses_of(self.account.account)

    @property
    def organizer(self) -> Guest | None:
        """As whom the account invites: where that is mailed, an address by which mails can be sent."""
        account = self.account.account
        known = [one for one in (account.user, *account.addresses) if "@" in one]
        if account.sends == "mail":
            known = [one for one in known if one.strip().lower() in self.senders]
        return Guest(known[0]) if known else None


class EventWish(Struct, frozen=True):
    """What a person wants of a new event."""

    title: str
    start: WrittenTime
    end: WrittenTime | None = None
    place: str = ""
    notes: str = ""
    guests: tuple[Guest, ...] = ()
    repeats: Repeats | None = None
    calendar: str = ""


class ChangeWish(Struct, frozen=True):
    """What a person wants to have changed of an event; its `end` is read once the start is known."""

    edit: EventEdit
    end: Callable[[WrittenTime], WrittenTime] | None = None


class FoundEvent(Struct, frozen=True):
    """An event on the server: `date` is the one of the series that was named; None: the series, or a single event."""

    calendar: ServerCollection
    there: ServerObject
    source: CalendarSource
    series: Series | None
    date: WrittenTime | None
    zone_of: ZoneOf

    @property
    def part(self) -> EventPart:
        """What is meant: a date that was changed by hand, the series, or the event."""
        if self.date is not None:
            for one in self.source.overrides:
                if one.recurrence is not None and self.series and self.series.as_date(one.recurrence) == self.date:
                    return one
        return self.source.master or self.source.overrides[0]

    @property
    def start(self) -> WrittenTime:
        """When the date that is meant begins."""
        part = self.part
        return self.date if self.date is not None and part.recurrence is None else part.start


# Where ----------------------------------------------------------------------------------------------------------------


async def choose_calendar(where: WritingIn, named: str) -> ServerCollection:
    """The calendar with this name, or the first that can be written to and that nobody else shares.

    Raises NotInAccount and CalendarRefusal.
    """
    every = await calendars_of(where.account, where.server)
    wanted = named.strip().removeprefix(f"{where.account.name}/").casefold()
    found = [one for one in every if not wanted or wanted in (one.name.casefold(), where.account.name)]
    writable = [one for one in found if one.writable is not False]
    if wanted in ("", where.account.name):
        writable = [one for one in writable if not one.shared]
    if not writable:
        there = [f"{where.account.name}/{one.name}" for one in every if one.writable is not False]
        raise NotInAccount(f"nothing was written: there is no calendar {named[:100]!r} to write to", there)
    if wanted and wanted != where.account.name and len(writable) > 1:
        raise CalendarRefusal(f"nothing was written: several calendars are called {named[:100]!r}")
    return writable[0]


async def find_event(where: WritingIn, event: str) -> FoundEvent:
    """The event with an id as `calendar_query` tells it, as the server has it now. Raises CalendarRefusal.

    Raises NotInAccount if it is not there, or private and not the caller's own.
    """
    uid, slash, recurrence = event.strip().rpartition("/")
    for one, date_ in ((event.strip(), ""), (uid, recurrence)) if slash else ((event.strip(), ""),):
        if (found := await _find_uid(where, one)) is not None:
            event_found = await asyncio.to_thread(_read_event, where, *found, date_)
            if where.account.own or not await asyncio.to_thread(has_private, event_found.there.data):
                return event_found
    raise NotInAccount


def has_private(data: bytes | None) -> bool:
    """Whether any date of an object is for the person of its calendar alone."""
    return data is not None and any(is_private(part) for part in read_source(data).parts)


async def _find_uid(where: WritingIn, uid: str) -> tuple[ServerCollection, ServerObject] | None:
    """The mirror says where it is, or the server if it is too new for that."""
    calendars = {one.key: one for one in await calendars_of(where.account, where.server)}
    rows = await where.account.store.rows("objects.of_uid", uid)
    places = [(calendars[row["collection"]], row["name"]) for row in rows if row["collection"] in calendars]
    if not places:
        for one in calendars.values():
            places += [(one, each.name) for each in await where.server.objects_with_uid(one.url, uid)]
    found = [
        (one, there) for one, name in places if (there := await find_object(where.server, one.url, name)) is not None
    ]
    writable = [each for each in found if each[0].writable is not False]
    if len(writable) > 1:
        names = ", ".join(one.name for one, _ in writable)
        raise CalendarRefusal(f"nothing was written: this event stands in several calendars ({names}); change it there")
    if found and not writable:
        raise NotInAccount(f"nothing was written: the calendar {found[0][0].name!r} is read-only")
    return writable[0] if writable else None


def _read_event(where: WritingIn, calendar: ServerCollection, there: ServerObject, recurrence: str) -> FoundEvent:
    source = read_source(there.data)
    zones = zones_of(source.lines, source.root.inner, zone_of_calendar(where.account.account, calendar.zone))

    def zone_of(name: str) -> tzinfo | None:
        if not name:
            return where.zone
        known = find_event_zone(name, zones)
        return None if known.guessed else known.rules

    series = series_of(source, zone_of)
    date_ = None
    if recurrence:
        date_ = find_date(series, recurrence) if series else _orphan_date(source, recurrence)
    return FoundEvent(calendar, there, source, series, date_, zone_of)


def _orphan_date(source: CalendarSource, recurrence: str) -> WrittenTime:
    wanted = read_time(recurrence)
    for one in source.overrides:
        if one.recurrence is not None and wanted.wall == one.recurrence.wall:
            return one.recurrence
    raise CalendarRefusal(f"nothing was written: this event has no date {recurrence[:40]}; look at the calendar")


# New events -----------------------------------------------------------------------------------------------------------


async def propose_event(where: WritingIn, step: UUID, wish: EventWish) -> ProposedWrite:
    """A new event. Raises CalendarRefusal and InvalidInput."""
    _check_texts(wish.title, wish.place, wish.notes)
    if not wish.title.strip():
        raise CalendarRefusal("nothing was written: the event has no title")
    _require_future(where, wish.start, iana_zone)
    _require_sender(where, wish.guests)
    calendar = await choose_calendar(where, wish.calendar)
    end = wish.end or wish.start.later_by(timedelta(days=1) if wish.start.all_day else timedelta(hours=1))
    rule = None if wish.repeats is None else rule_of(wish.repeats, wish.start, iana_zone)
    uid = str(uuid5(step, "event"))
    new = NewEvent(
        uid,
        where.now,
        wish.start,
        end.wall - wish.start.wall,
        wish.title.strip(),
        wish.place.strip(),
        wish.notes.strip(),
        rule,
        where.organizer if wish.guests else None,
        wish.guests,
    )
    data = build_event(new, iana_zone)
    write = NewWrite(calendar.key, calendar.url, f"{uid}.ics", None, "", data)
    when = describe_times(wish.start, end)
    repeats = f", repeated: {rule}" if rule else ""
    said: JsonObject = {
        "created": clip_text(wish.title),
        "when": f"{when}{repeats}",
        "id": uid,
        "calendar": calendar.name,
    }
    head = f"New event in {where.account.name}/{calendar.name}"
    shown = _approval_text(head, (f"“{wish.title}”", f"{when}{repeats}"), wish.place, wish.notes)
    return propose_writes(where, (write,), said, shown, ToldPeople(wish.guests, "low"))


class ToldPeople(Struct, frozen=True):
    """Who is told, and the least risk; `why` if it is high for another reason."""

    guests: tuple[Guest, ...]
    risk: Risk
    why: str = ""


def propose_writes(
    where: WritingIn, writes: tuple[NewWrite, ...], said: JsonObject, shown: str, reach: ToldPeople
) -> ProposedWrite:
    """A plan with the times that must be free. Raises CalendarRefusal if attendees would not be told."""
    guests = _require_sender(where, reach.guests)
    risk, why = reach.risk, reach.why
    if guests and where.account.account.sends == "server":
        mailed = ", ".join(f"{one.name} <{one.address}>" if one.name else one.address for one in guests)
        risk, why, shown = "high", "others are told of it", f"{shown}\nThe server mails: {mailed}"
        said = {**said, "told_by_the_server": [one.address for one in guests]}
    elif where.account.account.group or any(one.collection in where.account.shared for one in writes):
        risk, why = "high", why or "others share this calendar"
    looking = looking_of(where.account, where.zone)
    times = [time for one in writes if one.after for time in new_times(one.before, one.after, where.now, looking)]
    if len(writes) > 1:  # a series that is split: what it was before stands in the second one
        old = set(new_times(None, writes[-1].before or b"", where.now, looking))
        times = [one for one in times if one not in old]
    uids = uids_in([one.before for one in writes] + [one.after for one in writes])
    return ProposedWrite(WritePlan(writes, said, tuple(sorted(times)), uids, bool(guests)), shown, risk, why, guests)


def looking_of(account: SeenAccount, zone: ZoneInfo) -> LookingCalendar:
    """How a person in a zone reads what the server has."""
    return LookingCalendar(zone_of_calendar(account.account, ""), zone, addresses_of(account.account), account.own)


def _require_sender(where: WritingIn, guests: Sequence[Guest]) -> tuple[Guest, ...]:
    """Those of these who are somebody else. Raises CalendarRefusal if nobody would tell them."""
    others = tuple(one for one in guests if one.address.lower() not in where.own)
    if not others:
        return ()
    account = where.account.account
    if account.sends == "nobody":
        raise CalendarRefusal(
            "nothing was written: nobody sends invitations for this account, so that nobody would be told. "
            "Make it without attendees, and have the person tell them"
        )
    if account.sends == "mail" and where.organizer is None:
        raise CalendarRefusal(
            "nothing was written: invitations of this account are mailed, and no e-mail account of this installation "
            f"sends mails as {', '.join(sorted(where.own)) or 'its person'}"
        )
    return others


def _check_texts(*texts: str | None) -> None:
    for one in filter(None, texts):
        if _HTML.search(one):
            raise CalendarRefusal("nothing was written: write plain text, without HTML")
        if visible(one) != one:
            raise CalendarRefusal("nothing was written: the text has invisible characters")


def _require_future(where: WritingIn, start: WrittenTime, zone_of: ZoneOf) -> None:
    if start.all_day:
        past = start.wall.date() < where.now.astimezone(where.zone).date()
    else:
        past = start.instant(zone_of) < where.now
    if past:
        now = where.now.astimezone(where.zone)
        raise CalendarRefusal(
            f"nothing was written: {start.wall:%A %Y-%m-%d %H:%M} is past; it is {now:%A %Y-%m-%d %H:%M} now"
        )


def _approval_text(head: str, lines: Sequence[str], place: str, notes: str) -> str:
    """What others or a model wrote stays within its line, so that it cannot pass for one of ours."""
    told = [head, *lines, *([f"Place: {place}"] if place else [])]
    return "\n".join([*(" ".join(one.split()) for one in told), *(f"| {line}" for line in notes.splitlines())])


# Changes --------------------------------------------------------------------------------------------------------------


def propose_change(where: WritingIn, found: FoundEvent, wish: ChangeWish, scope: Scope | None) -> ProposedWrite:
    """A change of an event, of one date of it, of those that follow, or of all. Raises as `propose_event`.

    Called in a thread, like those below: what others have put into an event is read several times.
    """
    _check_texts(wish.edit.title, wish.edit.place, wish.edit.notes)
    _require_ours(where, found)
    _require_sender(where, wish.edit.invite)
    scope = _require_scope(found, scope)
    begins = _date_of(found, scope) if scope in ("following", "all") else found.start
    edit = _edit_from(wish, begins)
    if edit.start is not None:
        _require_future(where, edit.start, found.zone_of)
    context = _context_of(where, found)
    data = _edit_object(found, edit, scope, context)
    new, old = (data.new, data.old) if isinstance(data, SplitSeries) else (None, data)
    if old == found.there.data:
        raise CalendarRefusal("nothing was written: the event is like that already")
    writes = [NewWrite(*_place_of(found), found.there.data, found.there.etag, old)]
    if isinstance(data, SplitSeries):
        writes.insert(0, NewWrite(found.calendar.key, found.calendar.url, f"{data.uid}.ics", None, "", new))
    told = _told_scope(found, scope)
    changed = _told_changes(found, edit)
    said: JsonObject = {"changed": clip_text(found.part.text("SUMMARY")), **changed, **told}
    if isinstance(data, SplitSeries):
        said["new_id"] = data.uid
    head = f"Change {describe_part(found.part)} in {where.account.name}/{found.calendar.name}"
    shown = _approval_text(head, [f"{name}: {value}" for name, value in (changed | told).items()], "", "")
    return propose_writes(where, tuple(writes), said, shown, _reach_of(found, scope, edit.invite, deletes=False))


def propose_deletion(where: WritingIn, found: FoundEvent, scope: Scope | None) -> ProposedWrite:
    """A deletion, likewise."""
    _require_ours(where, found)
    scope = _require_scope(found, scope)
    context = _context_of(where, found)
    match scope:
        case "this" if found.series is not None:
            data = delete_this(found.series, _date_of(found, scope), context)
        case "this" if found.date is not None:
            data = delete_orphan(found.source, found.date)
        case "following" if found.series is not None:
            data = delete_following(found.series, _date_of(found, scope), context)
        case _:
            data = None
    told = _told_scope(found, scope)
    write = NewWrite(*_place_of(found), found.there.data, found.there.etag, data)
    said: JsonObject = {"deleted": clip_text(found.part.text("SUMMARY")), **told}
    head = f"Delete {describe_part(found.part)} in {where.account.name}/{found.calendar.name}"
    shown = _approval_text(head, [f"{name}: {value}" for name, value in told.items()], "", "")
    return propose_writes(where, (write,), said, shown, _reach_of(found, scope, (), deletes=True))


def propose_answer(
    where: WritingIn, found: FoundEvent, answer: PartStat, scope: Scope | None, comment: str = ""
) -> ProposedWrite:
    """Our answer to an invitation, and nothing else of it. Raises as `propose_event`."""
    _check_texts(comment)
    organizer = found.part.organizer
    if not organizer or organizer in where.own:
        raise CalendarRefusal("nothing was written: this is no invitation by somebody else")
    if found.series is not None and scope is None:
        raise CalendarRefusal(_ask_scope(found, following=False))
    if scope == "following":
        raise CalendarRefusal("nothing was written: an answer is for one date (this) or for all")
    if found.series is not None and scope == "this":
        data = answer_this(found.series, _date_of(found, scope), where.own, answer)
    else:
        data = answer_all(found.source, where.own, answer)
    if data == found.there.data:
        raise CalendarRefusal("nothing was written: that is the answer already")
    write = NewWrite(*_place_of(found), found.there.data, found.there.etag, data)
    told = describe_for(found.part, looking_of(where.account, where.zone))
    said: JsonObject = {"answered": answer.lower(), "event": told}
    shown = _approval_text(f"Answer {answer.lower()} to {describe_part(found.part)}", (), "", comment)
    proposal = propose_writes(where, (write,), said, shown, ToldPeople((Guest(organizer),), "high"))
    mails = _mailed_answer(where, found, data, OwnAnswer(answer, where.now, comment), scope)
    return replace(proposal, plan=replace(proposal.plan, times=(), mails=mails))


def _mailed_answer(
    where: WritingIn, found: FoundEvent, data: bytes, said: OwnAnswer, scope: Scope | None
) -> tuple[PlannedMail, ...]:
    """One message to the organizer, unless the server sends it. Of a series also for its dates, if all are answered."""
    if where.account.account.sends != "mail":
        return ()
    source = read_source(data)
    if source.master is not None and (scope != "this" or found.series is None):
        return (reply_to(source, source.master, where.own, said),)
    dates = [one for one in source.overrides if one.recurrence is not None]
    if scope == "this" and found.series is not None:
        wanted = _date_of(found, scope)
        dates = [one for one in dates if one.recurrence and found.series.as_date(one.recurrence) == wanted]
    return tuple(reply_to(source, one, where.own, said) for one in dates)


def _place_of(found: FoundEvent) -> tuple[str, str, str]:
    return found.calendar.key, found.calendar.url, found.there.name


def _require_ours(where: WritingIn, found: FoundEvent) -> None:
    """Of what others organise nothing but the own answer is changed: their servers would drop it, or refuse."""
    organizers = {one.organizer for one in found.source.parts if one.organizer}
    if organizers and not organizers & where.own:
        raise CalendarRefusal(
            f"nothing was written: {', '.join(sorted(organizers))} organises this, and alone can change or cancel it; "
            "answer it with calendar_respond"
        )


def _context_of(where: WritingIn, found: FoundEvent) -> EditContext:
    return EditContext(where.now.astimezone(UTC), found.zone_of, organizer=where.organizer)


def _require_scope(found: FoundEvent, scope: Scope | None) -> Scope | None:
    """Raises CalendarRefusal for a series without one."""
    if found.series is None:
        return "this" if found.date is not None else None
    if scope is None:
        raise CalendarRefusal(_ask_scope(found))
    return scope


def _ask_scope(found: FoundEvent, *, following: bool = True) -> str:
    counts = count_scopes(found.series, found.date.wall if found.date else None) if found.series else None
    rest = _count_text(counts.following if counts else None)
    middle = f"following ({rest})" if following else ""
    options = ", ".join(filter(None, ["this (1 date)", middle, f"all ({_count_text(counts.all if counts else None)})"]))
    return f"nothing was written: this recurs, so say which dates are meant by scope: {options}; ask if it is not clear"


def _count_text(count: int | None) -> str:
    return "without an end" if count is None else f"{count} dates"


def _date_of(found: FoundEvent, scope: Scope | None) -> WrittenTime:
    """The date that is meant; of all, the first one if none was named. Raises CalendarRefusal."""
    if found.date is not None:
        return found.date
    if scope == "all" and found.series is not None:
        return found.series.start
    raise CalendarRefusal("nothing was written: name the date by its id, as in calendar_query, or use the scope all")


def _edit_from(wish: ChangeWish, begins: WrittenTime) -> EventEdit:
    if wish.end is None:
        return wish.edit
    start = wish.edit.start or begins
    return replace(wish.edit, length=wish.end(start).wall - start.wall)


def _edit_object(found: FoundEvent, edit: EventEdit, scope: Scope | None, context: EditContext) -> SplitSeries | bytes:
    if found.series is None:
        if found.source.master is None and len(found.source.overrides) > 1:
            raise CalendarRefusal("nothing was written: only single dates of this series are known here")
        return edit_single(found.source, edit, context)
    date_ = _date_of(found, scope)
    match scope:
        case "this":
            return edit_this(found.series, date_, edit, context)
        case "following":
            return edit_following(found.series, date_, edit, context)
        case _:
            return edit_all(found.series, date_, edit, context)


def _told_scope(found: FoundEvent, scope: Scope | None) -> JsonObject:
    """How many dates are touched, and the first of them."""
    if found.series is None or scope is None:
        return {}
    counts = count_scopes(found.series, found.date.wall if found.date else None)
    number = {"this": 1, "following": counts.following, "all": counts.all}[scope]
    first = found.series.start if scope == "all" else _date_of(found, scope)
    return {"dates": number if number is not None else "without an end", "first": f"{first.wall:%A %Y-%m-%d}"}


def _told_changes(found: FoundEvent, edit: EventEdit) -> JsonObject:
    told: JsonObject = {name: value for name in ("title", "place", "notes") if (value := edit.text(name)) is not None}
    if edit.start is not None or edit.length is not None:
        start = edit.start or found.start
        length = edit.length if edit.length is not None else found.part.length
        end = length if isinstance(length, WrittenTime) else start.later_by(length)
        told["when"] = describe_times(start, end)
    if edit.invite:
        told["invited"] = ", ".join(f"{one.name} <{one.address}>".strip() for one in edit.invite)
    if edit.uninvite:
        told["uninvited"] = ", ".join(edit.uninvite)
    return told


def _reach_of(found: FoundEvent, scope: Scope | None, new: Sequence[Guest], *, deletes: bool) -> ToldPeople:
    guests = {
        address: Guest(address, clip_text(line.parameter("CN"), 100))
        for part in found.source.parts
        for _, line in part.attendees
        if (address := line.value.lower().removeprefix("mailto:"))
    }
    every = (*guests.values(), *new)
    number = _told_scope(found, scope).get("dates", 1)
    many = isinstance(number, str) or number > _MANY
    if deletes and (many or scope in ("following", "all")):
        return ToldPeople(every, "high", "a series is deleted")
    if many:
        return ToldPeople(every, "high", f"{number} dates are changed")
    return ToldPeople(every, "medium")
