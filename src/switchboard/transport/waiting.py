"""Waiting for an event, but not for ever. Called wherever something is looked at again after a while."""

from __future__ import annotations

import asyncio
from contextlib import suppress


async def within(seconds: float, event: asyncio.Event) -> None:
    """Until the event, but no longer than so many seconds."""
    with suppress(TimeoutError):  # not wait_for, which may swallow a cancellation in Python 3.11
        async with asyncio.timeout(seconds):
            await event.wait()
