"""How long the steps of a plan have worked, from records of which many have only an end."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from msgspec import Struct

from switchboard.core.planning.times import Times, plan_times, step_times
from switchboard.ports.engine import StepState

BEGAN = datetime(2026, 11, 28, 12, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return BEGAN + timedelta(seconds=seconds)


class Recorded(Struct, frozen=True):
    """A record that was written at these seconds; `took` is what it says of itself."""

    start: float
    end: float | None = None
    took: float | None = None
    state: StepState = "done"

    @property
    def result(self) -> object:
        return {} if self.took is None else {"seconds": self.took}

    @property
    def started_at(self) -> datetime:
        return at(self.start)

    @property
    def ended_at(self) -> datetime | None:
        return None if self.end is None else at(self.end)


def times(start: float | None, end: float | None, seconds: float | None, waited: float = 0.0) -> Times:
    return Times(None if start is None else at(start), None if end is None else at(end), seconds, waited)


RECORDS = {
    "plan:route": Recorded(0, 1),
    "s1": Recorded(4, 4, 2.5),  # recorded at its end only
    "s2": Recorded(2, 5, 1.0),  # begun on record, and begun again after a crash
    "s3": Recorded(9, 9, state="skipped"),
    "s4": Recorded(6, None, state="started"),
    "s5/request:1": Recorded(10, 12),
    "s5/approval:1:call": Recorded(12, 20),
    "plan:pause:1": Recorded(13, 13),
    "plan:go_on:1": Recorded(21, 21),
    "s5/tool:1:call": Recorded(22, 22, 0.5),
    "s5": Recorded(24, 24),
    "s6/request:1": Recorded(30, None, state="started"),
    "s7": Recorded(40, 40, 3.0, "cancelled"),
    "plan:pause:2": Recorded(41, 41),
}
EXPECTED = {
    "s1": times(1.5, 4, 2.5),
    "s2": times(2, 5, 3.0),
    "s3": times(None, 9, None),
    "s4": times(6, None, None),
    "s5": times(10, 24, 5.0, 9.0),
    "s6": times(30, None, None),
    "s7": times(37, 40, 3.0),
    "s8": times(None, None, None),
    "s": times(None, None, None),
}


def test_a_step_has_worked_while_it_did_not_wait() -> None:
    assert {name: step_times(name, RECORDS) for name in EXPECTED} == EXPECTED


def test_a_plan_has_worked_while_something_of_it_could_go_on() -> None:
    assert plan_times(at(0), at(45), RECORDS) == times(0, 45, 33.0, 12.0)
    assert plan_times(at(0), None, RECORDS) == times(0, None, None)
    assert plan_times(at(0), at(10), RECORDS) == times(0, 10, 10.0)
