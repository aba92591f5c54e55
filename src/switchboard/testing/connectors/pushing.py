"""Laws of platforms that push events over a socket, and want an answer soon. Next: `checks.py`, all laws."""

from __future__ import annotations

from typing import Final

from switchboard.ports.connector import DEAF_S
from switchboard.testing.connectors.clock import passes
from switchboard.testing.connectors.driver import DeafDriver, GapDriver, PushDriver, SignInDriver
from switchboard.testing.connectors.expecting import none_lost_or_doubled, same, says
from switchboard.testing.connectors.killing import PUSHING_DEATHS, killed_while_receiving
from switchboard.testing.connectors.running import connected, connector, scripted, texts, until

_KEEP: Final = "/v1/connectors/posted"
_INGEST: Final = "/v1/ingest/batch"
_NEXT: Final = "POST /v1/outbox/next"
_LITTLE_S: Final = 30.0
_AGAIN_S: Final = 1000.0
"""By then a sign-in is tried again."""
_SIGN_INS: Final = 6


async def check_a_pushed_event_is_answered_only_when_it_is_kept(driver: PushDriver) -> None:
    """While the switchboard keeps nothing, nothing is answered; then all of it arrives once, and is answered."""
    switchboard = scripted()
    switchboard.closed = {_KEEP}
    async with connector(driver.configured, switchboard):
        await until(lambda: _NEXT in switchboard.requests, "the account is open")
        await says(driver, 3)
        await until(lambda: f"POST {_KEEP}" in switchboard.requests, "an event was to be kept")
        await passes(_LITTLE_S)
        assert driver.acknowledged() == 0, f"{driver.acknowledged()} events were answered, and none was kept"
        switchboard.closed = set()
        await until(lambda: len(switchboard.accepted) == 3, "all are accepted", more_s=_LITTLE_S)
        await until(lambda: driver.acknowledged() == 3, "all are answered", more_s=_LITTLE_S)
    same(texts(switchboard.accepted), [f"message {number}" for number in (1, 2, 3)])


async def check_an_answer_waits_for_no_other_event(driver: PushDriver) -> None:
    """While the switchboard takes no message, what is pushed is kept and answered; later it arrives once."""
    switchboard = scripted()
    switchboard.closed = {_INGEST}
    async with connector(driver.configured, switchboard) as running:
        await says(driver, 3)
        await until(lambda: driver.acknowledged() == 3, "all are answered")
        assert not switchboard.accepted, "the switchboard takes none"
        await running.killed()
    switchboard.closed = set()
    async with connector(driver.configured, switchboard):
        await until(lambda: len(switchboard.accepted) == 3, "all are accepted")
        await until(lambda: not switchboard.posted.events, "none is kept any longer")
    same(texts(switchboard.accepted), [f"message {number}" for number in (1, 2, 3)])


async def check_a_kill_between_push_and_answer_loses_and_doubles_nothing(driver: PushDriver) -> None:
    """Killed before an event is kept, before it is answered, and around each request: it arrives once."""
    none_lost_or_doubled(await killed_while_receiving(driver, PUSHING_DEATHS, 1))


async def check_what_is_pushed_again_is_no_second_event(driver: PushDriver) -> None:
    """An event is repeated while the first waits, and again once that was accepted: it arrives once."""
    switchboard = scripted()
    switchboard.closed = {_INGEST}
    async with connector(driver.configured, switchboard):
        await driver.says("t", "message 1")
        await until(lambda: len(switchboard.posted.events) == 1, "it is kept")
        requests = switchboard.requests.count(f"POST {_KEEP}")
        driver.pushes_again()
        await until(lambda: switchboard.requests.count(f"POST {_KEEP}") > requests, "it comes again")
        assert len(switchboard.posted.events) == 1, "what waits already was kept again"
        switchboard.closed = set()
        await until(
            lambda: bool(switchboard.accepted) and not switchboard.posted.events, "it is settled", more_s=_LITTLE_S
        )
        driver.pushes_again()
        await driver.says("t", "message 2")
        await until(lambda: "message 2" in texts(switchboard.accepted), "the next one is accepted")
    same(texts(switchboard.accepted), ["message 1", "message 2"])


async def check_a_socket_that_breaks_loses_nothing(driver: PushDriver) -> None:
    """It is cut before an event, and right after it: each arrives once."""
    async with connected(driver.configured) as switchboard:
        for number in range(1, 4):
            await until(lambda: _NEXT in switchboard.requests, "the account is open")
            driver.drops_socket()
            await driver.says("t", f"message {number}")
            driver.drops_socket()
            await until(lambda: len(switchboard.accepted) == number, f"message {number} is accepted")  # noqa: B023  it is awaited here
    same(texts(switchboard.accepted), [f"message {number}" for number in (1, 2, 3)])


async def check_a_deaf_socket_is_replaced(driver: DeafDriver) -> None:
    """It stays open, answers pings and delivers nothing: after half an hour another one does."""
    async with connected(driver.configured) as switchboard:
        await driver.says("t", "message 1")
        await until(lambda: bool(switchboard.accepted), "the first is accepted")
        driver.goes_deaf()
        await driver.says("t", "message 2")
        await passes(DEAF_S)
        await until(lambda: len(switchboard.accepted) == 2, "the second is accepted", more_s=2 * _LITTLE_S)
        await driver.says("t", "message 3")
        await until(lambda: len(switchboard.accepted) == 3, "the third is accepted")
    same(texts(switchboard.accepted), [f"message {number}" for number in (1, 2, 3)])


async def check_a_gap_loses_and_doubles_nothing(driver: GapDriver) -> None:
    """Cut off for less than what the platform remembers for us, and for more; then the process is restarted as late."""
    gaps = (driver.window_s / 2, driver.window_s * 2)
    switchboard, said = scripted(), ["before"]

    async def say(gap: float) -> None:
        said.append(f"message {len(said)}")
        await driver.says("t", said[-1])
        await passes(gap)

    async def arrive(gap: float) -> None:
        await until(lambda: len(switchboard.accepted) == len(said), f"what was said in {gap:.0f} s is accepted")

    async with connector(driver.configured, switchboard) as running:
        await driver.says("t", "before")
        await arrive(0.0)
        for gap in gaps:
            driver.cuts(gap)
            await say(gap)
            await say(2 * _LITTLE_S)  # by then it has connected again
            await arrive(gap)
        await running.killed()
    for gap in gaps:
        await say(gap)
        async with connector(driver.configured, switchboard) as running:
            await arrive(gap)
            await running.killed()
    same(texts(switchboard.accepted), said)


async def check_no_more_sign_ins_than_the_platform_allows(driver: SignInDriver) -> None:
    """Its sockets break at once: before it has signed in too often, the account has failed, and says why.

    On the next day it receives again, unaided.
    """
    driver.leaves_sign_ins(_SIGN_INS)
    async with connected(driver.configured) as switchboard:
        await until(lambda: _NEXT in switchboard.requests, "the account is open")
        for _ in range(2 * _SIGN_INS):
            driver.drops_socket()
            await passes(_LITTLE_S)
        assert not driver.overdrawn(), f"it has signed in {_SIGN_INS} times, which was the last time"
        states = [(beat["state"], bool(beat["error_message"])) for beat in switchboard.heartbeats]
        assert ("failed", True) in states, f"it does not say that it may not sign in: {states}"
        driver.leaves_sign_ins(1000)
        await passes(_AGAIN_S)
        await driver.says("t", "the next day")
        await until(lambda: bool(switchboard.accepted), "it receives again")
    same(texts(switchboard.accepted), ["the next day"])


LAWS: Final = (
    check_a_pushed_event_is_answered_only_when_it_is_kept,
    check_an_answer_waits_for_no_other_event,
    check_a_kill_between_push_and_answer_loses_and_doubles_nothing,
    check_what_is_pushed_again_is_no_second_event,
    check_a_socket_that_breaks_loses_nothing,
)
"""Those for every platform that pushes."""
