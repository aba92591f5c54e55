"""Work that continues in the background for as long as a process needs it, restarted when it fails.

Called by `app/wiring.py`, `app/database.py` and `turns/hosting.py`. Next: the caller's own coroutine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from typing import Any

import structlog

from switchboard.tasks import cancel_tasks

log = structlog.get_logger(__name__)


async def run_in_background(stack: AsyncExitStack, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run `work` until the stack is closed."""
    stack.push_async_callback(cancel_tasks, asyncio.create_task(keep_at(work)))


async def keep_at(work: Callable[[], Coroutine[Any, Any, None]], pause: float = 1.0) -> None:
    """Keep endless work running: after a defect, which is logged, restart it `pause` seconds later.

    Nothing waits for background work, so nobody would notice its end in time: a process that stops following the rules
    misroutes permanently.
    """
    while True:
        try:
            await work()
        except Exception:
            log.exception("background task failed; restarting it", work=getattr(work, "__qualname__", repr(work)))
        else:
            return
        await asyncio.sleep(pause)
