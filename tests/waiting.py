"""Waiting for a condition with a deadline: the one way in which tests wait for what happens elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

_LOOK_EVERY: Final = 0.02

SOON: Final = 20.0
"""Seconds for what takes milliseconds: machines that run tests stand still for seconds at a time."""


async def eventually(holds: Callable[[], Awaitable[object]], *, within: float = SOON) -> None:
    """Look again and again until `holds()` is true; TimeoutError after `within` seconds."""
    async with asyncio.timeout(within):
        while not await holds():
            await asyncio.sleep(_LOOK_EVERY)
