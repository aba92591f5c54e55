"""A circuit breaker: a model that keeps failing is not used for a while, then probed once before it is trusted again.

Called by `llm/dispatch.py`, one breaker per model. In: a breaker, an event and `now` (seconds of a monotonic clock);
out: the next breaker.

    state       admit                               success          failure
    closed      pass                                closed, count 0  count + 1; at the threshold: open
    open        refuse; after the wait: half_open,  -                -
                and this call is the probe
    half_open   refuse while the probe is out;      closed           open, for twice as long
                a lost probe is replaced

Failures at one message count once, however much is asked for it: what one message provokes says little about the
others. A probe counts in any case. A model that is the only one left opens for a shorter time, as nobody can answer
instead.

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
    """`threshold` failures in a row open it; seconds. `probe_timeout`: when an unanswered probe counts as lost.

    `wait_alone` and `longest_alone`: the waits of a model that is the only one left.
    """

    threshold: int = 3
    wait: float = 30.0
    longest_wait: float = 300.0
    wait_alone: float = 1.0
    longest_alone: float = 15.0
    probe_timeout: float = 120.0


class Breaker(Struct, frozen=True):
    """`failures` in a row; `openings` in a row without a success; `until`: when it admits a call, if not closed.

    `openings_alone`: those by calls for which no other model was left, which `openings` does not count.
    `failed`: the messages at which it failed in a row, each of which was counted once.
    """

    state: State = "closed"
    failures: int = 0
    failed: frozenset[str] = frozenset()
    openings: int = 0
    openings_alone: int = 0
    until: float = 0.0
    generation: int = 0


class CallEnd(Struct, frozen=True):
    """The outcome of a call at `now`, in seconds of the clock.

    `message`: for which message it was, "" if each call is its own. `alone`: no other model was left for it.
    """

    ok: bool
    now: float
    message: str = ""
    alone: bool = False


DEFAULT: Final = BreakerPolicy()


def admit(breaker: Breaker, now: float, policy: BreakerPolicy = DEFAULT) -> tuple[Breaker, Ticket | None]:
    """A ticket if a call may be made now, otherwise None."""
    if breaker.state == "closed":
        return breaker, Ticket(breaker.generation)
    if now < breaker.until:
        return breaker, None
    probing = _move_to(replace(breaker, until=now + policy.probe_timeout), "half_open")
    return probing, Ticket(probing.generation)


def settle(breaker: Breaker, ticket: Ticket, end: CallEnd, policy: BreakerPolicy = DEFAULT) -> Breaker:
    """The breaker after the outcome of the call with this `ticket`; an outdated ticket changes nothing."""
    if ticket != breaker.generation:
        return breaker
    return _SETTLED[breaker.state, end.ok](breaker, end, policy)


def wait_left(breaker: Breaker, now: float) -> float:
    """Seconds until a call may be admitted; 0: now."""
    return 0.0 if breaker.state == "closed" else max(0.0, breaker.until - now)


def _move_to(breaker: Breaker, state: State) -> Breaker:
    return replace(breaker, state=state, generation=breaker.generation + 1)


def _keep_state(breaker: Breaker, _end: CallEnd, _policy: BreakerPolicy) -> Breaker:
    return breaker


def _forget_failures(breaker: Breaker, _end: CallEnd, _policy: BreakerPolicy) -> Breaker:
    return replace(breaker, failures=0, failed=frozenset())


def _count_failure(breaker: Breaker, end: CallEnd, policy: BreakerPolicy) -> Breaker:
    if end.message and end.message in breaker.failed:
        return breaker
    failed = breaker.failed | {end.message} if end.message else breaker.failed
    worse = replace(breaker, failures=breaker.failures + 1, failed=failed)
    return _open_breaker(worse, end, policy) if worse.failures >= policy.threshold else worse


def _close_breaker(breaker: Breaker, _end: CallEnd, _policy: BreakerPolicy) -> Breaker:
    return _move_to(replace(breaker, failures=0, failed=frozenset(), openings=0, openings_alone=0, until=0.0), "closed")


def _open_breaker(breaker: Breaker, end: CallEnd, policy: BreakerPolicy) -> Breaker:
    if end.alone:
        wait = _double_wait(policy.wait_alone, breaker.openings_alone, policy.longest_alone)
        worse = replace(breaker, openings_alone=breaker.openings_alone + 1)
    else:
        wait = _double_wait(policy.wait, breaker.openings, policy.longest_wait)
        worse = replace(breaker, openings=breaker.openings + 1)
    return _move_to(replace(worse, until=end.now + wait), "open")


def _double_wait(first: float, times: int, longest: float) -> float:
    return min(longest, first * 2.0 ** min(times, 30))


_SETTLED: Final[Mapping[tuple[State, bool], Callable[[Breaker, CallEnd, BreakerPolicy], Breaker]]] = {
    ("closed", True): _forget_failures,
    ("closed", False): _count_failure,
    ("open", True): _keep_state,
    ("open", False): _keep_state,
    ("half_open", True): _close_breaker,
    ("half_open", False): _open_breaker,
}
