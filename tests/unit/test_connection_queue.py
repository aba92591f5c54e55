"""The wait for a connection has an end, whatever the server does with new ones. In virtual time."""

from __future__ import annotations

import asyncio
from typing import cast

import asyncpg

from switchboard.store.queueing import ConnectionQueue
from switchboard.testing.connectors import in_no_time


class HangingPool:
    """One connection is in use, and the server accepts no other."""

    def get_size(self) -> int:
        return 1

    def get_max_size(self) -> int:
        return 8

    def get_idle_size(self) -> int:
        return 0

    async def acquire(self, timeout: float) -> None:
        await asyncio.sleep(timeout)
        raise TimeoutError


def test_nobody_waits_longer_because_others_wait() -> None:
    async def main() -> None:
        queue, loop = ConnectionQueue(cast("asyncpg.Pool", HangingPool()), 1.0), asyncio.get_running_loop()
        began = loop.time()

        async def waited() -> float:
            try:
                async with queue.take():
                    pass
            except TimeoutError:
                return loop.time() - began
            return -1.0

        assert max(await asyncio.gather(*(waited() for _ in range(6)))) < 1.2

    in_no_time(main())
