"""Writers of one calendar at once, and writers that are killed: nothing is written twice, nothing of others is lost."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final
from uuid import uuid4

import pytest

from switchboard.store.database import Database
from tests.calendar_house import DAY, CalendarHouse, account_at, open_house, scope_of
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
        assert f"there is something else then: “{title}”" in lost[0].text
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
        assert "there is something else then: “Theirs”" in outcome.text
        assert [title for title, _ in house.events()] == ["Theirs"]
        taken_back += moment > made.index("PUT")
        house.server.delete(f"t{number}.ics")
    assert taken_back


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
