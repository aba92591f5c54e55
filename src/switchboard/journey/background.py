"""What is done beside the turns: a few conversations at once, and whatever fails there is logged and tried again.

`compaction.py` and `consolidation.py` give it the conversations that are due. Next: these.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

import structlog

from switchboard.domain.errors import Unavailable
from switchboard.domain.ledger import LaneKey
from switchboard.tasks import cancel_tasks

log = structlog.get_logger(__name__)

_AT_ONCE: Final = 2


class BackgroundWork:
    """`work` on a conversation returns None, or why nothing came of it, and may raise. `usual`: a reason not to log."""

    def __init__(self, name: str, work: Callable[[LaneKey], Awaitable[str | None]], usual: str) -> None:
        self._name = name
        self._work = work
        self._usual = usual
        self._running: set[asyncio.Task[str | None]] = set()

    @property
    def free(self) -> int:
        """How many more conversations may be started now."""
        return max(0, _AT_ONCE - len(self._running))

    def start(self, lanes: Iterable[LaneKey]) -> None:
        """Begin with all of these; each ends on its own, or with `aclose`."""
        for lane in lanes:
            task = asyncio.create_task(self.try_lane(lane))
            self._running.add(task)
            task.add_done_callback(self._running.discard)

    async def try_lane(self, lane: LaneKey) -> str | None:
        """The same for one, at once: why nothing came of it, or None."""
        try:
            problem = await self._work(lane)
        except Unavailable as error:
            problem = error.message
        except Exception:
            log.exception("background work failed", work=self._name, lane=str(lane))
            return "it failed, the log says how"
        if problem is not None and problem != self._usual:
            log.warning("background work came to nothing", work=self._name, lane=str(lane), reason=problem)
        return problem

    async def aclose(self) -> None:
        """Stop what is running, which then has no effect."""
        await cancel_tasks(*self._running)
