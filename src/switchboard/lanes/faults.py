"""Named points where a test can kill this process, as a power cut would.

`SWITCHBOARD_CRASH_AT=after_claim:3` kills with SIGKILL when `after_claim` is passed for the third time;
`before_step:1:tool:2` when `before_step` is passed by a step whose path begins with `tool:2`. Unset, as always in
production, a point costs one comparison.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

Point = Literal[
    "after_receive",
    "before_commit",
    "after_commit",
    "after_claim",
    "before_step",
    "before_journal",
    "between_steps",
    "before_complete",
    "after_complete",
    "during_send",
    "mail_begun",
    "mail_written",
    "mail_queued",
    "notice_taken",
    "notice_made",
    "before_transcript",
    "after_transcript",
    "before_route",
    "after_route",
    "after_expect",
    "before_park",
    "after_park",
    "after_resume",
    "after_wake",
    "before_summary",
    "before_compaction",
    "after_compaction",
    "before_consolidation_model",
    "before_consolidation",
    "after_consolidation",
    "connector_pushed",
    "connector_kept",
    "connector_received",
    "connector_queued",
    "connector_uploaded",
    "connector_submitted",
    "connector_before_cursor",
    "connector_cursor_saved",
    "connector_confirmed",
    "connector_fetched",
    "connector_intended",
    "connector_sent",
    "connector_recorded",
    "connector_unreported",
    "connector_reported",
    "erasure_begun",
    "files_ordered",
    "erased_batch",
    "erased_kind",
    "erased_on_disk",
    "backup_dumped",
    "backup_written",
    "restore_begun",
    "restore_written",
    "migration_begun",
    "migration_dumped",
    "migration_backed_up",
    "migration_pruned",
    "migration_done",
    "trial_begun",
    "rollback_begun",
    "rollback_unpacked",
    "rollback_counted",
    "rollback_kept",
    "rollback_done",
    "setup_staged",
    "setup_published",
    "setup_recorded",
    "restart_drained",
]


def _kill_process() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@dataclass(slots=True)
class _Armed:
    name: str = ""
    path: str = ""
    passes_left: int = 0
    die: Callable[[], None] = _kill_process


_armed: Final = _Armed()


def arm(words: str, die: Callable[[], None] = _kill_process) -> None:
    """Die where `words` say (`after_claim:3`); on import, where the environment says.

    `die` is for tests whose process must survive.
    """
    _armed.die = die
    _armed.name, _, rest = words.partition(":")
    count, _, _armed.path = rest.partition(":")
    _armed.passes_left = int(count or 1)


def point(name: Point, path: str = "") -> None:
    """Pass a named point, at the step with this path; does not return if this is the one to die at."""
    if name == _armed.name and path.startswith(_armed.path):
        _armed.passes_left -= 1
        if _armed.passes_left == 0:
            _armed.die()


arm(os.environ.get("SWITCHBOARD_CRASH_AT", ""))
