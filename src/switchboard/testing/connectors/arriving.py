"""Laws of arriving messages: once, in order, as written, and not our own. Next: `leaving.py`."""

from __future__ import annotations

from datetime import UTC, datetime

from switchboard.core.channels.registry import CHANNELS
from switchboard.core.envelope.read import parse_envelope
from switchboard.domain.envelope import MAX_TEXT
from switchboard.domain.json_values import JsonObject
from switchboard.testing.connectors.driver import (
    DeletingDriver,
    Driver,
    EditingDriver,
    RenewingDriver,
    SharedDriver,
    SplittingDriver,
)
from switchboard.testing.connectors.expecting import MUCH, ODD_TEXTS, in_order, none_lost_or_doubled, same, says
from switchboard.testing.connectors.killing import RECEIVING_DEATHS, dies, killed_while_receiving
from switchboard.testing.connectors.running import connected, connector, scripted, texts, until
from switchboard.testing.connectors.switchboard import ScriptedSwitchboard


async def check_order_is_kept_within_each_conversation(driver: Driver) -> None:
    """200 messages of 20 conversations arrive once, and in order within each conversation; so do the answers."""
    for number in range(200):
        await driver.says(f"t{number % 20}", f"t{number % 20} {number:03}")
    async with connected(driver.configured) as switchboard:
        await until(lambda: len(switchboard.accepted) >= 200, "200 messages are accepted")
        in_order(texts(switchboard.accepted))
        answers = [switchboard.reply(one, f"re {texts([one])[0]}") for one in switchboard.accepted]
        await until(lambda: all(map(switchboard.outcome, answers)), "200 answers have an outcome")
    in_order([one.text.removeprefix("re ") for one in await driver.shown()])


async def check_what_is_given_again_is_no_second_message(driver: Driver) -> None:
    """A switchboard that has lost the cursor gets everything again, and recognises it."""
    await says(driver, 3)
    switchboard = scripted()
    async with connector(driver.configured, switchboard) as running:
        await until(lambda: len(switchboard.accepted) == 3, "3 messages are accepted")
        await running.killed()
    switchboard.cursor = None
    await driver.says("t", "message 4")
    async with connector(driver.configured, switchboard):
        await until(lambda: "message 4" in texts(switchboard.accepted), "a fourth message is accepted")
    same(texts(switchboard.accepted), [f"message {number}" for number in (1, 2, 3, 4)])


async def check_a_kill_while_receiving_loses_and_doubles_nothing(driver: Driver) -> None:
    """Killed at each named point and around each request: each message arrives once, and in order."""
    none_lost_or_doubled(await killed_while_receiving(driver, RECEIVING_DEATHS, 1))


async def check_what_is_refused_is_quarantined_and_the_rest_goes_on(driver: Driver) -> None:
    """A refused message delays no others, and a restart changes nothing; later it can be replayed, and is accepted."""
    switchboard = scripted()
    switchboard.refusal = lambda envelope: "invalid_value" if texts([envelope]) == ["message 2"] else None
    await says(driver, 3)
    async with connector(driver.configured, switchboard) as running:
        await until(lambda: len(switchboard.accepted) == 2, "2 messages are accepted")
        await until(lambda: len(switchboard.quarantined) == 1, "1 is in quarantine")
        await running.killed()
    switchboard.cursor = None
    await driver.says("t", "message 4")
    async with connector(driver.configured, switchboard) as running:
        await until(lambda: "message 4" in texts(switchboard.accepted), "the next one is accepted")
        await running.killed()
    same(texts(switchboard.accepted), ["message 1", "message 3", "message 4"])
    assert len(switchboard.quarantined) == 1, f"1 message was refused, and in quarantine are {switchboard.quarantined}"
    switchboard.refusal, switchboard.replays = lambda _: None, list(switchboard.quarantined)
    async with connector(driver.configured, switchboard):
        await until(lambda: "message 2" in texts(switchboard.accepted), "the refused one is replayed, and accepted")
        await until(lambda: not switchboard.quarantined, "it is in quarantine no more")
    same(texts(switchboard.accepted), ["message 1", "message 3", "message 4", "message 2"])


async def check_one_that_always_fails_holds_back_nobody_else(driver: Driver) -> None:
    """The server fails only for the third of five messages: the others are accepted meanwhile."""
    switchboard = scripted()
    switchboard.refusal = lambda envelope: "internal_error" if texts([envelope]) == ["t2"] else None
    for number in range(5):
        await driver.says(f"t{number}", f"t{number}")
    async with connector(driver.configured, switchboard):
        await until(lambda: len(switchboard.accepted) == 4, "the 4 others are accepted")
        switchboard.refusal = lambda _: None
        await until(lambda: len(switchboard.accepted) == 5, "the fault is mended, and the third is accepted")
    same(texts(switchboard.accepted), ["t0", "t1", "t3", "t4", "t2"])


async def check_odd_texts_arrive_as_they_were_written(driver: Driver) -> None:
    """Right-to-left text, emoji families, combining marks, foreign markup, and a message of maximum length."""
    written = (*ODD_TEXTS, "x" * min(driver.longest, MAX_TEXT))
    for number, text in enumerate(written):
        await driver.says(f"t{number}", text)
    async with connected(driver.configured) as switchboard:
        await until(lambda: _count_settled(switchboard) >= len(written), "all odd texts are settled")
    assert not switchboard.quarantined, f"odd texts were quarantined: {switchboard.quarantined}"
    found = texts(switchboard.accepted)
    lost = [text[:40] for text in written if text not in found]
    assert len(found) == len(written), f"{len(written)} odd texts were written, and {len(found)} arrived"
    assert not lost, f"other texts arrived than were written: {lost!r}"


async def check_more_than_a_message_can_hold_disturbs_nobody(driver: Driver) -> None:
    """1 MB, if people can write that much, is cut, or quarantined unchanged, and the next message arrives."""
    await _disturbs_nobody(driver, "x" * min(driver.longest, MUCH))


async def check_a_message_of_nothing_disturbs_nobody(driver: Driver) -> None:
    """A message without words is accepted as empty, or quarantined, and the next message arrives."""
    await _disturbs_nobody(driver, "")


async def _disturbs_nobody(driver: Driver, text: str) -> None:
    await driver.says("t", text)
    await driver.says("t2", "beside it")  # else what follows a long text at once may be the rest of it
    await driver.says("t", "after it")
    async with connected(driver.configured) as switchboard:
        await until(lambda: "after it" in texts(switchboard.accepted), "the next one is accepted")
        await until(lambda: _count_settled(switchboard) == 3, f"the one of {len(text)} characters is settled")


async def check_a_platform_that_starts_over_brings_no_second_message(driver: RenewingDriver) -> None:
    """The stored cursor is no longer valid: new messages arrive, and none twice."""
    await says(driver, 3)
    switchboard = scripted()
    async with connector(driver.configured, switchboard) as running:
        await until(lambda: len(switchboard.accepted) == 3, "3 messages are accepted")
        await until(lambda: switchboard.cursor is not None, "a cursor is kept")
        await running.killed()
    await driver.starts_over()
    for number in (4, 5):
        await driver.says("t", f"message {number}")
        async with connector(driver.configured, switchboard) as running:
            await until(lambda: f"message {number}" in texts(switchboard.accepted), "a new one is accepted")  # noqa: B023  it is awaited here
            await running.killed()
    same(texts(switchboard.accepted), [f"message {number}" for number in range(1, 6)])


async def check_what_we_or_programs_say_is_answered_by_nobody(driver: SharedDriver) -> None:
    """It is left out, or kept as history, or marked so that the server knows that no person waits for an answer."""
    await driver.own_says("t1", "our own words")
    await driver.bot_says("t2", "beep")
    await driver.says("t3", "a person")
    async with connected(driver.configured) as switchboard:
        await until(lambda: "a person" in texts(switchboard.accepted), "the message of a person is accepted")
    same(texts([one for one in switchboard.accepted if _is_answered(one)]), ["a person"])


async def check_an_edit_is_no_second_message(driver: EditingDriver) -> None:
    """An edit is a separate event that names its message."""
    await driver.says("t", "message 1")
    async with connected(driver.configured) as switchboard:
        await until(lambda: bool(switchboard.accepted), "the message is accepted")
        await driver.edits("t", "message one")
        await until(lambda: len(switchboard.accepted) == 2, "the edit is accepted")
    _check_reference(switchboard, "edit")


async def check_a_deletion_is_no_second_message(driver: DeletingDriver) -> None:
    """A deletion is a separate event that names its message."""
    await driver.says("t", "message 1")
    async with connected(driver.configured) as switchboard:
        await until(lambda: bool(switchboard.accepted), "the message is accepted")
        await driver.deletes("t")
        await until(lambda: len(switchboard.accepted) == 2, "the deletion is accepted")
    _check_reference(switchboard, "delete")


async def check_a_text_that_was_split_is_one_message(driver: SplittingDriver) -> None:
    """So are two such texts in two chats, and what people say before and after them stays apart."""
    await driver.says("t1", "before")
    for thread in ("t1", "t2"):
        await driver.splits(thread, _long_text(thread))
    await driver.says("t1", "after")
    async with connected(driver.configured) as switchboard:
        await until(lambda: "after" in texts(switchboard.accepted), "what was said last is accepted")
        await until(lambda: len(switchboard.accepted) >= 4, "so are both texts")
    same(sorted(texts(switchboard.accepted)), sorted(["before", _long_text("t1"), _long_text("t2"), "after"]))
    in_t1 = [text for text in texts(switchboard.accepted) if text != _long_text("t2")]
    same(in_t1, ["before", _long_text("t1"), "after"])


async def check_a_kill_while_pieces_of_a_text_arrive_loses_and_doubles_nothing(driver: SplittingDriver) -> None:
    """Killed at each named point and around each request: each piece arrives once, and all are in order."""
    switchboard, written = scripted(), list[str]()
    for death in RECEIVING_DEATHS:
        written.append(_long_text(str(death)))
        await driver.splits("t", written[-1])
        await dies(driver, switchboard, death)
    await driver.says("t", "the last")
    async with connector(driver.configured, switchboard):
        await until(lambda: "the last" in texts(switchboard.accepted), "what was said last is accepted")
    same(["".join(texts(switchboard.accepted))], ["".join((*written, "the last"))])


def _long_text(name: str) -> str:
    """A text of 10,000 characters without blanks."""
    return "".join(f"{name.replace(' ', '-')}.{number:04}," for number in range(10_000 // 5))[:10_000]


def _check_reference(switchboard: ScriptedSwitchboard, kind: str) -> None:
    first, second = (one["event"] for one in switchboard.accepted)
    assert second["external_event_id"] != first["external_event_id"], f"the {kind} has the id of its message"
    assert (second.get("kind"), bool(second.get("refers_to"))) == (kind, True), f"it is no {kind}: {second}"


def _count_settled(switchboard: ScriptedSwitchboard) -> int:
    return len(switchboard.accepted) + len(switchboard.quarantined)


def _is_answered(envelope: JsonObject) -> bool:
    """Whether a server would have it answered."""
    read = parse_envelope(envelope, now=datetime.now(UTC))
    is_automatic = CHANNELS[read.source.channel].automatic(read) is not None
    return not (read.kept_as_history or is_automatic)
