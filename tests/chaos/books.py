"""What a chaos run is judged by: the traces of all processes against the database."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from switchboard.store.database import Database


@dataclass(frozen=True, slots=True)
class Report:
    """Counts. Everything but `accepted`, `answered`, `repeated_steps` and `fenced` must be 0."""

    accepted: int
    answered: int
    lost: int
    doubled: int
    out_of_order: int
    run_again: int
    """Turns that were begun after they had been answered."""
    repeated_steps: int
    """Step bodies that ran twice because their worker died before the journal had them: inevitable, and few."""

    @property
    def clean(self) -> bool:
        """Whether nothing that was promised was broken."""
        return self.accepted == self.answered and not (self.lost or self.doubled or self.out_of_order or self.run_again)

    def __str__(self) -> str:
        return (
            f"accepted {self.accepted}, answered {self.answered}, lost {self.lost}, doubled {self.doubled}, "
            f"out of order {self.out_of_order}, answered turns run again {self.run_again}, "
            f"step bodies repeated {self.repeated_steps}"
        )


DISORDER: Final = """
select count(*) from (
    select (m.envelope #>> '{payload,normalized_text}')::int as n,
           lag((m.envelope #>> '{payload,normalized_text}')::int) over (partition by d.lane order by d.seq) as before
    from delivery d join message_inbox m on m.request_id = d.request_id
) x where n <= before"""
"""Deliveries that came to a butler before earlier ones of their conversation; every text is its number."""


def read_traces(paths: Iterable[Path]) -> list[list[str]]:
    """All lines of all traces, as words."""
    return [line.split() for path in paths if path.exists() for line in path.read_text().splitlines()]


def takeovers(kills: Iterable[tuple[Path, float]], paths: Iterable[Path]) -> list[float]:
    """Seconds from a kill to when another began each turn that was interrupted; `kills`: whose trace, and when.

    What nobody began again is not among them: `judge` finds it.
    """
    begun = [(t[1], t[2], float(t[3])) for t in read_traces(paths) if t[0] == "start"]
    waits = []
    for trace, killed in kills:
        lines = read_traces([trace])
        interrupted = {(t[1], t[2]) for t in lines if t[0] == "start"} - {(t[1], t[2]) for t in lines if t[0] == "end"}
        for item in interrupted:
            again = [at - killed for *what, at in begun if tuple(what) == item and at > killed]
            if again:
                waits.append(min(again))
    return waits


async def judge(database: Database, acknowledged: int, traces: list[list[str]]) -> Report:
    """Hold what was acknowledged and traced against what is stored."""
    accepted = int(await database.value("select count(*) from message_inbox"))
    answered = int(
        await database.value(
            "select count(*) from message_inbox m where exists (select from outbox o where o.request_id = m.request_id)"
        )
    )
    replies = int(await database.value("select count(*) from outbox"))
    # Every text is its number, so within a conversation the numbers of the replies must rise.
    disorder = int(
        await database.value(
            """select count(*) from (
                select text::int as n, lag(text::int) over (partition by lane order by seq) as before
                from outbox
            ) x where n <= before"""
        )
    )
    return Report(
        accepted=accepted,
        answered=answered,
        lost=max(0, acknowledged - answered),
        doubled=replies - answered + max(0, accepted - acknowledged),
        out_of_order=disorder + _overtakings(traces),
        run_again=_run_again(traces),
        repeated_steps=sum(n - 1 for n in Counter(tuple(t[1:]) for t in traces if t[0] == "step").values()),
    )


def _overtakings(traces: list[list[str]]) -> int:
    """Turns begun before the turn before them in their lane had ended for the first time."""
    first_end: dict[tuple[str, int], float] = {}
    for t in traces:
        if t[0] == "end":
            key = (t[1], int(t[2]))
            first_end[key] = min(first_end.get(key, float("inf")), float(t[3]))
    starts = [(t[1], int(t[2]), float(t[3])) for t in traces if t[0] == "start"]
    return sum(1 for lane, seq, at in starts if seq > 1 and at < first_end.get((lane, seq - 1), float("inf")) - 0.001)


def _run_again(traces: list[list[str]]) -> int:
    """Turns begun although their successor had already begun: so they were settled before."""
    begun: dict[str, list[tuple[float, int]]] = defaultdict(list)
    for t in traces:
        if t[0] == "start":
            begun[t[1]].append((float(t[3]), int(t[2])))
    again = 0
    for starts in begun.values():
        highest = 0
        for _, seq in sorted(starts):
            again += seq < highest
            highest = max(highest, seq)
    return again
