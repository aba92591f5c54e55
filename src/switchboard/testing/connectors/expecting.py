"""Expectations of checks. Called by `arriving.py`, `leaving.py` and `serving.py`; next: `running.py`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from switchboard.testing.connectors.driver import Driver
from switchboard.testing.connectors.killing import Killed
from switchboard.testing.connectors.running import until
from switchboard.testing.connectors.switchboard import ScriptedSwitchboard

ODD_TEXTS: Final = (
    "שלום עולם, مرحبا",
    "👨‍👩‍👧‍👦 🇩🇪 👍🏽",
    "e\u0301",
    "<b>&amp;",
    "a\tb\nc",
)
MUCH: Final = 1_000_000


async def says(driver: Driver, count: int) -> None:
    """A person writes this many numbered messages."""
    for number in range(count):
        await driver.says("t", f"message {number + 1}")


async def answered(switchboard: ScriptedSwitchboard, outbox_id: str, *, more_s: float = 0.0) -> None:
    """Wait for the reply's outcome, `more_s` longer than usual. Raises AssertionError."""
    await until(lambda: bool(switchboard.outcome(outbox_id)), "the reply has an outcome", more_s=more_s)


def same(found: Sequence[str], expected: Sequence[str]) -> None:
    """Raises AssertionError unless both are equal."""
    assert list(found) == list(expected), f"expected {shortened(expected)}, and found {shortened(found)}"


def none_lost_or_doubled(rows: Sequence[Killed]) -> None:
    """Raises AssertionError if a message or a part was lost, or sent twice without a mark."""
    bad = [row for row in rows if row.lost or row.doubled]
    assert not bad, f"lost, or sent twice without a word: {bad}"


def in_order(found: Sequence[str]) -> None:
    """Raises AssertionError unless these are 200 texts of 20 conversations, in order within each."""
    for thread in range(20):
        mine = [text for text in found if text.startswith(f"t{thread} ")]
        expected = [f"t{thread} {number:03}" for number in range(thread, 200, 20)]
        assert mine == expected, f"order in t{thread}: {mine}"


def shortened(texts: Sequence[str]) -> list[str]:
    """Texts in a form short enough for messages."""
    return [text if len(text) <= 200 else f"{text[:200]}… ({len(text)})" for text in texts]
