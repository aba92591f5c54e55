"""The laws of platforms that push: the scripted one passes, and one with a planted defect fails the law it breaks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from itertools import count
from typing import Final

import pytest

from switchboard.ports.connector import Batch, PostedEvents
from switchboard.testing.connectors import (
    ConnectorCheck,
    ScriptedPlatform,
    ScriptedPushPlatform,
    checks_for,
    in_no_time,
)
from switchboard.testing.connectors.push_platform import PushSession
from switchboard.testing.connectors.running import connector, scripted, until
from tests.width import WIDE

ALL: Final = checks_for(ScriptedPushPlatform)
OWN: Final = tuple(one for one in ALL if one not in checks_for(ScriptedPlatform))


@pytest.mark.parametrize("check", ALL if WIDE else OWN, ids=lambda check: check.__name__)
def test_the_scripted_push_platform(check: ConnectorCheck) -> None:
    in_no_time(check(ScriptedPushPlatform()))


async def test_an_account_says_that_the_switchboard_keeps_nothing() -> None:
    """It does not blame the platform."""
    platform, switchboard = ScriptedPushPlatform(), scripted()
    switchboard.closed = {"/v1/connectors/posted"}
    async with connector(platform.configured, switchboard):
        await until(lambda: platform.socket is not None, "a socket is open")
        await platform.says("t", "hello")
        await until(lambda: any(one["state"] == "degraded" for one in switchboard.heartbeats), "it is degraded")
    [why] = {one["error_message"] for one in switchboard.heartbeats if one["state"] == "degraded"}
    assert why == "the switchboard keeps no event now: scripted: unavailable"


# Planted defects -----------------------------------------------------------------------------------------------------


class WithoutHistory(PushSession):
    """Fetches nothing of what it has missed."""

    def receive_posted(self, cursor: str | None, posted: PostedEvents) -> AsyncIterator[Batch]:
        batches = super().receive_posted(cursor, posted)
        self.seen = len(self.pushing.events)
        return batches


class AnswersFirst(WithoutHistory):
    """Answers what is pushed, and then has it kept."""

    async def take(self, raw: bytes, posted: PostedEvents) -> None:
        self.pushing.answered.append(raw)
        await posted.keep(raw, raw.hex())


class AnswersLate(PushSession):
    """Answers nothing before the switchboard has taken it."""

    async def take(self, raw: bytes, posted: PostedEvents) -> None:
        await posted.keep(raw, raw.hex())

    async def confirm(self, cursor: str) -> None:
        await super().confirm(cursor)
        self.pushing.answered += [one.raw for one in self.pushing.events[: self.seen]]


class MarksAnew(PushSession):
    """Takes each push for another event."""

    numbers = count()

    async def take(self, raw: bytes, posted: PostedEvents) -> None:
        await posted.keep(raw, str(next(self.numbers)))
        self.pushing.answered.append(raw)


class Trusting(PushSession):
    """Believes that a socket without events is alive."""

    deaf_s = None


class HangsUp(PushSession):
    """Listens to no second socket."""

    async def listen(self, posted: PostedEvents) -> None:
        try:
            await super().listen(posted)
        except OSError:
            await asyncio.Event().wait()


class Spendthrift(PushSession):
    """Signs in as often as it is permitted."""

    reserve = 0


KEPT = "a_pushed_event_is_answered_only_when_it_is_kept"
ALONE = "an_answer_waits_for_no_other_event"
KILL = "a_kill_between_push_and_answer_loses_and_doubles_nothing"
AGAIN = "what_is_pushed_again_is_no_second_event"
SOCKET = "a_socket_that_breaks_loses_nothing"
DEAF = "a_deaf_socket_is_replaced"
GAP = "a_gap_loses_and_doubles_nothing"
SIGN_INS = "no_more_sign_ins_than_the_platform_allows"

PLANTED: Final[Mapping[type[PushSession], frozenset[str]]] = {
    made: frozenset(laws)
    for made, *laws in (
        (PushSession,),
        (WithoutHistory, DEAF, GAP),
        (AnswersFirst, KEPT, KILL, DEAF, GAP),
        (AnswersLate, ALONE),
        (MarksAnew, AGAIN),
        (Trusting, DEAF),
        (HangsUp, KEPT, SOCKET, DEAF, GAP, SIGN_INS),
        (Spendthrift, SIGN_INS),
    )
}


@pytest.mark.parametrize("planted", PLANTED, ids=lambda one: one.__name__)
def test_a_planted_defect_fails_its_laws_and_no_other(planted: type[PushSession]) -> None:
    laws = [one for one in OWN if WIDE or one.__name__.removeprefix("check_") in PLANTED[planted]]
    broken = {one.__name__.removeprefix("check_") for one in laws if _fails(one, planted)}
    assert broken == PLANTED[planted]


def test_every_law_of_pushing_has_a_defect_that_breaks_it() -> None:
    assert {one.__name__.removeprefix("check_") for one in OWN} == {law for laws in PLANTED.values() for law in laws}


def _fails(check: ConnectorCheck, planted: type[PushSession]) -> bool:
    try:
        in_no_time(check(ScriptedPushPlatform(session=planted)))
    except AssertionError:
        return True
    return False
