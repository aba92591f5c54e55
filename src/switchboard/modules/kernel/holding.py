"""How long each module holds the event loop of its worker: while it computes, nothing else goes on there.

`opened.py` runs every call of a module through `HoldWatch.around`. Steps of a call between two waits are timed, so
that what others do meanwhile is not counted. Next: `quarantine.py`, where long ones are reported.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Awaitable, Callable, Generator
from time import monotonic, sleep
from typing import Any, Final, TypeVar

import structlog

log = structlog.get_logger(__name__)

_T = TypeVar("_T")

LONG_S: Final = 1.0
"""Seconds that a module may hold the loop at a time."""
ENDLESS_S: Final = 30.0
"""Seconds after which a worker ends whose loop is still held: it is dead to all others, and holds what they need."""
_EX_TEMPFAIL: Final = 75


class HoldWatch:
    """Of one worker. `long` is called with the module's name and the seconds of each long hold."""

    def __init__(self, long: Callable[[str, float], None]) -> None:
        self._long = long
        self.holding: tuple[str, float] | None = None
        """The module that computes now, and since when by the monotonic clock; read by other threads."""

    async def around(self, module: str, work: Awaitable[_T]) -> _T:
        """What comes of the work of a module. Raises RuntimeError where it wants to end the process."""
        try:
            return await _Timed(self, module, work)
        except (SystemExit, KeyboardInterrupt) as error:
            raise RuntimeError(f"it wanted to end the process ({error!r})") from error

    def end_process_if_held(self, seconds: float = ENDLESS_S) -> None:
        """Watch from a thread, for the rest of the process, that no module holds the loop for ever."""
        threading.Thread(target=self._end_if_held, args=(seconds,), name="modules", daemon=True).start()

    def _end_if_held(self, seconds: float) -> None:
        while True:
            sleep(min(seconds, 1.0))
            held = self.holding
            if held is not None and monotonic() - held[1] > seconds:
                log.critical("a module holds the event loop: this process ends", module=held[0], seconds=seconds)
                os._exit(_EX_TEMPFAIL)

    def enter(self, module: str) -> None:
        """The module begins to compute."""
        self.holding = module, monotonic()

    def leave(self) -> None:
        """It waits, or has ended."""
        held, self.holding = self.holding, None
        if held is not None and (seconds := monotonic() - held[1]) > LONG_S:
            self._long(held[0], seconds)


class _Timed(Awaitable[_T]):
    """An awaitable whose steps are timed."""

    def __init__(self, watch: HoldWatch, module: str, work: Awaitable[_T]) -> None:
        self._watch = watch
        self._module = module
        self._work = work

    def __await__(self) -> Generator[Any, Any, _T]:
        steps = self._work.__await__()
        throw = getattr(steps, "throw", None)
        sent: BaseException | None = None
        while True:
            self._watch.enter(self._module)
            try:
                waited = next(steps) if sent is None or throw is None else throw(sent)
            except StopIteration as end:
                result: _T = end.value
                return result
            finally:
                self._watch.leave()
            sent = None
            try:
                yield waited
            except BaseException as error:
                sent = error
