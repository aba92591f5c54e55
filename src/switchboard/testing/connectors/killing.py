"""Kills a connector repeatedly, at each point in turn, and counts the fates of messages and replies.

`checks.py` does this a few times; `table` is for longer runs of your own. Next: `running.py`, which
defines the points.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from functools import partial
from itertools import groupby
from typing import Final

from msgspec import Struct

from switchboard.connectors.kernel.parts import REPEAT_NOTE
from switchboard.testing.connectors.driver import Driver
from switchboard.testing.connectors.running import Death, around, connected, connector, scripted, texts, until
from switchboard.testing.connectors.switchboard import ScriptedSwitchboard

RECEIVING_DEATHS: Final = (
    Death("connector_received"),
    Death("connector_queued"),
    Death("connector_submitted"),
    Death("connector_before_cursor"),
    Death("connector_cursor_saved"),
    Death("connector_confirmed"),
    *around("/connectors/lease", "/ingest/batch", "/connectors/cursor"),
)
PUSHING_DEATHS: Final = (
    Death("connector_pushed"),
    Death("connector_kept"),
    *around("/connectors/posted", "/posted/next"),
)
"""For platforms that push: before an event is kept, and before it is answered."""
SENDING_DEATHS: Final = (
    Death("connector_fetched"),
    *(Death(f"connector_{at}", part) for at in ("intended", "sent", "recorded") for part in range(1, 6)),
    Death("connector_unreported"),
    Death("connector_reported"),
    *around("/outbox/next", "/parts", "/receipt"),
)


class Killed(Struct, frozen=True):
    """The fate of messages, or of replies of five parts; during each of them the connector died once at this point.

    `doubled`: accepted again, or sent again without a mark. `marked`: parts that were sent again with a mark.
    `uncertain`: replies whose fate is unknown, and reported as such.
    """

    death: Death
    kills: int
    lost: int = 0
    doubled: int = 0
    marked: int = 0
    uncertain: int = 0


async def killed_while_receiving(driver: Driver, deaths: Sequence[Death], kills: int) -> list[Killed]:
    """For each kill a person writes one message to the account."""
    switchboard = scripted()
    for death in deaths:
        for number in range(kills):
            await driver.says("t", f"{death} {number}")
            await dies(driver, switchboard, death)
    await driver.says("t", "the last")
    async with connector(driver.configured, switchboard):
        await until(lambda: "the last" in texts(switchboard.accepted), "what was said last is accepted")
    found = texts(switchboard.accepted)
    expected = [f"{death} {number}" for death in deaths for number in range(kills)]
    assert [one for one in dict.fromkeys(found) if one in expected] == sorted(
        set(found) & set(expected), key=expected.index
    ), f"messages arrived out of order: {found}"
    return [
        Killed(
            death,
            kills,
            lost=sum(f"{death} {number}" not in found for number in range(kills)),
            doubled=sum(max(found.count(f"{death} {number}") - 1, 0) for number in range(kills)),
        )
        for death in deaths
    ]


async def killed_while_sending(driver: Driver, deaths: Sequence[Death], kills: int) -> list[Killed]:
    """For each kill, the account sends one reply of five parts."""
    await driver.says("t", "tell me")
    async with connected(driver.configured) as switchboard:
        await until(lambda: "tell me" in texts(switchboard.accepted), "the message is accepted")
    return [_sum_kills([one async for one in _kill_replies(driver, switchboard, death, kills)]) for death in deaths]


async def _kill_replies(
    driver: Driver, switchboard: ScriptedSwitchboard, death: Death, kills: int
) -> AsyncIterator[Killed]:
    limit = driver.configured.manifest.capabilities.text_limit
    for number in range(kills):
        text = five_parts(f"{death.at}{death.nth}{death.processed}{number}", limit)
        outbox_id = switchboard.reply(switchboard.accepted[0], text)
        before = len(await driver.shown())
        await dies(driver, switchboard, death)
        async with connector(driver.configured, switchboard):
            await until(partial(switchboard.outcome, outbox_id), "the reply has an outcome")
        sent = [some.text for some in list(await driver.shown())[before:]]
        yield became(death, text, sent, switchboard.outcome(outbox_id))


def five_parts(name: str, limit: int) -> str:
    """Five paragraphs, no two of which fit into one part."""
    size = max(limit * 2 // 3, len(name) + 2)
    return "\n\n".join(f"{name}.{part} ".ljust(size, "x") for part in range(5))


def became(death: Death, text: str, sent: Sequence[str], outcome: str) -> Killed:
    """The fate of one reply; `sent`: its parts as the platform shows them, in order. Raises AssertionError."""
    assert outcome in {"sent", "uncertain"}, f"the reply is {outcome}"
    plain = [one.replace(REPEAT_NOTE, "").strip() for one in sent]
    once = list(dict.fromkeys(plain))
    expected = text.split("\n\n")
    assert once == [one for one in expected if one in once], f"parts are out of order, or nobody's: {sent}"
    marked = sum(REPEAT_NOTE in one for one in sent)
    again = len(plain) - len(once)
    return Killed(
        death,
        1,
        # Parts after an uncertain one wait for a person.
        lost=len(expected) - len(once) if outcome == "sent" or once != expected[: len(once)] else 0,
        doubled=max(again - marked, 0),
        marked=marked,
        uncertain=int(outcome == "uncertain"),
    )


def table(rows: Iterable[Killed]) -> str:
    """One line per point, with the parts of replies added up."""
    heads = ("killed", "kills", "lost", "doubled", "marked", "uncertain")
    lines = [heads] + [
        (str(one.death), *map(str, (one.kills, one.lost, one.doubled, one.marked, one.uncertain)))
        for _, some in groupby(rows, key=lambda one: (one.death.at, one.death.processed))
        for one in [_sum_kills(list(some))]
    ]
    widths = [max(len(line[at]) for line in lines) for at in range(len(heads))]
    return "\n".join(
        "  ".join(
            (line[0].ljust(widths[0]), *(word.rjust(width) for word, width in zip(line[1:], widths[1:], strict=True)))
        )
        for line in lines
    )


def _sum_kills(some: Sequence[Killed]) -> Killed:
    return Killed(
        Death(some[0].death.at, processed=some[0].death.processed)
        if len({one.death for one in some}) > 1
        else some[0].death,
        kills=sum(one.kills for one in some),
        lost=sum(one.lost for one in some),
        doubled=sum(one.doubled for one in some),
        marked=sum(one.marked for one in some),
        uncertain=sum(one.uncertain for one in some),
    )


async def dies(driver: Driver, switchboard: ScriptedSwitchboard, death: Death) -> None:
    """Run the connector until it dies at this point."""
    async with connector(driver.configured, switchboard, death) as running:
        await until(running.dead.is_set, f"it dies at {death}")
        await running.killed()
