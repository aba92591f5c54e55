"""Clients of the strict Google on loopback, and what other programs write there."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Final

from switchboard.ports.collection_server import CollectionServer
from switchboard.testing.google import GOOGLE_TOKEN, OWN, GoogleCalendar, GoogleServer
from switchboard.transport.google.calendars import open_google_calendars
from switchboard.transport.google.contacts import open_google_contacts
from tests.calendar_house import DAY
from tests.google_discovery import wrong_in

TEN: Final = DAY + timedelta(hours=10)


_TELLING: Final = frozenset({"events.insert", "events.patch", "events.update", "events.delete"})


@asynccontextmanager
async def strict_google(*calendars: GoogleCalendar, page_size: int = 250) -> AsyncIterator[GoogleServer]:
    """The server. Afterwards all that was said must be as the discovery documents have it, and as we want it of us."""
    async with GoogleServer(*calendars, page_size=page_size) as google:
        yield google
    wrong = wrong_in(google.exchanges)
    assert wrong == [], wrong
    for one in google.exchanges:
        if one.call.name in _TELLING:
            assert "sendUpdates" in one.call.parameters, one.call
            assert bool(one.call.etag) == (one.call.name != "events.insert"), one.call


class KnownToken:
    """`AccessTokens` of one that does not expire. `refused`: those that a server did not accept."""

    def __init__(self, *tokens: str) -> None:
        self._tokens = list(tokens or (GOOGLE_TOKEN,))
        self.refused: list[str] = []

    async def access_token(self, refused: str = "") -> str:
        """The first, or the next one if that was refused."""
        if refused:
            self.refused.append(refused)
            self._tokens = [one for one in self._tokens if one != refused] or [refused]
        return self._tokens[0]


@asynccontextmanager
async def google_calendars(google: GoogleServer, *, sends: bool = True) -> AsyncIterator[CollectionServer]:
    """The port over the server's calendars."""
    api = f"{google.url}/calendar/v3"
    async with open_google_calendars(KnownToken(), OWN, sends=sends, api=api) as server:
        yield server


@asynccontextmanager
async def google_contacts(google: GoogleServer) -> AsyncIterator[CollectionServer]:
    """The port over the server's contacts."""
    async with open_google_contacts(KnownToken(), api=f"{google.url}/v1") as server:
        yield server


def google_event(uid: str, title: str, start: datetime = TEN) -> bytes:
    """An event of an hour in Berlin, with nothing in it that Google has no place for."""
    end = start + timedelta(hours=1)
    lines = ["BEGIN:VCALENDAR", "VERSION:2.0", "BEGIN:VEVENT", f"UID:{uid}"]
    lines += [f"DTSTART;TZID=Europe/Berlin:{start:%Y%m%dT%H%M%S}", f"DTEND;TZID=Europe/Berlin:{end:%Y%m%dT%H%M%S}"]
    return "\r\n".join([*lines, f"SUMMARY:{title}", "END:VEVENT", "END:VCALENDAR", ""]).encode()
