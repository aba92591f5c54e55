"""Virtual time, so that a test of an outage of a minute does not take a minute.

For a driver whose platform lives in the process of the test:

    def test_my_channel(check: ConnectorCheck) -> None:
        in_no_time(check(MyDriver()))

If other processes take part, real time passes, except for the time that a check skips with `passes`. Called by tests
and `checks.py`.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from math import ceil
from time import monotonic
from typing import Any, Final, TypeVar, TypeVarTuple, Unpack

_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")
_STEP_S: Final = 1.0
_MEANWHILE_S: Final = 0.005
"""Real seconds for others to work at each skipped step."""


class _Selector(selectors.DefaultSelector):
    """`skips`: whether to skip the time for which the loop would only wait."""

    def __init__(self, *, skips: bool) -> None:
        super().__init__()
        self.skips = skips
        self.skipped = 0.0
        self.threads = 0
        """The number of threads that work for the loop; no time is skipped while there are any."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if not self.skips or self.threads or timeout is None:
            return super().select(timeout)
        found = super().select(0)
        if not found:
            self.skipped += max(timeout, 0.0)
        return found


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self, *, skips: bool) -> None:
        self._clock = _Selector(skips=skips)
        super().__init__(self._clock)

    @property
    def skips(self) -> bool:
        return self._clock.skips

    def time(self) -> float:
        return monotonic() + self._clock.skipped

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[Unpack[_Ts]], _T], *args: *_Ts
    ) -> asyncio.Future[_T]:
        working = super().run_in_executor(executor, func, *args)
        self._clock.threads += 1
        working.add_done_callback(self._end_thread)
        return working

    def _end_thread(self, _: asyncio.Future[Any]) -> None:
        self._clock.threads -= 1

    async def skip(self, seconds: float) -> None:
        if self.skips:
            await asyncio.sleep(seconds)
            return
        for _ in range(ceil(seconds / _STEP_S)):
            self._clock.skipped += _STEP_S
            await asyncio.sleep(_MEANWHILE_S)


def in_no_time(main: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine to its end; whenever nothing happens in this process, skip to the next timer."""
    with asyncio.Runner(loop_factory=lambda: _Loop(skips=True)) as runner:
        return runner.run(main)


def in_its_time(main: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine to its end in real time, which only `passes` can skip."""
    with asyncio.Runner(loop_factory=lambda: _Loop(skips=False)) as runner:
        return runner.run(main)


async def passes(seconds: float) -> None:
    """Let this much time pass, with everything that is due in it; in any other event loop, really wait."""
    loop = asyncio.get_running_loop()
    if isinstance(loop, _Loop):
        await loop.skip(seconds)
    else:
        await asyncio.sleep(seconds)


def is_skipped() -> bool:
    """Whether time is skipped here, so that pauses of the machine do not count."""
    loop = asyncio.get_running_loop()
    return isinstance(loop, _Loop) and loop.skips
