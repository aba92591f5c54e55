"""Now: how it is, what needs a person, what is worked on, what waits, and what came in last.

Next: `app/status.py`, `app/messages/views.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from msgspec import Struct
from starlette.responses import Response

from switchboard.app.messages.searching import MessageFilter, Period
from switchboard.app.people.naming import NOBODY_CALLED
from switchboard.app.status import STATUS
from switchboard.server.http.setup import SETUP_SERVICE
from switchboard.server.http.status import STATUS_SERVICE
from switchboard.server.web.looking import MESSAGE_SEARCH
from switchboard.server.web.naming import name_senders
from switchboard.server.web.page import WebPage
from switchboard.server.web.reading import PageParts
from switchboard.server.web.visit import Visit

_LAST: Final = 50
_WAITING: Final = 20
_HIGH: Final = 40
"""Of the tallest bar, in the units of the picture."""


class HourBar(Struct, frozen=True):
    """An hour of the chart: when it began, how many messages came, how high its bar is."""

    began: datetime
    number: int
    height: int


async def show_first(visit: Visit) -> Response:
    """Welcome, as long as an installation is new and nobody says otherwise; then Now."""
    if visit.asked("now") is None and (await visit.services.of(SETUP_SERVICE).state()).wanted:
        return visit.go("/welcome")
    return await show_now(visit)


async def show_now(visit: Visit) -> Response:
    """Everything at once; `site.py` leads those who may see only a part to their first page."""
    views, caller = visit.services.views, visit.caller
    search, read = visit.services.of(MESSAGE_SEARCH), PageParts().read
    status, running, lanes, last, books = await asyncio.gather(
        read(visit.services.of(STATUS_SERVICE).status()),
        read(views.deliveries(caller, limit=_WAITING, cursor=None, system_id=None, state="running")),
        read(views.lanes(limit=_WAITING, cursor=None)),
        read(search.find(caller, MessageFilter(), Period(), cursor=None, limit=_LAST)),
        read(views.books(now=False)),
    )
    at_work, waiting = running and running[0], lanes and lanes[0]
    places = [one.conversation for one in at_work or ()]
    places += [lane["lane"].rpartition(":")[2] for lane in waiting or ()]
    names = await read(name_senders(visit, () if last is None else last.messages, conversations=places))
    return visit.page(
        "now.html",
        names=names or NOBODY_CALLED,
        status=status,
        running=at_work,
        waiting=None if waiting is None else [lane for lane in waiting if lane["state"] != "running"],
        messages=None if last is None else last.messages,
        bars=None if status is None else bars_of(status.hours, datetime.now(UTC)),
        books=books,
    )


def bars_of(hours: Sequence[int], now: datetime) -> list[HourBar]:
    """The bars of a chart, the present hour last."""
    most = max(hours, default=0) or 1
    began = [now - timedelta(hours=ago) for ago in range(len(hours), 0, -1)]
    return [HourBar(when, number, -(-number * _HIGH // most)) for when, number in zip(began, hours, strict=True)]


PAGES: Final = (WebPage("/", show_first, STATUS, "Now"),)
