"""What a write means for attendees where the invitations of an account are mailed, or the server sends them.

`write_tools.py` calls it with what `write_plans.py` proposes. In: a `ProposedWrite`; out: the same with the versions
and marks that its objects need, with the messages, and with whom they reach for whoever approves. Next:
`mailing/recipients.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import tzinfo
from typing import Final

from msgspec.structs import replace

from switchboard.core.mail.written import checked_address
from switchboard.core.text.content_lines import content_lines
from switchboard.modules.calendar.editing.fields import Guest
from switchboard.modules.calendar.editing.series import CalendarSource, EventPart, read_source
from switchboard.modules.calendar.editing.times import ZoneOf
from switchboard.modules.calendar.looking import CalendarRefusal
from switchboard.modules.calendar.mailing.composing import MailMethod
from switchboard.modules.calendar.mailing.recipients import (
    ObjectChange,
    PlannedMail,
    attendees_of,
    mailed_write,
    with_agent,
)
from switchboard.modules.calendar.mails import latest_version
from switchboard.modules.calendar.occurrences import zone_of_calendar
from switchboard.modules.calendar.write_plans import ProposedWrite, WritingIn
from switchboard.modules.calendar.writes import NewWrite
from switchboard.modules.calendar.zones import find_event_zone, zones_of
from switchboard.ports.mail_desk import MAILS_AN_HOUR, MAX_CALENDAR_PART

_WHAT: Final[Mapping[MailMethod, str]] = {"REQUEST": "invitation", "CANCEL": "cancellation", "REPLY": "answer"}


async def settle_attendees(where: WritingIn, proposal: ProposedWrite) -> ProposedWrite:
    """The write as it is carried out. Raises CalendarRefusal if attendees would not be told."""
    match where.account.account.sends:
        case "mail":
            return await _settle_mails(where, proposal)
        case "server":
            writes = await asyncio.to_thread(_told_by_server, where, proposal.plan.writes)
            return replace(proposal, plan=replace(proposal.plan, writes=writes))
        case _:
            return proposal


def _told_by_server(where: WritingIn, writes: Sequence[NewWrite]) -> tuple[NewWrite, ...]:
    """The server tells attendees, unless an object says that somebody else does: we may have, before."""
    return tuple(
        replace(one, after=with_agent(one.after, client=False)) if one.after and _is_ours(where, one.after) else one
        for one in writes
    )


def _is_ours(where: WritingIn, data: bytes) -> bool:
    source = read_source(data)
    return any(part.attendees for part in source.parts) and _organizers_of(source) <= where.own


def _organizers_of(source: CalendarSource) -> set[str]:
    return {part.organizer for part in source.parts if part.organizer}


# Mails ----------------------------------------------------------------------------------------------------------------


async def _settle_mails(where: WritingIn, proposal: ProposedWrite) -> ProposedWrite:
    if proposal.plan.mails:  # an answer to an invitation
        return _with_mails(where, proposal, proposal.plan.writes, proposal.plan.mails)
    sent = {uid: await latest_version(where.account.store, uid) for uid in proposal.plan.uids}
    writes, mails = await asyncio.to_thread(_mailed_writes, where, proposal.plan.writes, sent)
    return _with_mails(where, proposal, writes, mails)


def _mailed_writes(
    where: WritingIn, writes: Sequence[NewWrite], sent: Mapping[str, int]
) -> tuple[tuple[NewWrite, ...], tuple[PlannedMail, ...]]:
    settled: list[NewWrite] = []
    mails: list[PlannedMail] = []
    for one in writes:
        source = read_source(one.after or one.before or b"")
        organizers = _organizers_of(source)
        if not organizers <= where.own:
            raise CalendarRefusal(
                "nothing was written: this is an invitation by somebody else, who was told the answer by mail; "
                "answer it again with calendar_respond"
            )
        if not organizers or not any(attendees_of(part, where.own) for part in _parts_of(one)):
            settled.append(one)
            continue
        change = ObjectChange(
            one.before, one.after, where.own, _zones_in(where, source), where.now, sent.get(source.uid, -1)
        )
        done = mailed_write(change)
        settled.append(replace(one, after=done.after))
        mails += done.mails
    return tuple(settled), tuple(mails)


def _parts_of(write: NewWrite) -> list[EventPart]:
    return [part for data in (write.before, write.after) if data is not None for part in read_source(data).parts]


def _zones_in(where: WritingIn, source: CalendarSource) -> ZoneOf:
    zones = zones_of(content_lines(source.data), source.root.inner, zone_of_calendar(where.account.account, ""))

    def zone_of(name: str) -> tzinfo | None:
        known = find_event_zone(name, zones) if name else None
        return where.zone if known is None else None if known.guessed else known.rules

    return zone_of


def _with_mails(
    where: WritingIn, proposal: ProposedWrite, writes: tuple[NewWrite, ...], mails: tuple[PlannedMail, ...]
) -> ProposedWrite:
    """`others` is of the server: what is mailed is not mailed yet when the time is looked at again."""
    plan = replace(proposal.plan, writes=writes, mails=mails, others=False)
    if not mails:
        return replace(proposal, plan=plan)
    for sender in {one.sender for one in mails} - where.senders:
        raise CalendarRefusal(f"nothing was written: no e-mail account of this installation sends mails as {sender}")
    for one in mails:
        checked_address(one.recipient, "invite")
        if len(one.ics) > MAX_CALENDAR_PART:
            raise CalendarRefusal("nothing was written: the event is too large to be mailed")
    people = {one.recipient for one in mails}
    if len(people) > MAILS_AN_HOUR:
        raise CalendarRefusal(f"nothing was written: at most {MAILS_AN_HOUR} people can be mailed, not {len(people)}")
    shown = f"{proposal.shown}\nMailed by {mails[0].sender}: {_told_people(proposal.reaches, mails)}"
    return replace(proposal, plan=plan, shown=shown, risk="high", why="others are told of it")


def _told_people(known: Sequence[Guest], mails: Sequence[PlannedMail]) -> str:
    """By the addresses that SMTP takes: a letter of another script looks like one of ours."""
    names = {one.address.lower(): one.name for one in known}
    told = []
    for one in mails:
        name, address = names.get(one.recipient, ""), checked_address(one.recipient, "invite")
        told.append(f"{name} <{address}> ({_WHAT[one.method]})" if name else f"{address} ({_WHAT[one.method]})")
    return ", ".join(dict.fromkeys(told))
