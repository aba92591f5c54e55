"""Laws of replies: complete, every part once or marked, at the platform's pace. Next: `serving.py`."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from typing import Final

from switchboard.core.channels.registry import CHANNELS
from switchboard.core.envelope.identity import conversation
from switchboard.core.envelope.read import parse_envelope
from switchboard.core.people.strangers import contact_of
from switchboard.core.turns.choices import is_press, one_line
from switchboard.domain.json_values import JsonObject
from switchboard.testing.connectors.clock import passes
from switchboard.testing.connectors.driver import (
    BusyDriver,
    ButtonDriver,
    Driver,
    KeyDriver,
    LateDriver,
    QuotaDriver,
    ThreadDriver,
)
from switchboard.testing.connectors.expecting import MUCH, ODD_TEXTS, answered, none_lost_or_doubled, same
from switchboard.testing.connectors.killing import SENDING_DEATHS, dies, five_parts, killed_while_sending
from switchboard.testing.connectors.running import Death, connected, connector, until
from switchboard.testing.connectors.switchboard import ScriptedSwitchboard

_PATIENCE_S: Final = 40.0
_WORD: Final = "word "
_MOST_PARTS: Final = 300
_CONVERSATIONS: Final = 5
_APART_S: Final = 3.0
_LATE: Final = "POST /v1/outbox/late"
_CHOICES: Final = tuple(
    (label, f"choice:{'A' * 22}.{number}.{'B' * 16}") for number, label in enumerate(("1. Yes", "2. " + 57 * "n"), 1)
)
"""Labels and values as Switchboard makes them, as long as they can be."""


async def check_a_kill_in_a_reply_of_five_parts_repeats_none_unmarked(driver: Driver) -> None:
    """Killed at each point of each part: every part is sent once and in order, or again with a mark, or uncertain."""
    none_lost_or_doubled(await killed_while_sending(driver, SENDING_DEATHS, 1))


async def check_odd_texts_leave_as_they_were_written(driver: Driver) -> None:
    """Right-to-left text, emoji families and combining marks; and up to 1 MB, whose parts add up to the same text."""
    await driver.says("t", "tell me")
    limit = driver.configured.manifest.capabilities.text_limit
    long = _WORD * (min(MUCH, _MOST_PARTS * limit) // len(_WORD))
    async with connected(driver.configured) as switchboard:
        await until(lambda: bool(switchboard.accepted), "the message is accepted")
        for text in (*(text for text in ODD_TEXTS if "<" not in text and "\t" not in text), long):
            before = len(await driver.shown())
            outbox_id = switchboard.reply(switchboard.accepted[0], text)
            await answered(switchboard, outbox_id)
            assert switchboard.outcome(outbox_id) == "sent", f"an odd text is {switchboard.outcome(outbox_id)}"
            parts = [one.text for one in list(await driver.shown())[before:]]
            assert " ".join(parts).split() == text.split(), f"other words left than were written: {parts[0][:80]!r}"


async def check_a_text_of_nothing_disturbs_nobody(driver: Driver) -> None:
    """An answer without words sends nothing, but gets an outcome; the next answer is sent."""
    await driver.says("t", "message 1")
    async with connected(driver.configured) as switchboard:
        await until(lambda: bool(switchboard.accepted), "a message is accepted")
        for text in (" \n", "after it"):
            await answered(switchboard, switchboard.reply(switchboard.accepted[0], text))
    same([one.text for one in await driver.shown()], ["after it"])


async def check_a_press_brings_back_what_its_button_stands_for(driver: ButtonDriver) -> None:
    """Buttons have the labels of the choices, cut where they are too long; a press is an event of whoever pressed."""
    able = driver.configured.manifest.capabilities
    await driver.says("t", "ask me")
    async with connected(driver.configured) as switchboard:
        await until(lambda: bool(switchboard.accepted), "the message is accepted")
        await answered(switchboard, switchboard.reply(switchboard.accepted[0], "May I?", choices=_CHOICES))
        labels = list(await driver.buttons("t"))
        same(labels, [one_line(label, able.label_limit) for label, _ in _CHOICES])
        await driver.presses("t", labels[1])
        pressed = partial(_find_accepted, switchboard, _CHOICES[1][1])
        await until(pressed, "the press is accepted")
    event, message = (parse_envelope(one, now=datetime.now(UTC)) for one in (pressed()[0], switchboard.accepted[0]))
    assert is_press(event, CHANNELS[event.source.channel]), f"a press cannot decide anything: {event}"
    assert event.sender.identity == message.sender.identity, f"a press is somebody else's: {event.sender}"
    assert event.event.refers_to, "a press does not refer to the message with the button"
    where = [conversation(one, CHANNELS[one.source.channel]) for one in (event, message)]
    assert where[0] == where[1], f"a press is of another conversation: {where}"


async def check_a_place_is_approved_once_and_each_thread_gets_its_answers(driver: ThreadDriver) -> None:
    """Whoever lets a place in lets all its threads in, and no other place; each thread gets its own answers."""
    called = (("p", "a"), ("p", "b"), ("p", "a"), ("q", "c"))
    heard = list[JsonObject]()
    async with connected(driver.configured) as switchboard:
        for number, (place, thread) in enumerate(called, 1):
            await driver.calls(place, thread, f"message {number}")
            said = partial(_find_accepted, switchboard, f"message {number}")
            await until(said, f"message {number} is accepted")
            heard += said()
            await answered(switchboard, switchboard.reply(heard[-1], f"to {thread}"))
    same([f"{one.text} in {one.thread}" for one in await driver.shown()], [f"to {one} in {one}" for _, one in called])
    read = [parse_envelope(one, now=datetime.now(UTC)) for one in heard]
    threads = [conversation(one, CHANNELS[one.source.channel]) for one in read]
    assert threads[0] == threads[2], f"one thread is several conversations: {threads[0]} and {threads[2]}"
    assert len(set(threads)) == len({*called}), f"several threads are one conversation: {threads}"
    assert not any(one.kept_as_history for one in read), "what is said to the account is not answered"
    contacts = [contact_of(one, CHANNELS[one.source.channel]) for one in read]
    assert {one.scope for one in contacts} == {"group"}, f"they do not count as written in a group: {contacts}"
    ours, other = {one.identity for one in contacts[:3]}, contacts[3].identity
    assert len(ours) == 1, f"each thread must be approved by itself: {sorted(ours)}"
    assert other not in ours, f"two places are approved as one: {other}"


def _find_accepted(switchboard: ScriptedSwitchboard, said: str) -> list[JsonObject]:
    """The message with this text, which may also name the account."""
    return [one for one in switchboard.accepted if said in one["payload"].get("normalized_text", "")]


async def check_patience_is_shown_and_costs_nothing(driver: BusyDriver) -> None:
    """It is postponed five times by 40 s: all parts arrive in order, none is uncertain, and no attempt is used up."""
    await driver.says("t", "tell me")
    text = five_parts("1", driver.configured.manifest.capabilities.text_limit)
    async with connected(driver.configured) as switchboard:
        await until(lambda: bool(switchboard.accepted), "the message is accepted")
        driver.puts_off(5, _PATIENCE_S)
        outbox_id = switchboard.reply(switchboard.accepted[0], text)
        await answered(switchboard, outbox_id, more_s=5 * _PATIENCE_S)
    assert switchboard.outcome(outbox_id) == "sent", f"a reply that was put off is {switchboard.outcome(outbox_id)}"
    same([one.text for one in await driver.shown()], text.split("\n\n"))
    used = [one for one in switchboard.receipts if one != "later"]
    assert used == ["sent"], f"a pause was an attempt: {used}"


async def check_a_part_keeps_a_key_of_its_own(driver: KeyDriver) -> None:
    """Three answers of the same words, the first of which is put off: each has one key, which no other one has."""
    await driver.says("t", "tell me")
    async with connected(driver.configured) as switchboard:
        await until(lambda: bool(switchboard.accepted), "the message is accepted")
        driver.puts_off(2, 1.0)
        answers = [switchboard.reply(switchboard.accepted[0], "yes") for _ in range(3)]
        await until(lambda: all(map(switchboard.outcome, answers)), "all have an outcome")
    first, *others = dict.fromkeys(driver.given_keys())
    assert list(driver.given_keys()) == [first] * 3 + others, f"keys changed between attempts: {driver.given_keys()}"
    assert len(others) == 2, f"answers share a key: {driver.given_keys()}"
    same([one.text for one in await driver.shown()], ["yes"] * 3)


async def check_a_limit_of_the_account_pauses_all_of_it(driver: QuotaDriver) -> None:
    """One of many answers meets a limit of the account: nothing is sent until that is over, and then everything once.

    Those that had their turn before wait, too.
    """
    threads = [f"t{number}" for number in range(_CONVERSATIONS)]
    for thread in threads:
        await driver.says(thread, f"hello from {thread}")
    async with connected(driver.configured) as switchboard:
        await until(lambda: len(switchboard.accepted) == len(threads), "all messages are accepted")
        driver.limits_account(_PATIENCE_S)
        answers = list[str]()
        for accepted in switchboard.accepted:
            answers.append(switchboard.reply(accepted, f"an answer to {len(answers)}"))
            await passes(_APART_S)
        await until(lambda: all(map(switchboard.outcome, answers)), "all have an outcome", more_s=3 * _PATIENCE_S)
    assert driver.hasty() == 0, f"{driver.hasty()} parts were sent while the account might send none"
    same(sorted(one.text for one in await driver.shown()), sorted(f"an answer to {n}" for n in range(len(threads))))
    used = [one for one in switchboard.receipts if one != "later"]
    assert used == ["sent"] * len(threads), f"a pause of the account was an attempt: {used}"


async def check_a_failure_after_sending_is_told_once(driver: LateDriver) -> None:
    """The platform took a reply, and reports twice that it was not delivered: the reply has failed, by one report.

    Sent again, it is sent once, and the old report does not count against it.
    """
    await driver.says("t", "tell me")
    async with connected(driver.configured) as switchboard:
        await until(lambda: bool(switchboard.accepted), "the message is accepted")
        outbox_id = switchboard.reply(switchboard.accepted[0], "yes")
        await until(lambda: switchboard.outcome(outbox_id) == "sent", "the reply is sent")
        await driver.fails_later()
        await until(lambda: switchboard.outcome(outbox_id) == "failed", "the reply has failed")
        switchboard.resend(outbox_id)
        await until(lambda: switchboard.outcome(outbox_id) == "sent", "the reply is sent again")
        reports = switchboard.requests.count(_LATE)
        await driver.fails_later(again=True)
        await until(lambda: switchboard.requests.count(_LATE) > reports, "the report comes again")
        assert switchboard.outcome(outbox_id) == "sent", "a report counted twice"
    assert len(switchboard.late.reports) == 1, f"a report was taken for {len(switchboard.late.reports)}"
    same([one.text for one in await driver.shown()], ["yes", "yes"])


async def check_a_failure_before_our_receipt_counts(driver: LateDriver) -> None:
    """The connector dies before it reports that a reply was sent, and the next one hears first that it was not."""
    await driver.says("t", "tell me")
    async with connected(driver.configured) as switchboard:
        await until(lambda: bool(switchboard.accepted), "the message is accepted")
    outbox_id = switchboard.reply(switchboard.accepted[0], "yes")
    await dies(driver, switchboard, Death("connector_unreported"))
    await driver.fails_later()
    async with connector(driver.configured, switchboard):
        await until(lambda: switchboard.outcome(outbox_id) == "failed", "the reply has failed")
    same([one.text for one in await driver.shown()], ["yes"])
