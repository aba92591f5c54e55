"""How long each module holds the event loop of its worker: while it computes, nothing else goes on there.

`opened.py` runs every call of a module through `HoldWatch.around`. Steps of a call between two waits are timed, so
that what others do meanwhile is not counted. Next: `quarantine.py`, where long ones are reported.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from time import monotonic
from typing import Any, Final, TypeVar

_T = TypeVar("_T")

LONG_S: Final = 1.0
"""Seconds that a module may hold the loop at a time."""


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
            raise RuntimeError(f"it wanted to end the process ({type(error).__name__})") from error

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
