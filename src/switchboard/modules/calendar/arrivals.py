"""The chore `answers`: what other people's calendar programs have answered by mail is written into our calendars.

`opened.py` names it. In: mails that are kept as history (`ports/calendar_mails.py`); out: the PARTSTAT of an attendee,
or that an event is cancelled, on the server and in the mirror, and a sentence about each mail. Only what a trusted
server has authenticated counts, everybody speaks for themselves alone, and nothing is answered. Next:
`mailing/answering.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from functools import partial
from typing import Final
from uuid import uuid5

import structlog
from msgspec import Struct

from switchboard.core.text.visible import visible_start
from switchboard.domain.errors import InvalidInput, Unavailable
from switchboard.modules.accounts.servers import OpenServer
from switchboard.modules.accounts.settings import DavAccount
from switchboard.modules.calendar.editing.fields import PartStat
from switchboard.modules.calendar.editing.series import read_source
from switchboard.modules.calendar.editing.times import ZoneOf
from switchboard.modules.calendar.looking import CalendarAccounts, CalendarRefusal
from switchboard.modules.calendar.mailing.answering import (
    AppliedAnswer,
    AttendeeAnswer,
    Cancellation,
    ReadMessage,
    apply_answer,
    apply_cancellation,
    read_message,
)
from switchboard.modules.calendar.occurrences import CalendarKeeper, addresses_of, zone_of_calendar
from switchboard.modules.calendar.writes import lease_account
from switchboard.modules.calendar.zones import find_event_zone, zones_of
from switchboard.modules.mirror.kept import collections_in, write_object
from switchboard.modules.mirror.origins import own_mirrors_of
from switchboard.ports.calendar_mails import CalendarMail, CalendarMails
from switchboard.ports.collection_server import CollectionServer, ServerError, find_object
from switchboard.ports.module_store import ModuleStore

log = structlog.get_logger(__name__)

ANSWERS_EVERY_S: Final = 60.0
_AT_ONCE: Final = 100
_OVERLAP: Final = timedelta(minutes=10)
"""Messages that are stored at one moment become visible in any order."""
_FIRST: Final = timedelta(days=1)
_GIVE_UP: Final = timedelta(days=3)
_TRIES: Final = 3
_LONGEST: Final = 300
_LONGEST_METHOD: Final = 40
_APPLIED: Final = "applied"
_SAID: Final[Mapping[PartStat, str]] = {
    "ACCEPTED": "accepted",
    "DECLINED": "declined",
    "TENTATIVE": "answered that they may come",
}


class MailingAccounts(Struct, frozen=True):
    """The accounts whose invitations are mailed, and how their servers are opened."""

    held: CalendarAccounts
    opens: OpenServer
    mails: CalendarMails

    @property
    def named(self) -> Mapping[str, DavAccount]:
        """By name."""
        return {name: one for name, one in self.held.accounts.items() if one.sends == "mail"}


async def apply_arrivals(accounts: MailingAccounts, store: ModuleStore) -> None:
    """Read what has arrived since the last run. Raises Unavailable if something could not be written, for a retry."""
    began = datetime.now(UTC)
    rows = await store.rows("arrivals.since")
    since: datetime = rows[0]["since"] if rows else began - _FIRST
    failed: list[str] = []
    most = _AT_ONCE
    while len(found := await accounts.mails.arrived(since - _OVERLAP, most)) == most:
        most *= 2
    for one in await _find_unread(found, store):
        if why := await _read_mail(accounts, store, one, began):
            failed.append(why)
    if failed:
        raise Unavailable(f"{len(failed)} answers of attendees could not be written: {failed[0]}")
    await store.run("arrivals.looked", began)
    await store.run("arrivals.forget")


async def _find_unread(found: Sequence[CalendarMail], store: ModuleStore) -> Sequence[CalendarMail]:
    rows = await store.rows("arrivals.known", [one.request_id for one in found]) if found else ()
    known = {row["request_id"] for row in rows}
    return [one for one in found if one.request_id not in known]


async def _read_mail(accounts: MailingAccounts, store: ModuleStore, mail: CalendarMail, now: datetime) -> str:
    """Why it has to be tried again; empty: it is done with."""
    try:
        outcome = await _outcome_of(accounts, mail)
    except Unavailable:
        raise
    except Exception as error:  # what somebody has written keeps nobody else's answer waiting
        if not isinstance(error, ServerError | CalendarRefusal):
            log.exception("a message for a calendar could not be read", request_id=str(mail.request_id))
        if now - mail.received_at < _GIVE_UP:
            return str(error)
        outcome = visible_start(f"not applied, as it could not be written for days: {error}", _LONGEST)
    await accounts.mails.note(mail.request_id, outcome)
    await store.run("arrivals.note", mail.request_id)
    return ""


async def _outcome_of(accounts: MailingAccounts, mail: CalendarMail) -> str:
    if not mail.authentic:
        return "not applied, as it is not certain who has sent it"
    objects = await accounts.mails.objects_of(mail.request_id)
    told = [await _outcome_of_object(accounts, mail, data) for data in objects]
    return "; ".join(dict.fromkeys(told)) or "not applied, as it cannot be read"


async def _outcome_of_object(accounts: MailingAccounts, mail: CalendarMail, data: bytes) -> str:
    try:
        message = await asyncio.to_thread(read_message, data, mail.sender)
    except InvalidInput as error:
        return f"not applied: {error.message}"
    if message.method not in ("REPLY", "CANCEL"):
        method = visible_start(message.method, _LONGEST_METHOD)
        return f"kept for a person to read, as it is a {method or 'message without a method'}"
    if not (message.answers or message.cancellations):
        return "not applied, as its sender does not speak for themselves"
    return await _outcome_everywhere(accounts, mail, message)


async def _outcome_everywhere(accounts: MailingAccounts, mail: CalendarMail, message: ReadMessage) -> str:
    """The organizer and those who are invited may all have a calendar here. Raises what one of them raises."""
    copies: list[Sequence[str]] = []
    failed: list[Exception] = []
    for name in accounts.named:
        try:
            copies += await _outcomes_in(accounts, name, mail, message)
        except (ServerError, CalendarRefusal) as error:
            failed.append(error)
    if failed:
        raise failed[0]
    applied = [one for one in copies if any(told.startswith(_APPLIED) for told in one)]
    told = [one for copy in applied or copies[:1] for one in copy]
    return "; ".join(dict.fromkeys(told)) or "not applied, as no calendar here has the event"


async def _outcomes_in(
    accounts: MailingAccounts, name: str, mail: CalendarMail, message: ReadMessage
) -> Sequence[Sequence[str]]:
    """Of each copy of the event that the account has."""
    account, store = accounts.named[name], accounts.held.store_of(name)
    if not await own_mirrors_of({name: account}, accounts.held.store_of):
        return ()
    kept = {one.collection: one for one in await collections_in(store) if one.writable is not False}
    rows = await store.rows("objects.of_uid", message.uid)
    places = [(kept[row["collection"]], row["name"]) for row in rows if row["collection"] in kept]
    if not places:
        return ()
    async with lease_account(store, uuid5(mail.request_id, name)), accounts.opens(name, account) as server:
        copies = [
            _KeptEvent(store, server, account, there.collection, there.url, object_name, there.zone)
            for there, object_name in places
        ]
        return [await _outcomes_of_copy(one, message) for one in copies]


async def _outcomes_of_copy(copy: _KeptEvent, message: ReadMessage) -> Sequence[str]:
    answers = [await _tell_outcome(copy.answer(one), f"its sender has {_SAID[one.answer]}") for one in message.answers]
    gone = "its sender has cancelled the event"
    return [*answers, *[await _tell_outcome(copy.cancel(one), gone) for one in message.cancellations]]


async def _tell_outcome(work: Awaitable[AppliedAnswer], what: str) -> str:
    try:
        applied = await work
    except InvalidInput as error:
        return f"not applied: {error.message}"
    return f"{_APPLIED}: {what}{' for ' * bool(applied.recurrence)}{applied.recurrence}"


class _KeptEvent(Struct, frozen=True):
    """An event on a server, and in the mirror."""

    store: ModuleStore
    server: CollectionServer
    account: DavAccount
    collection: str
    url: str
    name: str
    zone: str

    async def answer(self, said: AttendeeAnswer) -> AppliedAnswer:
        """Raises InvalidInput if it is not applied, ServerError if that cannot be done now."""
        applied = await self._change_object(partial(self._apply_answer_to, said), partial(self._require_latest, said))
        identity = (said.uid, applied.recurrence, said.attendee)
        await self.store.run("arrivals.answered", *identity, said.answer, said.sequence, said.made)
        return applied

    async def cancel(self, said: Cancellation) -> AppliedAnswer:
        """Likewise."""
        return await self._change_object(partial(self._apply_cancellation_to, said), _accept_any)

    async def _change_object(
        self, change: Callable[[bytes], AppliedAnswer], check: Callable[[AppliedAnswer], Awaitable[None]]
    ) -> AppliedAnswer:
        for _ in range(_TRIES):
            there = await find_object(self.server, self.url, self.name)
            if there is None:
                raise InvalidInput("the event is deleted", field="UID")
            changed = await asyncio.to_thread(change, there.data)
            await check(changed)
            if changed.data == there.data:
                return changed
            try:
                written = await self.server.replace_object(self.url, there, changed.data)
            except ServerError as error:
                if error.state not in ("changed", "missing"):
                    raise
                continue
            await write_object(self.store, self.collection, written, there.etag, CalendarKeeper(self.account))
            return changed
        raise ServerError("changed", "somebody else keeps changing the event")

    def _apply_answer_to(self, said: AttendeeAnswer, data: bytes) -> AppliedAnswer:
        organizers = {part.organizer for part in read_source(data).parts if part.organizer}
        if not organizers or not organizers <= addresses_of(self.account):
            raise InvalidInput("the event is organised by somebody else", field="ORGANIZER")
        return apply_answer(data, said, self._zones_in(data))

    def _apply_cancellation_to(self, said: Cancellation, data: bytes) -> AppliedAnswer:
        return apply_cancellation(data, said, addresses_of(self.account), self._zones_in(data))

    async def _require_latest(self, said: AttendeeAnswer, applied: AppliedAnswer) -> None:
        """Raises InvalidInput for what they have said before something else, or of a version that is no more."""
        [told] = await self.store.rows("mails.told", said.uid, applied.recurrence, said.attendee)
        if said.sequence < told["sequence"]:
            raise InvalidInput("it answers an earlier version of the event", field="SEQUENCE")
        rows = await self.store.rows("arrivals.answer_of", said.uid, applied.recurrence, said.attendee)
        if rows and (said.sequence, said.made) < (rows[0]["sequence"], rows[0]["made"]):
            raise InvalidInput("they have answered later", field="DTSTAMP")

    def _zones_in(self, data: bytes) -> ZoneOf:
        source, floating = read_source(data), zone_of_calendar(self.account, self.zone)
        zones = zones_of(source.lines, source.root.inner, floating)

        def zone_of(name: str) -> tzinfo | None:
            if not name:
                return floating.rules
            known = find_event_zone(name, zones)
            return None if known.guessed else known.rules

        return zone_of


async def _accept_any(_: AppliedAnswer) -> None:
    """A cancellation says by itself of which version it is."""
