"""What people are told of tasks. Pure; the same for the same firing, whenever it is said.

Called by `due.py` and `tools.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from switchboard.modules.schedule.ledger import FiringRow, Task
from switchboard.modules.schedule.planning import next_times, show_due, show_wall

_SHOWN: Final = 200


def shortened_text(text: str) -> str:
    """The text in one line, of at most 200 characters."""
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN else f"{line[: _SHOWN - 1]}…"


def late(task: Task, firing: FiringRow) -> str:
    """What is said too late, with the remark that it is."""
    return f"{task.text}\n\n(This was due on {show_wall(firing.wall)} {firing.zone}. It is late: nothing was running.)"


def explain_missed(task: Task, wall: datetime, passed: int) -> str:
    """That it was missed; `passed`: how many times before went by, too."""
    more = f", and {passed} times before that" if passed else ""
    return (
        f"Missed: “{shortened_text(task.text)}”. It was due on {show_wall(wall)} {task.zone}{more}, "
        "when nothing was running, and it is too late to make up for it."
    )


def explain_pause(task: Task, wall: datetime, why: str) -> str:
    """That it goes on no more."""
    return (
        f"Paused: “{shortened_text(task.text)}”, due on {show_wall(wall)} {task.zone}, could not be carried out: {why}"
    )


def explain_refusal(wall: datetime, why: str) -> str:
    """That no message can be made of it."""
    return f"What was due on {show_wall(wall)} could not be carried out: {why}"


def explain_unchecked(task: Task, wall: datetime, why: str) -> str:
    """That its condition cannot be checked; it goes on."""
    if not task.cron:
        return (
            f"The condition of “{shortened_text(task.text)}” could not be checked on {show_wall(wall)} {task.zone}, so "
            f"it was not carried out: {why}"
        )
    return (
        f"The condition of “{shortened_text(task.text)}” could not be checked {task.failures + 1} times in a row, at "
        f"last on {show_wall(wall)} {task.zone}: {why}. It goes on; cancel it if it is of no use."
    )


def made_task(task: Task) -> str:
    """What a model is told of a task that it has made."""
    what = "says" if task.kind == "say" else "does"
    only = ", if its condition holds then" if task.gate else ""
    return f"Task {task.short_id} {what} “{shortened_text(task.text)}” on {_times_of(task)}{only}."


def listed_tasks(tasks: Sequence[Task], last: dict[str, FiringRow]) -> str:
    """A line for each."""
    return "\n".join(_task_line(task, last.get(task.short_id)) for task in tasks)


def _task_line(task: Task, last: FiringRow | None) -> str:
    when = f"next {_times_of(task)}" if task.due is not None else "due now"
    when = f"paused: {task.why}" if task.state == "paused" else when
    before = f"; last {show_wall(last.wall)} {last.state}" if last is not None else ""
    every = f"; recurs {task.cron}" if task.cron else ""
    return f"{task.short_id} {task.kind} “{shortened_text(task.text)}”: {when}{every}{before}"


def _times_of(task: Task) -> str:
    return ", then ".join(show_due(one, task.zone) for one in next_times(task.timing, task.due, 3))
