"""What a restored installation does again, in words. Called by `backup.py` and `db.py`."""

from __future__ import annotations

from switchboard.cli.output import errors, wants_json
from switchboard.store.checkup import OpenWork


def say_open_work(work: OpenWork, *, paused: bool) -> None:
    """Say on stderr what was open when the backup was made, unless it is nothing, or the result is for a script."""
    counted = {"messages were unanswered": work.messages, "replies were unsent": work.replies}
    if wants_json():
        return
    for what, number in counted.items():
        if number:
            told = f"{number} {what} when the backup was made; whatever has been done about them since is done again"
            errors().print(told, style="yellow", soft_wrap=True)
    if work.replies:
        told = "once it runs, `switchboard outbox list --state pending` shows these replies"
        told += "" if paused else "; restore with --paused to see them before they are sent"
        errors().print(told, style="yellow", soft_wrap=True)
