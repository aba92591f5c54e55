"""The tools of calendars at Google: invitations are sent once whatever is killed, races are told, failures say why."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, Final
from uuid import UUID, uuid4

import pytest

from switchboard.domain.errors import Unavailable
from switchboard.store.database import Database
from switchboard.testing.google import GOOGLE_TOKEN, OWN, ApiCall, GoogleServer, Refusal
from switchboard.testing.platform_server import BrokenOff
from switchboard.transport.google.calendars import open_google_calendars
from tests.calendar_house import DAY, CalendarHouse, scope_of
from tests.forked import Forked, Forks
from tests.google_house import google_account, open_google_house
from tests.google_servers import KnownToken, strict_google
from tests.width import wide

pytestmark = pytest.mark.timeout(600)

BEN: Final = "ben@friends.example"
TEN: Final = f"{DAY:%Y-%m-%d} 10:00"
ROUNDS: Final = wide(4, 1)
"""Through all requests of a call, which are about five; in a sample only those that write."""
_WRITES: Final = ("events.insert", "events.patch", "events.delete")


@pytest.fixture
async def google() -> AsyncIterator[GoogleServer]:
    async with strict_google() as server:
        yield server


@pytest.fixture
async def house(database: Database, google: GoogleServer, tmp_path: Path) -> CalendarHouse:
    opened = await open_google_house(database, google_account(google.url, tmp_path))
    await opened.sync()
    return opened


def sent(google: GoogleServer) -> list[tuple[str, str]]:
    """To whom what was sent, each as often as it was."""
    return [(mail.to, mail.method) for mail in google.mails.elements()]


async def meet(house: CalendarHouse, **more: Any) -> str:
    """A meeting with Ben; its id."""
    made = await house.approved("create", title="An hour", start=TEN, invite=[BEN], **more)
    return str(made["id"])


class Killer:
    """Kills a process at one of its requests, before Google carries it out or after."""

    def __init__(self, google: GoogleServer, moment: int, *, after: bool) -> None:
        self.child: Forked | None = None
        self._seen = 0
        self._moment = moment
        google.before, google.after = (self._pass, self._count) if after else (self._count, self._pass)

    def _pass(self, _: ApiCall) -> None:
        """Nothing happens."""

    def _count(self, _: ApiCall) -> None:
        self._seen += 1
        if self._seen == self._moment:
            assert self.child is not None
            self.child.kill()
            raise BrokenOff


def behave(google: GoogleServer) -> None:
    google.before = google.after = lambda _: None
    google.exchanges.clear()


async def prepared(house: CalendarHouse, tool: str, number: int) -> dict[str, Any]:
    """The arguments of a call that has Ben told of something, at a time of its own, also if that recurs."""
    day = DAY + timedelta(days=28 * number)
    if tool == "create":
        return {"title": f"Meeting {number}", "start": f"{day:%Y-%m-%d} 10:00", "invite": [BEN]}
    repeats = {"repeats": "week 4 times"} if tool == "delete" else {}
    title = f"Meeting {number}"
    made = await house.approved("create", title=title, start=f"{day:%Y-%m-%d} 10:00", invite=[BEN], **repeats)
    if tool == "delete":
        return {"event": f"{made['id']}/{day:%Y%m%d}T100000", "scope": "this"}
    return {"event": made["id"], "start": f"{day:%Y-%m-%d} 15:00"}


Starts = Callable[[str, UUID, dict[str, Any]], Forked]


@pytest.fixture
def call(house: CalendarHouse, database_url: str, forks: Forks, tmp_path: Path) -> Starts:
    """Makes a call in a process of its own."""
    [account] = house.opened.held.accounts.values()

    def start(tool: str, key: UUID, given: dict[str, Any]) -> Forked:
        words = (database_url, account.url, str(account.token_file), str(key), tool, json.dumps(given))
        return forks.start("tests.google_house", *words, env={**os.environ}, errors=tmp_path / "errors")

    return start


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("tool", ["create", "update", "delete"])
async def test_ben_is_told_once_whatever_is_killed(
    house: CalendarHouse, google: GoogleServer, call: Starts, tool: str, *, after: bool
) -> None:
    """Killed at each request of the call in turn; then the step is repeated, twice."""
    given = await prepared(house, tool, 0)
    behave(google)
    await house.approved(tool, **given)
    names = [one.call.name for one in google.exchanges]
    writes = [place + 1 for place, name in enumerate(names) if name in _WRITES]
    moments = writes if ROUNDS == 1 else range(writes[0], len(names) + 1)
    for number, moment in enumerate([*moments] * ROUNDS, 1):
        given = await prepared(house, tool, number)
        before, key = Counter(google.mails), uuid4()
        killer = Killer(google, moment, after=after)
        killer.child = call(tool, key, given)
        assert await killer.child.wait() == -9, killer.child.errors.read_text()
        behave(google)
        for _ in range(2):
            scope = scope_of(key=key)
            await house.done(tool, await house.approve(tool, scope, **given), **given)
        [mail] = (google.mails - before).elements()
        assert (mail.to, mail.method) == (BEN, "CANCEL" if tool == "delete" else "REQUEST")
    assert max(google.mails.values()) == 1


async def test_a_meeting_is_made_moved_and_cancelled(house: CalendarHouse, google: GoogleServer) -> None:
    """Ben is told of each; of a change of the notes he gets the same mail as of everything else."""
    event = await meet(house)
    [made] = google.calendar.events.values()
    assert [one["email"] for one in made["attendees"]] == [BEN]
    await house.approved("update", event=event, start=f"{DAY:%Y-%m-%d} 12:00")
    await house.approved("update", event=event, invite=["mia@friends.example"])
    await house.approved("update", event=event, uninvite=[BEN])
    await house.approved("delete", event=event)
    mia = "mia@friends.example"
    assert sent(google) == [(BEN, "REQUEST"), (BEN, "REQUEST"), (mia, "REQUEST"), (BEN, "CANCEL"), (mia, "CANCEL")]
    assert max(google.mails.values()) == 1


async def test_an_invitation_is_answered(house: CalendarHouse, google: GoogleServer) -> None:
    """The own entry alone is changed, and its organizer is told."""
    times = {"start": {"dateTime": f"{DAY:%Y-%m-%d}T10:00:00Z"}, "end": {"dateTime": f"{DAY:%Y-%m-%d}T11:00:00Z"}}
    people = [{"email": OWN}, {"email": "mia@friends.example", "responseStatus": "accepted", "comment": "yes"}]
    theirs = {"id": "theirs1", "iCalUID": "theirs@x.example", "summary": "Party", "attendees": people, **times}
    before = google.calendar.receive({**theirs, "organizer": {"email": BEN}})
    await house.sync()
    await house.approved("respond", event="theirs@x.example", answer="accepted")
    after = google.calendar.get("theirs1")
    assert after["attendees"][0]["responseStatus"] == "accepted"
    assert after["attendees"][1] == before["attendees"][1]
    assert sent(google) == [(BEN, "REPLY")]


@pytest.mark.parametrize(
    ("refusal", "told"),
    [
        (Refusal(403, "rateLimitExceeded"), "cannot be reached now, or is busy"),
        (Refusal(429, "rateLimitExceeded", "30"), "cannot be reached now, or is busy"),
        (Refusal(403, "insufficientPermissions"), "sign in again for writing"),
        (Refusal(503, "backendError"), "cannot be reached now, or is busy"),
    ],
)
async def test_why_google_does_not_write_is_told(
    house: CalendarHouse, google: GoogleServer, refusal: Refusal, told: str
) -> None:
    google.spoil("events.insert", refusal)
    said = await house.call("create", title="Lunch", start=TEN)
    assert told in said.text
    assert "Nothing was written" in said.text
    assert google.calendar.events == {}


async def test_a_sync_that_google_refuses_leaves_the_mirror(house: CalendarHouse, google: GoogleServer) -> None:
    await house.done("create", title="Lunch", start=TEN)
    await house.sync()
    google.spoil("events.list", Refusal(403, "userRateLimitExceeded"))
    with pytest.raises(Unavailable, match="the account 'home': the server cannot be reached now, or is busy"):
        await house.sync()
    assert "Lunch" in (await house.call("query", day=f"{DAY:%Y-%m-%d}")).text


async def test_no_token_goes_elsewhere(house: CalendarHouse) -> None:
    """The mirror may have addresses of another server, as of before the settings were changed."""
    async with GoogleServer() as other:
        elsewhere = f"{other.url}/calendar/v3/calendars/{OWN}"
        await house.opened.held.store_of("home").run("collections.find", OWN, elsewhere, "Ann", True, "", "")
        said = await house.call("create", title="Lunch", start=TEN)
        assert not said.ok
        assert other.exchanges == []


async def test_a_token_that_is_refused_is_replaced(google: GoogleServer) -> None:
    tokens = KnownToken("ya29.old", GOOGLE_TOKEN)
    async with open_google_calendars(tokens, OWN, sends=True, api=f"{google.url}/calendar/v3") as server:
        assert [one.key for one in await server.find_collections()] == [OWN]
    assert tokens.refused == ["ya29.old"]
