"""Whether a failure is the fault of a request, not of the model: it alone keeps failing, while others are answered.

`dispatch.py` notes the end of every call, one `Blame` per model. In: what identifies a request, and whether it was
answered; out: whether the model should be asked it again. Next: `dispatch.py`.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from msgspec import Struct, structs

_TIMES: Final = 4
"""So many failures are needed: those of a turn and its three retries."""
_MOST: Final = 1_000
"""Requests that are remembered for each model; the oldest are forgotten."""


class _Failing(Struct, frozen=True):
    """How often a request has failed; `answered`: how many others had been answered before its first failure."""

    answered: int
    times: int = 0
    shortest: bool = False
    """Whether its shortest form has failed as well."""


class Blame:
    """The requests that one model keeps failing at. Requests without a name are not told apart."""

    def __init__(self) -> None:
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
        before = self._failing.pop(request, _Failing(self._answered))
        self._failing[request] = structs.replace(before, times=before.times + 1, shortest=before.shortest or shortest)
        if len(self._failing) > _MOST:
            self._failing.popitem(last=False)

    def is_at_fault(self, request: str) -> bool:
        """Whether the failures are the request's own fault: it failed four times, and another succeeded meanwhile."""
        found = self._failing.get(request)
        return found is not None and found.times >= _TIMES and self._answered > found.answered

    def is_given_up(self, request: str) -> bool:
        """Whether even the shortest form of a request at fault has failed."""
        return self.is_at_fault(request) and self._failing[request].shortest
