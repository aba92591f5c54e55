"""Writers of one calendar at once, and writers that are killed: nothing is written twice, nothing of others is lost."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final
from uuid import uuid4

import pytest

from switchboard.domain.json_values import JsonObject
from switchboard.ports.tools import PreparedCall
from switchboard.store.database import Database
from tests.calendar_house import DAY, CalendarHouse, account_at, foreign_event, open_house, scope_of
from tests.dav_servers import PASSWORD, Answered, Asked, DavProxy, dav_proxy, radicale
from tests.forked import Forked, Forks
from tests.width import wide

pytestmark = pytest.mark.timeout(600)

TIMES: Final = wide(200, 20)
KILLS: Final = wide(20, 4)
TEN: Final = DAY + timedelta(hours=10)


@pytest.fixture(scope="module")
def started() -> Iterator[DavProxy]:
    with ExitStack() as stack:
        yield stack.enter_context(dav_proxy(stack.enter_context(radicale())))


@pytest.fixture
async def house(database: Database, started: DavProxy, monkeypatch: pytest.MonkeyPatch) -> CalendarHouse:
    monkeypatch.setenv("CALENDAR_PASSWORD", PASSWORD)
    started.behave()
    opened = await open_house(database, started.server, {"home": account_at(started.port)})
    opened.server.empty()
    await opened.sync()
    return opened


def before_request(proxy: DavProxy, number: int, act: Callable[[], object]) -> None:
    """Act before the request with that number is passed on."""
    asked: list[Asked] = []

    def count_request(one: Asked) -> Answered | None:
        if len(asked) == number:
            act()
        asked.append(one)
        return None

    proxy.before = count_request


async def requests_of(house: CalendarHouse, proxy: DavProxy, tool: str, **given: Any) -> list[str]:
    """The methods of a call that succeeds."""
    proxy.behave()
    await house.done(tool, **given)
    return [one.method for one in proxy.asked]


async def test_two_turns_never_book_one_time(house: CalendarHouse) -> None:
    """At the same moment, each of them with a title of its own."""
    for number in range(TIMES):
        at = DAY + timedelta(days=number // 12, hours=8 + number % 12)
        calls = [house.call("create", title=title, start=f"{at:%Y-%m-%d %H:%M}") for title in ("Ann", "Bob")]
        outcomes = await asyncio.gather(*calls)
        won = [one for one in outcomes if one.ok]
        lost = [one for one in outcomes if not one.ok]
        assert len(won) == 1, [one.text for one in outcomes]
        title = json.loads(won[0].text)["created"]
        assert f"that time is taken: “{title}”" in lost[0].text
    starts = [start for _, start in house.events()]
    assert len(starts) == len({*starts}) == TIMES


async def test_two_turns_lose_nothing_of_one_event(house: CalendarHouse) -> None:
    """One changes the title, one the place; whoever is second changes what the first has made."""
    house.put("m", "Meeting", TEN)
    for number in range(TIMES):
        title, place = f"title {number}", f"place {number}"
        calls = [house.call("update", event="m", title=title), house.call("update", event="m", place=place)]
        outcomes = await asyncio.gather(*calls)
        [data] = house.server.objects().values()
        for outcome, text in zip(outcomes, (title, place), strict=True):
            assert outcome.ok == (text.encode() in data), outcome.text
        assert any(one.ok for one in outcomes)


async def test_another_program_loses_nothing_of_one_event(house: CalendarHouse, started: DavProxy) -> None:
    """It writes at any moment of our call, without looking; ours is told, unless it was first."""
    chance, told = Random(43), 0
    house.put("m", "Meeting", TEN)
    await house.done("update", event="m", place="Ours")  # from now on, the mirror knows where it is
    house.put("m", "Meeting", TEN)
    moments = (await requests_of(house, started, "update", event="m", place="Ours")).index("PUT")
    for number in range(TIMES):
        house.put("m", "Meeting", TEN)
        theirs = f"Theirs {number}"
        before_request(
            started, chance.choice((moments, chance.randint(0, moments))), partial(house.put, "m", theirs, TEN)
        )
        outcome = await house.call("update", event="m", place="Ours")
        [data] = house.server.objects().values()
        assert theirs.encode() in data
        assert outcome.ok == (b"Ours" in data), outcome.text
        if not outcome.ok:
            told += 1
            assert f"There is now: “{theirs}”" in outcome.text
    assert 0 < told < TIMES


async def test_another_program_and_a_turn_never_book_one_time(house: CalendarHouse, started: DavProxy) -> None:
    """It books the time at any moment of our call, without looking; then ours is not there, and says so."""
    chance, taken_back = Random(43), 0
    made = await requests_of(house, started, "create", title="x", start=f"{DAY:%Y-%m-%d} 10:00")
    house.server.empty()
    last = len(made) - 1
    assert made[last] == "REPORT", "the time is looked at again after the write"
    for number in range(TIMES):
        moment = chance.randint(0, last)
        before_request(started, moment, partial(house.put, f"t{number}", "Theirs", TEN))
        outcome = await house.call("create", title="Ours", start=f"{DAY:%Y-%m-%d} 10:00")
        assert not outcome.ok, outcome.text
        assert "that time is taken: “Theirs”" in outcome.text
        assert [title for title, _ in house.events()] == ["Theirs"]
        taken_back += moment > made.index("PUT")
        house.server.delete(f"t{number}.ics")
    assert taken_back


SPLIT: Final[dict[str, Any]] = {
    "event": f"s/{DAY + timedelta(days=7):%Y%m%d}T100000",
    "scope": "following",
    "title": "Band",
}


def fail_from(proxy: DavProxy, number: int, *methods: str) -> None:
    """The server carries out none of these requests, from the one with that number on."""
    seen: list[str] = []

    def fail(asked: Asked) -> Answered | None:
        seen.extend([asked.method] if asked.method in methods else [])
        return Answered(503) if asked.method in methods and len(seen) > number else None

    proxy.before = fail


def titles(house: CalendarHouse) -> list[str]:
    return [title for title, _ in house.events()]


async def test_a_series_is_split_as_a_whole_or_not_at_all(house: CalendarHouse, started: DavProxy) -> None:
    """The second write fails, as the server does not take it, or as somebody else has changed the series."""
    house.put("s", "Choir", TEN, "RRULE:FREQ=WEEKLY;COUNT=5")
    before = house.server.objects()
    fail_from(started, 1, "PUT")
    said = await house.call("update", await house.approve("update", **SPLIT), **SPLIT)
    assert "Nothing was written: the server cannot be reached now, or is busy" in said.text
    assert house.server.objects() == before

    def change_series(asked: Asked) -> Answered | None:
        if asked.method == "PUT" and asked.path.endswith("/s.ics"):
            house.put("s", "Theirs", TEN, "RRULE:FREQ=WEEKLY;COUNT=5")
        return None

    started.before = change_series
    said = await house.call("update", await house.approve("update", **SPLIT), **SPLIT)
    assert "Nothing was written, as somebody else has changed this event meanwhile" in said.text
    assert titles(house) == ["Theirs"]


@pytest.mark.parametrize("then", ["undo", "again"])
async def test_half_a_split_series_is_told_and_can_be_undone(
    house: CalendarHouse, started: DavProxy, then: str
) -> None:
    """The server takes the first write, and neither the second one nor that the first is taken back."""
    house.put("s", "Choir", TEN, "RRULE:FREQ=WEEKLY;COUNT=5")
    before = house.server.objects()
    scope = await house.approve("update", **SPLIT)
    fail_from(started, 1, "PUT", "DELETE")
    said = await house.call("update", scope, **SPLIT)
    assert "could not be taken back" in said.text
    assert f"there is now “Band”, {DAY + timedelta(days=7):%A}" in said.text
    assert titles(house) == ["Band", "Choir"]
    started.behave()
    if then == "undo":
        [change] = re.findall(r"change ([0-9a-f]{12})", said.text)
        await house.approved("undo", change=change)
        assert "is undone already" in await house.refused("undo", change=change)
    else:
        assert (await house.prepare("update", scope, **SPLIT)) == PreparedCall("idempotent", "low", begun=True)
        assert "this was tried before" in (await house.call("update", scope, **SPLIT)).text
    assert house.server.objects() == before


async def test_a_write_of_which_nobody_knows_can_be_undone(house: CalendarHouse, started: DavProxy) -> None:
    """Its answer is lost, and nobody can look."""
    house.put("s", "Choir", TEN, "RRULE:FREQ=WEEKLY;COUNT=5")
    before = house.server.objects()
    puts: list[str] = []

    def cut(asked: Asked, answered: Answered) -> Answered | None:
        puts.extend([asked.path] if asked.method == "PUT" else [])
        return None if len(puts) > 1 else answered

    started.after = cut
    said = await house.call("update", await house.approve("update", **SPLIT), **SPLIT)
    assert "not certain" in said.text
    assert titles(house) == ["Band", "Choir"]
    started.behave()
    [change] = re.findall(r"change ([0-9a-f]{12})", said.text)
    await house.approved("undo", change=change)
    assert house.server.objects().keys() == before.keys()
    assert b"COUNT=5" in next(iter(house.server.objects().values()))


async def test_what_cannot_be_taken_back_is_told(house: CalendarHouse, started: DavProxy) -> None:
    """Another program books the time after our first look, and the server does not delete ours."""
    made = await requests_of(house, started, "create", title="x", start=f"{DAY:%Y-%m-%d} 10:00")
    house.server.empty()
    before_request(started, made.index("PUT"), partial(house.put, "t", "Theirs", TEN))
    count = started.before
    started.before = lambda asked: Answered(503) if asked.method == "DELETE" else count(asked)
    said = await house.call("create", title="Ours", start=f"{DAY:%Y-%m-%d} 10:00")
    assert "could not be taken back" in said.text
    assert "there is now “Ours”" in said.text
    assert "that time is taken: “Theirs”" in said.text
    started.behave()
    [change] = re.findall(r"change ([0-9a-f]{12})", said.text)
    await house.approved("undo", change=change)
    assert titles(house) == ["Theirs"]


async def test_of_two_attempts_of_a_step_the_later_one_writes(house: CalendarHouse, started: DavProxy) -> None:
    """The first one is held up where it sends its event, as in a worker that was taken for dead."""
    scope, given = scope_of(), {"title": "Ours", "start": f"{DAY:%Y-%m-%d} 10:00"}
    later: list[JsonObject] = []
    loop = asyncio.get_running_loop()

    def take_over(asked: Asked) -> Answered | None:
        if asked.method != "PUT":
            return None
        started.behave()
        later.append(asyncio.run_coroutine_threadsafe(house.done("create", scope, **given), loop).result(60))
        return None

    started.before = take_over
    first = await house.call("create", scope, **given)
    assert "something else writes into these calendars by now" in first.text
    assert (await house.done("create", scope, **given)) == later[0]
    assert titles(house) == ["Ours"]


@pytest.mark.parametrize("arrives", [False, True])
async def test_an_interrupted_deletion_of_a_date_is_repeated(
    house: CalendarHouse, started: DavProxy, *, arrives: bool
) -> None:
    """It only takes lines away, so that all that it leaves is there before, too."""
    other = TEN + timedelta(days=1)
    single = foreign_event("s", "Choir", TEN)
    date = foreign_event("s", "Band", other, f"RECURRENCE-ID:{other:%Y%m%dT%H%M%SZ}")
    both = single.replace(b"END:VCALENDAR", date[date.index(b"BEGIN:VEVENT") :].rstrip())
    house.server.put("s.ics", both)
    given = {"event": f"s/{other:%Y%m%dT%H%M%SZ}"}
    scope = await house.approve("delete", **given)

    def interrupt(asked: Asked) -> Answered | None:
        if asked.method == "PUT":
            return Answered(207, body=b"" if not arrives else started.answer_of_server(asked).body)
        return Answered(503) if "PUT" in [one.method for one in started.asked] else None

    started.asked.clear()
    started.before = interrupt
    assert "not certain" in (await house.call("delete", scope, **given)).text
    started.behave()
    await house.done("delete", scope, **given)
    assert titles(house) == ["Choir"]


@pytest.mark.parametrize("point", ["before the request", "after the request"])
async def test_a_creation_that_is_killed_is_one_event(
    house: CalendarHouse, started: DavProxy, database_url: str, forks: Forks, tmp_path: Path, point: str
) -> None:
    """Killed when the server is about to get the event, or has got it; then the step is repeated, twice."""
    env = {**os.environ, "CALENDAR_PASSWORD": PASSWORD}
    for number in range(KILLS):
        at = DAY + timedelta(days=number)
        given = {"title": f"Event {number}", "start": f"{at:%Y-%m-%d} 10:00"}
        key, errors = uuid4(), tmp_path / f"errors {number}"
        arguments = (database_url, str(started.port), str(key), json.dumps(given))
        child: list[Forked] = []
        kill_at(started, point, child)
        child.append(forks.start("tests.calendar_house", *arguments, env=env, errors=errors))
        assert await child[0].wait() == -9, errors.read_text()
        assert len(house.events()) == number + (point == "after the request")
        started.behave()
        for _ in range(2):
            said = await house.done("create", scope_of(key=key), **given)
            assert said["created"] == given["title"]
        assert len(house.events()) == number + 1


def kill_at(proxy: DavProxy, point: str, child: list[Forked]) -> None:
    """Kill whoever sends an event, before or after the server has it."""

    def kill_before(asked: Asked) -> Answered | None:
        if asked.method != "PUT":
            return None
        child[0].kill()
        return Answered(500)

    def kill_after(asked: Asked, answered: Answered) -> Answered | None:
        if asked.method != "PUT":
            return answered
        assert answered.status == 201
        child[0].kill()
        return None

    if point.startswith("before"):
        proxy.before = kill_before
    else:
        proxy.after = kill_after
