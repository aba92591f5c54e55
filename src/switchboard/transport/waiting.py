"""Waiting: for an event, but not for ever; and for the first of some work.

Called wherever something is looked at again after a while, or runs beside something else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress


async def wait_at_most(seconds: float, event: asyncio.Event) -> None:
    """Until the event, but no longer than so many seconds."""
    with suppress(TimeoutError):  # not wait_for, which may swallow a cancellation in Python 3.11
        async with asyncio.timeout(seconds):
            await event.wait()


async def first_of(*work: Coroutine[object, object, None]) -> None:
    """All until the first ends; the others are cancelled. Raises the first error."""
    tasks = [asyncio.create_task(part) for part in work]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            if task.done():
                await task
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
