"""Finding messages: pages of a list with filters, older and newer, of which none takes longer than a page may.

Interfaces call `MessageSearch` with the caller's `Principal`. A channel, an account of it and a time are found by an
index. For all else there is none: indexes cost each message bytes and time, and people look among the newest. So it
looks through `WALK` messages, and says until when. Next: `store/messages/searching.py`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import Final
from uuid import UUID

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from switchboard.app.access import Access, Principal
from switchboard.app.cursors import PAGE_CHARACTERS, bad_cursor
from switchboard.app.messages.views import MESSAGES, MessageView
from switchboard.app.runtime import Runtime
from switchboard.core.text.words import offer
from switchboard.core.uuid7 import first_uuid7
from switchboard.core.voice.recordings import shown_voices
from switchboard.domain.envelope import Attachment
from switchboard.domain.errors import InvalidInput
from switchboard.store.messages import searching as store
from switchboard.store.messages.searching import FoundMessage, IdRange, MessageFilter

__all__ = ["MessageFilter", "MessageSearch", "MessagesPage", "Period"]

WALK: Final = 10_000
"""Messages that are looked through for one page."""
_STEPS: Final = (500, 2000, WALK - 2500)
"""Most of what is looked for is found among the first."""


class Period(Struct, frozen=True):
    """From when, and until before when, messages came in; None: without a limit."""

    since: datetime | None = None
    until: datetime | None = None

    @property
    def ids(self) -> IdRange:
        """The ids of the messages of that time."""
        ids = IdRange() if self.since is None else IdRange(first=first_uuid7(self.since))
        return ids if self.until is None else ids.before(first_uuid7(self.until))


class MessagesPage(Struct, frozen=True):
    """A page, newest first. `older`, `newer`: the cursors of the pages beside it, None at an end.

    `looked_until`: how far was looked, where that was not to the end.
    """

    messages: Sequence[MessageView]
    older: str | None = None
    newer: str | None = None
    looked_until: datetime | None = None


class _Walked(Struct, frozen=True):
    """What was found on the way, and where it ended before all was looked at."""

    found: Sequence[FoundMessage]
    until: UUID | None = None


class MessageSearch:
    """Finds messages for a caller, whose role was checked; ownership is checked here."""

    def __init__(self, runtime: Runtime, access: Access) -> None:
        self._database = runtime.database
        self._channels = runtime.channels
        self._rule_book = runtime.rule_book
        self._access = access

    async def find(
        self,
        caller: Principal,
        wanted: MessageFilter,
        period: Period,
        *,
        cursor: str | None,
        limit: int,
        whole: bool = False,
    ) -> MessagesPage:
        """A page; a cursor is one of `MessagesPage`. Raises Forbidden, InvalidInput.

        `whole`: with the whole texts, and as many messages as then make a page; otherwise with what a row has room for.
        """
        if caller.role == "connector":
            wanted = replace(
                wanted, channel=wanted.channel or caller.channel, endpoint=wanted.endpoint or caller.endpoint
            )
            await self._access.check_endpoint(caller, MESSAGES, wanted.channel or "", wanted.endpoint or "")
        direction, start = read_cursor(cursor)
        ids = period.ids
        if direction == "newer" and start is not None:
            walked = await self._walk_messages(wanted, ids.after(start), oldest=True, limit=limit + 1)
            if len(walked.found) > limit or walked.until is not None:
                if whole:
                    limit = _count_fitting(walked.found[::-1], limit)
                    walked = await self._with_texts(walked, walked.found[-limit:])
                return _page_of_newer(walked, start, limit)
            start = None  # those are the newest: a whole page of them
        walked = await self._walk_messages(
            wanted, ids if start is None else ids.before(start), oldest=False, limit=limit + 1
        )
        if not walked.found:
            self._refuse_unknown(caller, wanted, cursor)
        if whole:
            limit = _count_fitting(walked.found, limit)
            walked = await self._with_texts(walked, walked.found[:limit])
        return _page_of_older(walked, start, limit)

    def _refuse_unknown(self, caller: Principal, wanted: MessageFilter, cursor: str | None) -> None:
        """Refuse wrong names once nothing was found of them: teams and butlers that are gone have messages.

        A connector is not told which teams and butlers there are. Raises InvalidInput.
        """
        if wanted.channel is not None:
            self._channels.known(wanted.channel, "channel")
        if cursor is not None or caller.role != "operator":
            return
        rules = self._rule_book.rules
        _require_known("butler", wanted.butler, rules.members)
        _require_known("team", wanted.team, [team.team_id for team in rules.teams])

    async def _with_texts(self, walked: _Walked, shown: Sequence[FoundMessage]) -> _Walked:
        """With the whole texts of those that are shown; those of all may be far more than a page."""
        cut = [row.request_id for row in shown if row.characters > len(row.text)]
        if not cut:
            return walked
        texts = await store.whole_texts(self._database, cut)
        found = [dataclasses.replace(row, text=texts.get(row.request_id, row.text)) for row in walked.found]
        return _Walked(found, walked.until)

    async def _walk_messages(self, wanted: MessageFilter, ids: IdRange, *, oldest: bool, limit: int) -> _Walked:
        """Look from one end of a range, in steps, until enough is found."""
        if _by_index(wanted):
            return _Walked(await store.find_messages(self._database, wanted, ids, oldest=oldest, limit=limit))
        found: list[FoundMessage] = []
        until: UUID | None = None
        for step in _STEPS:
            until = await store.end_of_walk(self._database, wanted, ids, oldest=oldest, walk=step)
            part, ids = _divide_ids(ids, until, oldest=oldest)
            rows = await store.find_messages(self._database, wanted, part, oldest=oldest, limit=limit - len(found))
            found = [*rows, *found] if oldest else [*found, *rows]
            if until is None or len(found) == limit:
                break
        return _Walked(found, until)


def _require_known(kind: str, name: str | None, known: Collection[str]) -> None:
    if name is not None and name not in known:
        raise InvalidInput(f"there is no {kind} {name!r}{offer(name, known)}", code=f"unknown_{kind}")


def _by_index(wanted: MessageFilter) -> bool:
    known = wanted.endpoint is None or wanted.channel is not None
    return known and (wanted.sender, wanted.butler, wanted.team, wanted.state) == (None, None, None, None)


def _divide_ids(ids: IdRange, until: UUID | None, *, oldest: bool) -> tuple[IdRange, IdRange]:
    """What is looked at in this step, and what is left."""
    if until is None:
        return ids, ids
    if oldest:
        return IdRange(ids.first, until), ids.after(until)
    return IdRange(until, ids.last), ids.before(until)


def _count_fitting(rows: Sequence[FoundMessage], limit: int) -> int:
    """How many of the first rows make a page with their whole texts."""
    room = PAGE_CHARACTERS
    for count, row in enumerate(rows[:limit], 1):
        room -= row.characters
        if room <= 0:
            return count
    return limit


def _page_of_older(walked: _Walked, start: UUID | None, limit: int) -> MessagesPage:
    page = walked.found[:limit]
    more = len(walked.found) > limit
    older = page[-1].request_id if more else walked.until
    newest = page[0].request_id if page else start
    return MessagesPage(
        [_show_message(row) for row in page],
        older=None if older is None else f"older:{older}",
        newer=None if start is None or newest is None else f"newer:{newest}",
        looked_until=None if more or walked.until is None else time_of(walked.until),
    )


def _page_of_newer(walked: _Walked, start: UUID, limit: int) -> MessagesPage:
    page = walked.found[-limit:]
    more = len(walked.found) > limit
    newer = page[0].request_id if more else walked.until
    oldest = page[-1].request_id if page else start
    return MessagesPage(
        [_show_message(row) for row in page],
        older=f"older:{oldest}",
        newer=None if newer is None else f"newer:{newer}",
        looked_until=None if more or walked.until is None else time_of(walked.until),
    )


def read_cursor(cursor: str | None) -> tuple[str, UUID | None]:
    """The direction and the id that a page begins behind. Raises InvalidInput."""
    if cursor is None:
        return "older", None
    direction, _, request_id = cursor.rpartition(":")
    try:
        found = UUID(request_id)
    except ValueError:
        raise bad_cursor() from None
    if direction not in {"", "older", "newer"}:
        raise bad_cursor()
    return direction or "older", found


def time_of(request_id: UUID) -> datetime:
    """When the message with this id came in."""
    return datetime.fromtimestamp((request_id.int >> 80) / 1000, UTC)


def _show_message(row: FoundMessage) -> MessageView:
    origin = {name: getattr(row, name) for name in ("request_id", "conversation", "channel", "endpoint", "sender")}
    spoken = msgspec.convert(row.attachments or (), tuple[Attachment, ...])
    return MessageView(
        **origin,
        thread=row.thread,
        text=row.text or shown_voices(spoken),
        state=row.state,
        went_to=row.went_to,
        is_code=row.is_code,
        received_at=row.received_at,
    )
