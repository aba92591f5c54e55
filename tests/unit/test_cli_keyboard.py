"""What is typed while an answer is written, of which the terminal has the last line and the server none yet."""

from __future__ import annotations

import asyncio
import os
import select

import pytest

from switchboard.cli.messages.keyboard import Keyboard
from switchboard.cli.messages.talk import MessageProgress


async def test_a_line_that_is_typed_while_a_stop_is_on_its_way_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal, keys = os.pipe()
    asked, kept = asyncio.Event(), list[str]()

    async def following() -> MessageProgress:
        os.write(keys, b"/stop\n")
        await asked.wait()
        for line in (b"and the weather?\n", b"/stop\n"):
            os.write(keys, line)
            while select.select([terminal], [], [], 0)[0]:
                await asyncio.sleep(0)
        return MessageProgress("a-request", "answered", True, ())

    async def never_answered() -> None:
        asked.set()
        await asyncio.Event().wait()

    with os.fdopen(terminal) as stdin, os.fdopen(keys, "w"):
        monkeypatch.setattr("sys.stdin", stdin)
        await Keyboard("s", kept).attend(never_answered, following())
    assert kept == ["and the weather?"], "a stop that nothing is left for is no message"
