"""The checks themselves: each runs the kernel for an account of the driver's platform, and kills it where it hurts.

Called by tests of channels. Next: `switchboard.py` in this package, the switchboard that they run against.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import httpx2

from switchboard.connectors.kernel.accounts import Configured
from switchboard.connectors.kernel.parts import REPEAT_NOTE
from switchboard.connectors.kernel.runner import Runner
from switchboard.domain.json_values import JsonObject
from switchboard.ports.connector import Identity
from switchboard.testing.connectors.driver import Driver
from switchboard.testing.connectors.switchboard import ScriptedSwitchboard

_WITHIN_S: Final = 30.0
_LOOK_S: Final = 0.01
_ODD_TEXTS: Final = ("שלום עולם", "👨‍👩‍👧‍👦 🇩🇪", "e\u0301", "<b>&amp;", "a\tb\nc", "x" * 10_000)


ConnectorCheck = Callable[[Driver], Awaitable[None]]


@dataclass(slots=True)
class Running:
    """A connector that runs, and the switchboard that it runs against."""

    switchboard: ScriptedSwitchboard
    task: asyncio.Task[int]
    stop: asyncio.Event

    async def killed(self) -> None:
        """As if its process were gone: it hears of nothing any more."""
        self.switchboard.dead.set()
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        self.switchboard.process_ended()


@asynccontextmanager
async def connector(configured: Configured, switchboard: ScriptedSwitchboard) -> AsyncIterator[Running]:
    """Run the account until the block ends."""

    async def connect(_: Identity) -> httpx2.AsyncClient:
        return switchboard.client()

    stop = asyncio.Event()
    runner = Runner(configured, connect, asyncio.get_running_loop().time)
    running = Running(switchboard, asyncio.create_task(runner.run(stop)), stop)
    try:
        yield running
    finally:
        if not running.task.done():
            await running.killed()


async def until(holds: Callable[[], bool], what: str) -> None:
    """Wait for it. Raises AssertionError."""
    ends = asyncio.get_running_loop().time() + _WITHIN_S
    while not holds():
        assert asyncio.get_running_loop().time() < ends, f"it did not happen: {what}"
        await asyncio.sleep(_LOOK_S)


def scripted() -> ScriptedSwitchboard:
    """A fresh switchboard by the clock of the loop."""
    return ScriptedSwitchboard(asyncio.get_running_loop().time)


def texts(envelopes: Sequence[JsonObject]) -> list[str]:
    """The words of messages."""
    return [envelope["payload"]["normalized_text"] for envelope in envelopes]


async def check_order_is_kept_within_each_conversation(driver: Driver) -> None:
    """200 messages of 20 conversations arrive once, and those of a conversation in their order."""
    for number in range(200):
        await driver.says(f"t{number % 20}", f"t{number % 20} {number:03}")
    switchboard = scripted()
    async with connector(driver.configured, switchboard):
        await until(lambda: len(switchboard.accepted) >= 200, "200 messages are accepted")
    found = texts(switchboard.accepted)
    for thread in range(20):
        mine = [text for text in found if text.startswith(f"t{thread} ")]
        assert mine == [f"t{thread} {number:03}" for number in range(thread, 200, 20)], f"order in t{thread}: {mine}"


async def check_what_is_given_again_is_no_second_message(driver: Driver) -> None:
    """A switchboard that has lost the cursor gets everything again, and knows it."""
    await _says(driver, 3)
    switchboard = scripted()
    async with connector(driver.configured, switchboard) as running:
        await until(lambda: len(switchboard.accepted) == 3, "3 messages are accepted")
        await running.killed()
    switchboard.cursor = None
    await driver.says("t", "message 4")
    async with connector(driver.configured, switchboard):
        await until(lambda: "message 4" in texts(switchboard.accepted), "a fourth message is accepted")
    assert texts(switchboard.accepted) == [f"message {number}" for number in (1, 2, 3, 4)]


async def check_a_kill_at_any_request_loses_and_doubles_nothing(driver: Driver) -> None:
    """Killed at each of its requests, before it is processed or before its answer; each message arrives once."""
    switchboard = scripted()
    said = 0
    for number in range(2, 12):
        for processed in (False, True):
            said += 1
            await driver.says("t", f"message {said}")
            switchboard.requests.clear()
            switchboard.dies_at = (number, processed)
            async with connector(driver.configured, switchboard) as running:
                await _killed_or_idle(running, said)
    await driver.says("t", "the last")
    async with connector(driver.configured, switchboard):
        await until(lambda: "the last" in texts(switchboard.accepted), "what was said last is accepted")
    assert texts(switchboard.accepted) == [*(f"message {number + 1}" for number in range(said)), "the last"]


async def check_a_kill_in_a_reply_of_five_parts_repeats_none_unmarked(driver: Driver) -> None:
    """Killed at each request of a reply: every part once and in order, or again and marked as a repeat."""
    await driver.says("t", "tell me")
    switchboard = scripted()
    async with connector(driver.configured, switchboard):
        await until(lambda: bool(switchboard.accepted), "the message is accepted")
    limit = driver.configured.manifest.capabilities.text_limit
    for number in range(2, 16):
        text = _long_text(number, limit)
        outbox_id = switchboard.reply(switchboard.accepted[0], text)
        before = len(await driver.shown())
        switchboard.requests.clear()
        switchboard.dies_at = (number, bool(number % 2))
        async with connector(driver.configured, switchboard) as running:
            await _killed_or_sent(running, outbox_id)
        async with connector(driver.configured, switchboard):
            await _answered(switchboard, outbox_id)
        _complete(text, [some.text for some in list(await driver.shown())[before:]])


async def check_an_outage_of_the_switchboard_loses_nothing(driver: Driver) -> None:
    """It answers 503, and later it is there again."""
    switchboard = scripted()
    async with connector(driver.configured, switchboard):
        await until(lambda: "POST /v1/outbox/next" in switchboard.requests, "the account is open")
        switchboard.unavailable = True
        await _says(driver, 3)
        before = len(switchboard.requests)
        await until(lambda: len(switchboard.requests) > before + 3, "it tries again")
        switchboard.unavailable = False
        await until(lambda: len(switchboard.accepted) == 3, "3 messages are accepted")
    assert texts(switchboard.accepted) == ["message 1", "message 2", "message 3"]


async def check_what_is_refused_is_quarantined_and_the_rest_goes_on(driver: Driver) -> None:
    """A refusal holds nobody up, and a restart changes nothing."""
    switchboard = scripted()
    switchboard.refusal = lambda envelope: (
        "invalid_value" if envelope["payload"]["normalized_text"] == "message 2" else None
    )
    await _says(driver, 3)
    for _ in range(2):
        async with connector(driver.configured, switchboard) as running:
            await until(lambda: len(switchboard.accepted) == 2, "2 messages are accepted")
            await until(lambda: len(switchboard.quarantined) == 1, "1 is in quarantine")
            await running.killed()
    assert texts(switchboard.accepted) == ["message 1", "message 3"]


async def check_odd_texts_arrive_as_they_were_written(driver: Driver) -> None:
    """Right to left, families of emoji, combining marks, markup of others, and much."""
    for number, text in enumerate(_ODD_TEXTS):
        await driver.says(f"t{number}", text)
    switchboard = scripted()
    async with connector(driver.configured, switchboard):
        await until(
            lambda: len(switchboard.accepted) + len(switchboard.quarantined) == len(_ODD_TEXTS),
            "all odd texts are settled",
        )
    lost = set(_ODD_TEXTS) - set(texts(switchboard.accepted))
    assert len(lost) == len(switchboard.quarantined), f"other texts arrived than were written: {lost!r}"


async def check_a_second_process_stands_by_and_takes_over(driver: Driver) -> None:
    """Two processes of an account: one works; when it is gone without a word, the other does."""
    switchboard = ScriptedSwitchboard(asyncio.get_running_loop().time, ttl_s=6.0)
    async with connector(driver.configured, switchboard) as first:
        await until(lambda: "POST /v1/outbox/next" in switchboard.requests, "the first one serves")
        async with connector(driver.configured, switchboard):
            await until(lambda: switchboard.requests.count("POST /v1/connectors/lease") >= 2, "the second one asks")
            first.task.cancel()
            await asyncio.gather(first.task, return_exceptions=True)
            await driver.says("t", "are you there?")
            await until(lambda: bool(switchboard.accepted), "the second one takes over")


async def check_secrets_are_told_to_nobody(driver: Driver) -> None:
    """No heartbeat, envelope or quarantined event holds a secret of the account."""
    await _says(driver, 1)
    switchboard = scripted()
    async with connector(driver.configured, switchboard):
        await until(lambda: bool(switchboard.accepted and switchboard.heartbeats), "a heartbeat comes")
    told = f"{switchboard.accepted} {switchboard.heartbeats} {switchboard.quarantined} {driver.configured}"
    assert not [secret for secret in driver.configured.account.secrets.values() if secret in told]


CHECKS: Final[tuple[ConnectorCheck, ...]] = (
    check_order_is_kept_within_each_conversation,
    check_what_is_given_again_is_no_second_message,
    check_a_kill_at_any_request_loses_and_doubles_nothing,
    check_a_kill_in_a_reply_of_five_parts_repeats_none_unmarked,
    check_an_outage_of_the_switchboard_loses_nothing,
    check_what_is_refused_is_quarantined_and_the_rest_goes_on,
    check_odd_texts_arrive_as_they_were_written,
    check_a_second_process_stands_by_and_takes_over,
    check_secrets_are_told_to_nobody,
)


async def _says(driver: Driver, count: int) -> None:
    for number in range(count):
        await driver.says("t", f"message {number + 1}")


def _long_text(number: int, limit: int) -> str:
    """Five paragraphs, of which no two fit into one part."""
    size = max(limit * 2 // 3, 8)
    return "\n\n".join(f"{number}.{part} ".ljust(size, "x") for part in range(5))


def _complete(text: str, sent: Sequence[str]) -> None:
    marked = [one for one in sent if REPEAT_NOTE in one]
    plain = [one.replace(REPEAT_NOTE, "").strip() for one in sent]
    assert list(dict.fromkeys(plain)) == text.split("\n\n"), f"parts are missing or out of order: {sent}"
    assert len(plain) - len(set(plain)) <= len(marked), f"a part was repeated without a word: {sent}"


async def _killed_or_idle(running: Running, said: int) -> None:
    """Until it has died, or has nothing left to do."""
    board = running.switchboard
    await until(
        lambda: board.dead.is_set() or (len(board.accepted) == said and bool(board.cursor)), "a kill, or the message"
    )
    await running.killed()


async def _answered(switchboard: ScriptedSwitchboard, outbox_id: str) -> None:
    await until(lambda: bool(switchboard.outcome(outbox_id)), "the reply has an outcome")


async def _killed_or_sent(running: Running, outbox_id: str) -> None:
    board = running.switchboard
    await until(lambda: board.dead.is_set() or bool(board.outcome(outbox_id)), "a kill, or the outcome")
    await running.killed()
