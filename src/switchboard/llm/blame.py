"""Whether a failure is the fault of a request, not of the model: it alone keeps failing, while others are answered.

`dispatch.py` notes the end of every call, one `Blame` per model. In: what identifies a request, and whether it was
answered; out: whether the model should be asked it again. Next: `dispatch.py`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from msgspec import Struct

from switchboard.llm.context import REMEMBERED_S

_TIMES: Final = 4
"""So many failures are needed: those of a turn and its three retries."""
_BETWEEN: Final = 2
"""So many times another request was answered between two of the failures: a server may recover once in an outage."""
_MOST: Final = 1_000
"""Requests that are remembered for each model; the oldest are forgotten."""


class _Failing(Struct, frozen=True):
    """How often a request has failed, the last time at `at`, in seconds of the clock.

    `answered`: how many others had been answered by then; `between`: how many of its failures came after an answer to
    another that came after the failure before.
    """

    answered: int
    at: float
    times: int = 0
    between: int = 0
    shortest: bool = False
    """Whether its shortest form has failed as well."""


class Blame:
    """The requests that one model keeps failing at. Requests without a name are not told apart.

    A request is forgotten that has not failed for ten minutes.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._answered = 0
        self._failing: OrderedDict[str, _Failing] = OrderedDict()

    def answered(self, request: str) -> None:
        """The model has answered this request."""
        self._answered += 1
        self._failing.pop(request, None)

    def failed(self, request: str, *, shortest: bool = False) -> None:
        """The model has failed at this request, or at its shortest form."""
        if not request:
            return
        now, before = self._clock(), self._record_of(request)
        self._failing.pop(request, None)
        if before is None:
            before = _Failing(self._answered, now)
        self._failing[request] = _Failing(
            self._answered,
            now,
            before.times + 1,
            before.between + (self._answered > before.answered),
            before.shortest or shortest,
        )
        if len(self._failing) > _MOST:
            self._failing.popitem(last=False)

    def is_at_fault(self, request: str) -> bool:
        """Whether a request fails by its own fault: it did four times, and others succeeded twice in between."""
        found = self._record_of(request)
        return found is not None and found.times >= _TIMES and found.between >= _BETWEEN

    def is_given_up(self, request: str) -> bool:
        """Whether even the shortest form of a request at fault has failed."""
        return self.is_at_fault(request) and self._failing[request].shortest

    def _record_of(self, request: str) -> _Failing | None:
        """What is remembered of a request."""
        found = self._failing.get(request)
        return None if found is None or self._clock() - found.at >= REMEMBERED_S else found
