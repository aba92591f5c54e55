"""Tasks and events of asyncio: waiting for events with a limit, or for the first of several tasks; ending tasks.

Called wherever something is looked at again after a while, or runs beside something else. It knows nothing of
Switchboard, so every package may use it but those without I/O.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, ParamSpec, Protocol, TypeVar

_P = ParamSpec("_P")
_T = TypeVar("_T")


class Awaited(Protocol):
    """Something that is set once, such as an `asyncio.Event`."""

    async def wait(self) -> object:
        """Return once it is set."""
        ...


async def wait_at_most(seconds: float, *events: Awaited) -> None:
    """Until the first of the events is set, but no longer than so many seconds."""
    with suppress(TimeoutError):  # not wait_for, which may swallow a cancellation in Python 3.11
        async with asyncio.timeout(seconds):
            if len(events) == 1:  # without a task of its own
                await events[0].wait()
            else:
                await first_of(*(one.wait() for one in events or (asyncio.Event(),)))


async def first_of(*work: Coroutine[Any, Any, object]) -> None:
    """All until the first ends; the others are cancelled. Raises the first error."""
    tasks = [asyncio.create_task(part) for part in work]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            if task.done():
                await task
    finally:
        await cancel_tasks(*tasks)


async def unless(ended: Coroutine[Any, Any, object], work: Coroutine[Any, Any, _T]) -> _T | None:
    """What comes of the work; None if `ended` is over before, and then nothing of the work runs any more."""
    tasks = working, _ = asyncio.create_task(work), asyncio.create_task(ended)
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        await cancel_tasks(*tasks)


async def refuse_exit(work: Callable[_P, Coroutine[Any, Any, _T]], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """What comes of foreign work. Raises RuntimeError where it raises SystemExit, which would end the whole loop.

    It is begun in here, so that a task that is cancelled before it starts leaves nothing that nobody awaits.
    """
    try:
        return await work(*args, **kwargs)
    except SystemExit as error:
        raise RuntimeError(f"it wanted to end the process (SystemExit {error.code!r})") from error


async def cancel_tasks(*tasks: asyncio.Future[Any]) -> None:
    """End the tasks, and wait until they have ended, whatever they were at."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
