"""A circuit breaker: a model that keeps failing is not used for a while, then probed once before it is trusted again.

Called by `llm/dispatch.py`, one breaker per model. In: a breaker, an event and `now` (seconds of a monotonic clock);
out: the next breaker.

    state       admit                               success          failure
    closed      pass                                closed, count 0  count + 1; at the threshold: open
    open        refuse; after the wait: half_open,  -                -
                and this call is the probe
    half_open   refuse while the probe is out;      closed           open, for twice as long
                a lost probe is replaced

Only the outcome of a call that was admitted since the last change of state counts (its ticket says so): a call that was
still running when the breaker opened neither closes nor re-opens it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Literal, NewType

from msgspec import Struct
from msgspec.structs import replace

State = Literal["closed", "open", "half_open"]
Ticket = NewType("Ticket", int)
"""Issued when a call is admitted, and presented with its outcome."""


class BreakerPolicy(Struct, frozen=True):
    """`threshold` failures in a row open it; seconds. `probe_timeout`: when an unanswered probe counts as lost."""

    threshold: int = 3
    wait: float = 30.0
    longest_wait: float = 300.0
    probe_timeout: float = 120.0


class Breaker(Struct, frozen=True):
    """`failures` in a row; `openings` in a row without a success; `until`: when it admits a call, if not closed."""

    state: State = "closed"
    failures: int = 0
    openings: int = 0
    until: float = 0.0
    generation: int = 0


DEFAULT: Final = BreakerPolicy()


def admit(breaker: Breaker, now: float, policy: BreakerPolicy = DEFAULT) -> tuple[Breaker, Ticket | None]:
    """A ticket if a call may be made now, otherwise None."""
    if breaker.state == "closed":
        return breaker, Ticket(breaker.generation)
    if now < breaker.until:
        return breaker, None
    probing = _moved(replace(breaker, until=now + policy.probe_timeout), "half_open")
    return probing, Ticket(probing.generation)


def settle(breaker: Breaker, ticket: Ticket, *, ok: bool, now: float, policy: BreakerPolicy = DEFAULT) -> Breaker:
    """The breaker after the outcome of the call with this `ticket`; an outdated ticket changes nothing."""
    if ticket != breaker.generation:
        return breaker
    return _SETTLED[breaker.state, ok](breaker, now, policy)


def wait_left(breaker: Breaker, now: float) -> float:
    """Seconds until a call may be admitted; 0: now."""
    return 0.0 if breaker.state == "closed" else max(0.0, breaker.until - now)


def _moved(breaker: Breaker, state: State) -> Breaker:
    return replace(breaker, state=state, generation=breaker.generation + 1)


def _same(breaker: Breaker, _now: float, _policy: BreakerPolicy) -> Breaker:
    return breaker


def _calm(breaker: Breaker, _now: float, _policy: BreakerPolicy) -> Breaker:
    return replace(breaker, failures=0)


def _counted(breaker: Breaker, now: float, policy: BreakerPolicy) -> Breaker:
    worse = replace(breaker, failures=breaker.failures + 1)
    return _opened(worse, now, policy) if worse.failures >= policy.threshold else worse


def _closed(breaker: Breaker, _now: float, _policy: BreakerPolicy) -> Breaker:
    return _moved(replace(breaker, failures=0, openings=0, until=0.0), "closed")


def _opened(breaker: Breaker, now: float, policy: BreakerPolicy) -> Breaker:
    wait = min(policy.longest_wait, policy.wait * 2.0 ** min(breaker.openings, 30))
    return _moved(replace(breaker, openings=breaker.openings + 1, until=now + wait), "open")


_SETTLED: Final[Mapping[tuple[State, bool], Callable[[Breaker, float, BreakerPolicy], Breaker]]] = {
    ("closed", True): _calm,
    ("closed", False): _counted,
    ("open", True): _same,
    ("open", False): _same,
    ("half_open", True): _closed,
    ("half_open", False): _opened,
}
