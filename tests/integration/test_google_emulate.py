"""Our client beside another player of Google's calendar, `emulate` from npm: what that has, we read and write.

It has lists of calendars and single events, ranges, pages, insertion and deletion. It lacks, and so only the strict
server of our own shows: reading one event, patches, ids of the client, ETags that change, If-Match, sync tokens,
showDeleted, recurring events, sendUpdates, and the People API.
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pytest

from switchboard.ports.collection_server import ServerError
from switchboard.testing.google import OWN
from switchboard.transport.google.calendars import open_google_calendars
from switchboard.transport.google.client import open_google
from switchboard.transport.google.events import GoogleEvent
from switchboard.transport.google.requests import CalendarEvents
from tests.google_servers import KnownToken

EMULATE: Final = Path(__file__).parent.parent / "emulate"
TOKEN: Final = "of-nobody"
AT: Final = datetime(2027, 3, 1, 10, tzinfo=UTC)
EVENTS: Final = 300
"""More than a page of `emulate` has."""

pytestmark = pytest.mark.skipif(
    shutil.which("node") is None or not (EMULATE / "node_modules").is_dir(), reason="emulate is not here: make emulate"
)


def seed() -> dict[str, Any]:
    """Events of an hour, one a day, and a day off."""
    own = {"user_email": OWN, "calendar_id": "primary"}
    timed = [
        {
            **own,
            "id": f"evt{number}",
            "summary": f"Event {number}",
            "start_date_time": (AT + timedelta(days=number)).isoformat(),
            "end_date_time": (AT + timedelta(days=number, hours=1)).isoformat(),
        }
        for number in range(EVENTS)
    ]
    off = {**own, "id": "evtoff", "summary": "Off", "start_date": "2027-03-02", "end_date": "2027-03-03"}
    calendar = {"id": "primary", "user_email": OWN, "summary": OWN, "primary": True, "time_zone": "UTC"}
    google = {"users": [{"email": OWN, "name": "Ann"}], "calendars": [calendar], "calendar_events": [*timed, off]}
    return {"tokens": {TOKEN: {"login": OWN, "scopes": []}}, "google": google}


@contextmanager
def emulate() -> Iterator[str]:
    """Where it listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = ["node", str(EMULATE / "serve.mjs"), str(port)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{json.dumps(seed())}\n")
        process.stdin.flush()
        assert process.stdout.readline().startswith("http"), "emulate does not start"
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()


@pytest.fixture(scope="module")
def api() -> Iterator[str]:
    with emulate() as url:
        yield f"{url}/calendar/v3"


async def test_calendars_and_events_of_emulate_are_read(api: str) -> None:
    """All pages; without a token for the next time, a list says that it is not complete."""
    async with open_google_calendars(KnownToken(TOKEN), OWN, sends=True, api=api) as server:
        [found] = await server.find_collections()
        assert (found.key, found.zone, found.writable, found.shared) == ("primary", "UTC", True, False)
        listing = await server.list_everything(found.url)
        assert len(listing.etags) == EVENTS + 1
        assert (listing.whole, listing.complete, listing.cursor) == (True, False, "")
        contents = await server.read_objects(found.url, ["evt7", "evtoff"])
        timed, off = sorted(one.data.decode() for one in contents.objects)
        assert "DTSTART:20270308T100000Z\r\nDTEND:20270308T110000Z\r\nSUMMARY:Event 7\r\n" in timed
        assert "DTSTART;VALUE=DATE:20270302\r\nDTEND;VALUE=DATE:20270303\r\nSUMMARY:Off\r\n" in off
        within = await server.objects_between(found.url, AT + timedelta(days=1), AT + timedelta(days=3))
        assert {one.name for one in within} == {"evt1", "evt2", "evtoff"}


async def test_an_event_is_inserted_and_deleted_at_emulate(api: str) -> None:
    """By the requests of our writes; a write as a whole looks at the event, which emulate does not let us."""
    async with open_google(KnownToken(TOKEN), api) as client:
        events = CalendarEvents(client, "calendars/primary", OWN, sends=True)
        times = {"start": {"dateTime": "2028-01-01T10:00:00Z"}, "end": {"dateTime": "2028-01-01T11:00:00Z"}}
        await events.insert({"id": "abcde", "summary": "New", "attendees": [{"email": "ben@x.example"}], **times})
    async with open_google_calendars(KnownToken(TOKEN), OWN, sends=True, api=api) as server:
        [found] = await server.find_collections()
        new = datetime(2028, 1, 1, 10, 30, tzinfo=UTC)
        [made] = await server.objects_between(found.url, new, new + timedelta(minutes=5))
        assert b"mailto:ben@x." in made.data
        with pytest.raises(ServerError):
            await server.replace_object(found.url, made, made.data)
    async with open_google(KnownToken(TOKEN), api) as client:
        events = CalendarEvents(client, "calendars/primary", OWN, sends=True)
        await events.delete(GoogleEvent(made.name, made.etag))
    async with open_google_calendars(KnownToken(TOKEN), OWN, sends=True, api=api) as server:
        assert await server.objects_between(found.url, new, new + timedelta(minutes=5)) == ()
