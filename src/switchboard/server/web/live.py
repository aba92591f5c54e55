"""`/ui/events`: bells for a page that is open, on which it fetches again what has changed.

`site.py` calls it; `static/app.js` is the other end. One stream for each tab that is seen, so a browser keeps
connections for all else. It ends with the session, the server and the database; the page tries again by itself. Next:
`app/pulse.py`, `server/event_streams.py`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Final
from uuid import UUID

from starlette.responses import Response

from switchboard.app.approvals.service import APPROVALS
from switchboard.app.messages.searching import MessageFilter, Period
from switchboard.app.pulse import BELLS, Bell, Pulse, Viewer
from switchboard.domain.shown import MessageState
from switchboard.server.event_streams import EventStream, refuse_body
from switchboard.server.polls import Polls
from switchboard.server.web.looking import MESSAGE_SEARCH
from switchboard.server.web.visit import Visit
from switchboard.tasks import wait_at_most

MOST_STREAMS: Final = 4
"""Of a session, in each server process: a browser has six connections to a host."""
PING_EVERY_S: Final = 10.0
_OWN: Final = 20
"""Of their newest messages that a member is told of."""
_LOOK_EVERY_S: Final = 2.0
"""At the time, and whether the database answers."""


class LiveStreams:
    """Opens the streams of pages."""

    def __init__(self, pulse: Pulse, polls: Polls) -> None:
        self._pulse = pulse
        self._polls = polls
        self._open = Counter[UUID]()

    async def open(self, visit: Visit) -> Response:
        """The stream of a page that somebody has open. Raises InvalidInput."""
        refuse_body(visit.request.headers)
        return EventStream(self._polls, partial(self._follow_pulse, visit))

    def refuse(self, _: Visit) -> Response:
        """For those who are not signed in, or no longer."""
        return EventStream(self._polls, _say_signed_out)

    async def _follow_pulse(self, visit: Visit, gone: asyncio.Event) -> AsyncGenerator[bytes]:
        with self._hold_place(visit.session.session_id) as there_is_one:
            if not there_is_one:
                yield _frame_of("full", [str(MOST_STREAMS)])
                return
            async with self._pulse.watch(visit.session.session_id, _bells_of(visit)) as viewer:
                yield _frame_of("live")
                async for frame in self._tell_bells(viewer, visit, gone):
                    yield frame

    @contextmanager
    def _hold_place(self, session_id: UUID) -> Iterator[bool]:
        """Whether there is a place left; until the end, it is taken."""
        there_is_one = self._open[session_id] < MOST_STREAMS
        self._open[session_id] += there_is_one
        try:
            yield there_is_one
        finally:
            self._open[session_id] -= there_is_one
            if not self._open[session_id]:
                del self._open[session_id]

    async def _tell_bells(self, viewer: Viewer, visit: Visit, gone: asyncio.Event) -> AsyncGenerator[bytes]:
        now = asyncio.get_running_loop().time
        own = _OwnMessages(visit)
        await own.have_changed()
        ring_at, ping_at = now(), now() + PING_EVERY_S
        while not (gone.is_set() or viewer.over or self._pulse.is_silent):
            if viewer.heard.is_set() and now() >= ring_at:
                if (bells := viewer.take()) and await own.have_changed():
                    yield _frame_of("bells", bells)
                ring_at = now() + self._pulse.pause_s
            if now() >= ping_at:
                yield _frame_of("ping")
                ping_at = now() + PING_EVERY_S
            if viewer.heard.is_set():  # before they are to be told
                await wait_at_most(ring_at - now(), gone)
            else:
                await wait_at_most(_LOOK_EVERY_S, gone, viewer.heard)
        if viewer.over == "signed-out":
            yield _frame_of("signed-out")


class _OwnMessages:
    """What a member of the household may hear of: not even that others write."""

    def __init__(self, visit: Visit) -> None:
        self._visit = visit
        self._seen: Sequence[tuple[UUID, MessageState]] | None = None

    async def have_changed(self) -> bool:
        """Whether there is something new of theirs since the last time; those who see all are told of all."""
        caller = self._visit.caller
        if caller.role != "connector":
            return True
        search = self._visit.services.of(MESSAGE_SEARCH)
        found = await search.find(caller, MessageFilter(), Period(), cursor=None, limit=_OWN)
        before, self._seen = self._seen, [(one.request_id, one.state) for one in found.messages]
        return before != self._seen


def _bells_of(visit: Visit) -> frozenset[Bell]:
    """Of what the visitor may see at all."""
    match visit.session.role:
        case "operator":
            return BELLS
        case role if role in APPROVALS.roles:
            return frozenset({"approvals"})
        case _:
            return frozenset({"messages"})


async def _say_signed_out(_: asyncio.Event) -> AsyncGenerator[bytes]:
    yield _frame_of("signed-out")


def _frame_of(event: str, words: Iterable[str] = ()) -> bytes:
    """An event with words as its data; without data, browsers would not tell the page of it."""
    return f"event: {event}\ndata: {' '.join(words)}\n\n".encode()
