"""A loop whose clock jumps to the next timer instead of waiting, so that hours of a connector pass in milliseconds.

For programs whose world is in memory: nothing that runs in another thread or process is waited for.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _Jumping(selectors.DefaultSelector):
    """Where the loop would wait it is told that the time has passed."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        found = super().select(0)
        if not found:
            assert timeout is not None, "nothing will ever happen"
            self.now += max(timeout, 0.0)
        return found


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._jumping = _Jumping()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now


def in_no_time(main: Coroutine[Any, Any, T]) -> T:
    """Run it to its end in virtual time."""
    with asyncio.Runner(loop_factory=_Loop) as runner:
        return runner.run(main)


async def passes(seconds: float) -> None:
    """So much virtual time passes, and what is due in it happens."""
    await asyncio.sleep(seconds)
