"""Tasks and their firings as interfaces show them. Made by `app/tasks/service.py`; sent by `server/http/tasks.py`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal
from uuid import UUID

TaskState = Literal["active", "paused", "done", "cancelled"]
"""`paused`: it is not due until it goes on; why says who paused it, or what is in the way. `done`: it was due for the
last time."""


@dataclass(frozen=True, slots=True)
class ShownTask:
    """What is due at a time. `due`: the next time, null if none; `when`: once, or the cron expression.

    `times`: the same in words. `gate`: the call of a tool that must find something, as JSON; empty: there is none.
    `paused_at`: since when it is paused, null if it is not.
    """

    task_id: UUID
    system_id: str
    person: str
    conversation: str
    kind: str
    text: str
    state: TaskState
    why: str
    when: str
    zone: str
    due: datetime | None
    made_at: datetime
    gate: str = ""
    times: str = ""
    paused_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class ShownFiring:
    """One time at which a task was due. `request_id`: the message that it became, or by which it was told.

    `gate_exit`: 0, the condition held; 1, it did not; 2, it could not be checked; null, it was not checked.
    """

    due: datetime
    state: str
    late_s: int
    passed: int
    request_id: UUID | None
    why: str
    told_at: datetime | None
    gate_exit: int | None = None


@dataclass(frozen=True, slots=True)
class ShownLedger:
    """A task with its firings, the latest first."""

    task: ShownTask
    firings: Sequence[ShownFiring]
