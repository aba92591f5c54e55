"""The graph of a plan: what is wrong with it, and an order in which its steps can run. Pure.

`check.py` also checks what a plan may use; `machine.py` runs it. Next: `check.py`.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from graphlib import CycleError, TopologicalSorter
from heapq import heappop, heappush
from typing import Final

from switchboard.domain.planning import PipelineStep

_ID: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,19}")
_MOST_CYCLES: Final = 20


def graph_faults(steps: Sequence[PipelineStep], most: int, before: Sequence[PipelineStep] = ()) -> Iterator[str]:
    """What is wrong with the ids and needs of `steps` that follow the steps `before`; `most` are allowed in all."""
    if not steps:
        yield "there are no steps"
    if len(steps) + len(before) > most:
        there = f", and {len(before)} are there already" if before else ""
        yield f"there are {len(steps)} steps{there}; a plan has at most {most}"
    known = Counter(step.id for step in (*before, *steps))
    yield from (f"{one[:50]!r} is the id of {n} steps" for one, n in known.items() if n > 1)
    for step in steps:
        if not _ID.fullmatch(step.id):
            yield f"{step.id[:50]!r} is not an id: write up to 20 of the characters a-z, 0-9, - and _"
        if step.needs:
            yield from _needs_faults(step, known)
    yield from _cycles(steps)


def _needs_faults(step: PipelineStep, known: Counter[str]) -> Iterator[str]:
    for need, times in Counter(step.needs).items():
        if need == step.id:
            yield f"{step.id} needs itself"
        elif need not in known:
            yield f"{step.id} needs {need[:50]}, which is not there"
        if times > 1:
            yield f"{step.id} needs {need[:50]} {times} times"


def _cycles(steps: Sequence[PipelineStep]) -> Iterator[str]:
    """The cycles, one after the other: each is reported, then broken, so that the next one is found."""
    if len(_sort_topologically(steps)) == len(steps):
        return
    needs = {step.id: set(step.needs) - {step.id} for step in steps}
    for _ in range(_MOST_CYCLES):
        try:
            TopologicalSorter(needs).prepare()
        except CycleError as error:
            # In the cycle, each step is followed by one that needs it; the first step is repeated at the end.
            cycle: list[str] = error.args[1]
            yield f"{' → '.join(reversed(cycle))}: these need each other in a circle"
            needs[cycle[1]].discard(cycle[0])
        else:
            return


def in_order(steps: Sequence[PipelineStep]) -> tuple[PipelineStep, ...]:
    """The steps, each after those that it needs, and in the given order otherwise. Raises `ValueError` for a cycle."""
    found = _sort_topologically(steps)
    if len(found) < len(steps):
        left = (step.id for step in steps if step not in found)
        raise ValueError(f"the steps {', '.join(left)} need each other in a circle")
    return found


def _sort_topologically(steps: Sequence[PipelineStep]) -> tuple[PipelineStep, ...]:
    """The same, without the steps of cycles and those that need them."""
    known, before = {step.id for step in steps}, set[str]()
    waits = [known.intersection(step.needs) for step in steps]
    for step, needs in zip(steps, waits, strict=True):
        if not needs <= before:
            break
        before.add(step.id)
    else:
        return tuple(steps)
    users: dict[str, list[int]] = defaultdict(list)
    for n, needs in enumerate(waits):
        for need in needs:
            users[need].append(n)
    found: list[PipelineStep] = []
    ready = [n for n, needs in enumerate(waits) if not needs]
    while ready:
        found.append(step := steps[heappop(ready)])
        for n in users.pop(step.id, ()):
            waits[n].remove(step.id)
            if not waits[n]:
                heappush(ready, n)
    return tuple(found)
