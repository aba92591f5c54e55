"""The checks themselves: each runs the kernel for an account of the driver's platform, and kills it where it hurts.

Called by tests of channels. Next: `running.py`, which runs and kills; `switchboard.py`, what they run against.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from switchboard.connectors.kernel.parts import REPEAT_NOTE
from switchboard.domain.json_values import JsonObject
from switchboard.testing.connectors.driver import Driver, EditingDriver, NetworkDriver
from switchboard.testing.connectors.running import (
    RECEIVING_DEATHS,
    SENDING_DEATHS,
    Death,
    Running,
    connector,
    listening,
    scripted,
    texts,
    until,
)
from switchboard.testing.connectors.switchboard import ScriptedSwitchboard

_TTL_S: Final = 6.0
_IDLE_LEASES: Final = 3
"""Renewals of the lease for which an idle account is watched: one every 5 s."""
_LEASE: Final = "POST /v1/connectors/lease"
_MUCH: Final = 1_000_000
_ODD_TEXTS: Final = (
    "שלום עולם",
    "👨‍👩‍👧‍👦 🇩🇪",
    "e\u0301",
    "<b>&amp;",
    "a\tb\nc",
)

ConnectorCheck = Callable[[Driver], Awaitable[None]]
NetworkCheck = Callable[[NetworkDriver], Awaitable[None]]
EditingCheck = Callable[[EditingDriver], Awaitable[None]]


async def check_order_is_kept_within_each_conversation(driver: Driver) -> None:
    """200 messages of 20 conversations arrive once, and those of a conversation in their order; so do the answers."""
    for number in range(200):
        await driver.says(f"t{number % 20}", f"t{number % 20} {number:03}")
    switchboard = scripted()
    async with connector(driver.configured, switchboard):
        await until(lambda: len(switchboard.accepted) >= 200, "200 messages are accepted")
        _in_order(texts(switchboard.accepted))
        answers = [switchboard.reply(one, f"re {texts([one])[0]}") for one in switchboard.accepted]
        await until(lambda: all(map(switchboard.outcome, answers)), "200 answers have an outcome")
    _in_order([one.text.removeprefix("re ") for one in await driver.shown()])


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
    _same(texts(switchboard.accepted), [f"message {number}" for number in (1, 2, 3, 4)])


async def check_a_kill_while_receiving_loses_and_doubles_nothing(driver: Driver) -> None:
    """Killed at each named point and around each request, twice; each message arrives once."""
    switchboard = scripted()
    expected = list[str]()
    for death in RECEIVING_DEATHS * 2:
        expected.append(f"message {len(expected) + 1}")
        await driver.says("t", expected[-1])
        async with connector(driver.configured, switchboard, death) as running:
            await _died(running, death)
    expected.append("the last")
    await driver.says("t", "the last")
    async with connector(driver.configured, switchboard):
        await until(lambda: "the last" in texts(switchboard.accepted), "what was said last is accepted")
    _same(texts(switchboard.accepted), expected)


async def check_a_kill_in_a_reply_of_five_parts_repeats_none_unmarked(driver: Driver) -> None:
    """Killed at each point of each part: every part once and in order, again and marked, or the reply is uncertain."""
    await driver.says("t", "tell me")
    switchboard = scripted()
    async with connector(driver.configured, switchboard):
        await until(lambda: bool(switchboard.accepted), "the message is accepted")
    limit = driver.configured.manifest.capabilities.text_limit
    for number, death in enumerate(SENDING_DEATHS, 1):
        text = _long_text(number, limit)
        outbox_id = switchboard.reply(switchboard.accepted[0], text)
        before = len(await driver.shown())
        async with connector(driver.configured, switchboard, death) as running:
            await _died(running, death)
        async with connector(driver.configured, switchboard):
            await _answered(switchboard, outbox_id)
        sent = [some.text for some in list(await driver.shown())[before:]]
        _complete(text, sent, switchboard.outcome(outbox_id))


async def check_an_outage_of_the_switchboard_loses_nothing(driver: Driver) -> None:
    """It has no room (429), or is away (503), and later it is there again."""
    switchboard, said = scripted(), list[str]()
    async with connector(driver.configured, switchboard):
        await until(lambda: "POST /v1/outbox/next" in switchboard.requests, "the account is open")
        for status in (429, 503):
            switchboard.outage, switchboard.unavailable = status, True
            for _ in range(3):
                said.append(f"message {len(said) + 1}")
                await driver.says("t", said[-1])
            before = len(switchboard.requests)
            await until(lambda before=before: len(switchboard.requests) > before + 3, "it tries again")  # type: ignore[misc]
            switchboard.unavailable = False
            await until(lambda: len(switchboard.accepted) == len(said), "all messages are accepted")
    _same(texts(switchboard.accepted), said)


async def check_what_is_refused_is_quarantined_and_the_rest_goes_on(driver: Driver) -> None:
    """A refusal holds nobody up, and a restart changes nothing."""
    switchboard = scripted()
    switchboard.refusal = lambda envelope: "invalid_value" if texts([envelope]) == ["message 2"] else None
    await _says(driver, 3)
    for _ in range(2):
        async with connector(driver.configured, switchboard) as running:
            await until(lambda: len(switchboard.accepted) == 2, "2 messages are accepted")
            await until(lambda: len(switchboard.quarantined) == 1, "1 is in quarantine")
            await running.killed()
    _same(texts(switchboard.accepted), ["message 1", "message 3"])


async def check_one_that_always_fails_holds_back_nobody_else(driver: Driver) -> None:
    """The third of five has a fault of the server to itself: the others are accepted meanwhile."""
    switchboard = scripted()
    switchboard.refusal = lambda envelope: "internal_error" if texts([envelope]) == ["t2"] else None
    for number in range(5):
        await driver.says(f"t{number}", f"t{number}")
    async with connector(driver.configured, switchboard):
        await until(lambda: len(switchboard.accepted) == 4, "the 4 others are accepted")
        switchboard.refusal = lambda _: None
        await until(lambda: len(switchboard.accepted) == 5, "the fault is mended, and the third is accepted")
    _same(texts(switchboard.accepted), ["t0", "t1", "t3", "t4", "t2"])


async def check_odd_texts_arrive_as_they_were_written(driver: Driver) -> None:
    """Right to left, families of emoji, combining marks, markup of others, and as much as fits, up to 1 MB."""
    written = (*_ODD_TEXTS, "x" * min(driver.longest, _MUCH))
    for number, text in enumerate(written):
        await driver.says(f"t{number}", text)
    switchboard = scripted()
    async with connector(driver.configured, switchboard):
        await until(lambda: _settled(switchboard) >= len(written), "all odd texts are settled")
    assert not switchboard.quarantined, f"odd texts were quarantined: {switchboard.quarantined}"
    found = texts(switchboard.accepted)
    lost = [text[:40] for text in written if text not in found]
    assert len(found) == len(written), f"{len(written)} odd texts were written, and {len(found)} arrived"
    assert not lost, f"other texts arrived than were written: {lost!r}"


async def check_a_text_of_nothing_disturbs_nobody(driver: Driver) -> None:
    """An answer without words is sent as nothing, and has an outcome; the next one goes."""
    await driver.says("t", "message 1")
    switchboard = scripted()
    async with connector(driver.configured, switchboard):
        await until(lambda: bool(switchboard.accepted), "a message is accepted")
        for text in (" \n", "after it"):
            await _answered(switchboard, switchboard.reply(switchboard.accepted[0], text))
    _same([one.text for one in await driver.shown()], ["after it"])


async def check_a_second_process_stands_by_and_takes_over(driver: Driver) -> None:
    """Two processes of an account: one works; when it is gone without a word, the other does, and only then."""
    switchboard = scripted(_TTL_S)
    async with connector(driver.configured, switchboard) as first:
        await until(lambda: "POST /v1/outbox/next" in switchboard.requests, "the first one serves")
        async with connector(driver.configured, switchboard):
            await until(lambda: switchboard.requests.count(_LEASE) >= 2, "the second one asks")
            assert switchboard.requests.count("POST /v1/outbox/next") == 1, "the second one serves beside the first"
            await first.vanished()
            await driver.says("t", "are you there?")
            await until(lambda: bool(switchboard.accepted), "the second one takes over")
    _same(texts(switchboard.accepted), ["are you there?"])


async def check_secrets_are_told_to_nobody(driver: Driver) -> None:
    """No log, heartbeat, envelope, quarantined event or description of the account holds a secret of it."""
    await _says(driver, 1)
    switchboard = scripted()
    with listening() as logged:
        async with connector(driver.configured, switchboard):
            await until(lambda: bool(switchboard.accepted and switchboard.heartbeats), "a heartbeat comes")
            await _answered(switchboard, switchboard.reply(switchboard.accepted[0], "hello"))
    told = {
        "an envelope": switchboard.accepted,
        "a heartbeat": switchboard.heartbeats,
        "quarantine": switchboard.quarantined,
        "the account": driver.configured,
        "a log": logged,
    }
    for where, what in told.items():
        leaked = [name for name, value in driver.configured.account.secrets.items() if value in str(what)]
        assert not leaked, f"{where} tells a secret: {leaked}"


async def check_an_outage_of_the_platform_loses_nothing(driver: NetworkDriver) -> None:
    """It is out of reach while an answer waits; then that arrives once, and so does what people write.

    What was about to be sent waits for the end of its lease: a second process comes then.
    """
    await driver.says("t", "message 1")
    switchboard = scripted()
    async with connector(driver.configured, switchboard) as running:
        await until(lambda: bool(switchboard.accepted), "a message is accepted")
        async with driver.away():
            outbox_id = switchboard.reply(switchboard.accepted[0], "an answer")
            before = len(switchboard.heartbeats)
            await until(lambda: "degraded" in _states(switchboard.heartbeats[before:]), "it is told of")
        await driver.says("t", "message 2")
        await until(lambda: len(switchboard.accepted) == 2, "a second message is accepted")
        await running.killed()
    async with connector(driver.configured, switchboard):
        await _answered(switchboard, outbox_id)
    _same(texts(switchboard.accepted), ["message 1", "message 2"])
    _complete("an answer", [one.text for one in await driver.shown()], switchboard.outcome(outbox_id))


async def check_patience_is_shown_and_costs_nothing(driver: NetworkDriver) -> None:
    """Each of five parts is put off: all arrive in order, none is uncertain, and no other attempt is counted."""
    await driver.says("t", "tell me")
    switchboard = scripted()
    text = _long_text(1, driver.configured.manifest.capabilities.text_limit)
    async with connector(driver.configured, switchboard):
        await until(lambda: bool(switchboard.accepted), "the message is accepted")
        for _ in range(5):
            driver.puts_off(1, 1.0)
        outbox_id = switchboard.reply(switchboard.accepted[0], text)
        await _answered(switchboard, outbox_id)
    assert switchboard.outcome(outbox_id) == "sent", f"a reply that was put off is {switchboard.outcome(outbox_id)}"
    _same([one.text for one in await driver.shown()], text.split("\n\n"))
    assert len([one for one in switchboard.requests if one.endswith("/receipt")]) == 1, "a pause was an attempt"


async def check_an_idle_account_asks_for_nothing(driver: NetworkDriver) -> None:
    """Beside long polls the platform hears of nothing in a quarter of a minute."""
    switchboard = scripted()
    async with connector(driver.configured, switchboard):
        await until(lambda: "POST /v1/outbox/next" in switchboard.requests, "the account is open")
        before = driver.asked()
        enough = switchboard.requests.count(_LEASE) + _IDLE_LEASES
        await until(lambda: switchboard.requests.count(_LEASE) >= enough, "time passes")
        asked = driver.asked() - before
    assert asked == 0, f"an idle account has asked {asked} times"


async def check_an_edit_is_no_second_message(driver: EditingDriver) -> None:
    """It is an event of its own that says to which one it belongs."""
    await driver.says("t", "message 1")
    switchboard = scripted()
    async with connector(driver.configured, switchboard):
        await until(lambda: bool(switchboard.accepted), "the message is accepted")
        await driver.edits("t", "message one")
        await until(lambda: len(switchboard.accepted) == 2, "the edit is accepted")
    first, second = (one["event"] for one in switchboard.accepted)
    assert second["external_event_id"] != first["external_event_id"], "the edit has the id of its message"
    assert (second.get("kind"), bool(second.get("refers_to"))) == ("edit", True), f"it is no edit: {second}"


CHECKS: Final[tuple[ConnectorCheck, ...]] = (
    check_order_is_kept_within_each_conversation,
    check_what_is_given_again_is_no_second_message,
    check_a_kill_while_receiving_loses_and_doubles_nothing,
    check_a_kill_in_a_reply_of_five_parts_repeats_none_unmarked,
    check_an_outage_of_the_switchboard_loses_nothing,
    check_what_is_refused_is_quarantined_and_the_rest_goes_on,
    check_one_that_always_fails_holds_back_nobody_else,
    check_odd_texts_arrive_as_they_were_written,
    check_a_text_of_nothing_disturbs_nobody,
    check_a_second_process_stands_by_and_takes_over,
    check_secrets_are_told_to_nobody,
)
"""For every channel."""

NETWORK_CHECKS: Final[tuple[NetworkCheck, ...]] = (
    check_an_outage_of_the_platform_loses_nothing,
    check_patience_is_shown_and_costs_nothing,
    check_an_idle_account_asks_for_nothing,
)
"""For channels whose platform is reached over a network: they need a `NetworkDriver`."""

EDITING_CHECKS: Final[tuple[EditingCheck, ...]] = (check_an_edit_is_no_second_message,)
"""For channels that have edits: they need an `EditingDriver`."""


def _settled(switchboard: ScriptedSwitchboard) -> int:
    return len(switchboard.accepted) + len(switchboard.quarantined)


def _states(heartbeats: Sequence[JsonObject]) -> list[str]:
    return [beat["state"] for beat in heartbeats]


async def _says(driver: Driver, count: int) -> None:
    for number in range(count):
        await driver.says("t", f"message {number + 1}")


def _same(found: Sequence[str], expected: Sequence[str]) -> None:
    assert list(found) == list(expected), f"expected {list(expected)}, and found {list(found)}"


def _in_order(found: Sequence[str]) -> None:
    """Those of each of 20 conversations."""
    for thread in range(20):
        mine = [text for text in found if text.startswith(f"t{thread} ")]
        expected = [f"t{thread} {number:03}" for number in range(thread, 200, 20)]
        assert mine == expected, f"order in t{thread}: {mine}"


def _long_text(number: int, limit: int) -> str:
    """Five paragraphs, of which no two fit into one part."""
    size = max(limit * 2 // 3, 8)
    return "\n\n".join(f"{number}.{part} ".ljust(size, "x") for part in range(5))


def _complete(text: str, sent: Sequence[str], outcome: str) -> None:
    plain = [one.replace(REPEAT_NOTE, "").strip() for one in sent]
    parts = text.split("\n\n")
    assert outcome in {"sent", "uncertain"}, f"the reply is {outcome}"
    expected = parts if outcome == "sent" else parts[: len(set(plain))]
    assert list(dict.fromkeys(plain)) == expected, f"parts are missing or out of order: {sent}"
    marked = sum(REPEAT_NOTE in one for one in sent)
    assert len(plain) - len(set(plain)) <= marked, f"a part was repeated without a word: {sent}"


async def _died(running: Running, death: Death) -> None:
    """The connector comes by there. Nothing else ends it."""
    await until(running.dead.is_set, f"it dies at {death}")
    await running.killed()


async def _answered(switchboard: ScriptedSwitchboard, outbox_id: str) -> None:
    await until(lambda: bool(switchboard.outcome(outbox_id)), "the reply has an outcome")
