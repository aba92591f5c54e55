"""Blocking work in a thread that can be stopped.

Called by the tools here for files, searches and long pages. In: a function that checks its `StopSignal` between pieces
of its work; out: its result. A thread cannot be killed, so a cancelled caller tells it to stop and waits until it has
stopped.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

_T = TypeVar("_T")


class Stopped(Exception):
    """The caller is gone."""


class StopSignal:
    """Whether to stop."""

    def __init__(self) -> None:
        self._asked = threading.Event()

    def ask(self) -> None:
        self._asked.set()

    def check(self) -> None:
        """Raises `Stopped` once a stop was requested."""
        if self._asked.is_set():
            raise Stopped


async def in_thread(work: Callable[[StopSignal], _T]) -> _T:
    """The result of `work`. Cancelled, it returns when the work has stopped."""
    stop = StopSignal()
    running = asyncio.ensure_future(asyncio.to_thread(work, stop))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        stop.ask()
        await asyncio.wait((running,))
        if not running.cancelled():
            running.exception()  # mark `Stopped` as retrieved
        raise
