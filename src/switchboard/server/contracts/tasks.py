"""The shapes of answers about tasks. Next: `app/tasks/service.py`."""

from __future__ import annotations

from switchboard.domain.tasks import ShownLedger, ShownTask
from switchboard.server.contracts.base import ResponseBody


class TaskPage(ResponseBody):
    """`next_cursor` is null on the last page."""

    tasks: list[ShownTask]
    next_cursor: str | None


class TaskDetail(ResponseBody):
    """A task with its firings, the latest first."""

    ledger: ShownLedger
