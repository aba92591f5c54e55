"""What a restored installation does again, in words. Called by `backup.py` and `db.py`."""

from __future__ import annotations

from switchboard.cli.output import errors, wants_json
from switchboard.store.checkup import OpenWork


def say_open_work(work: OpenWork, *, paused: bool) -> None:
    """Say on stderr what was open when the backup was made, unless it is nothing, or the result is for a script."""
    if wants_json():
        return
    for number, one, several in (
        (work.messages, "message was unanswered", "messages were unanswered"),
        (work.replies, "reply was unsent", "replies were unsent"),
    ):
        if number:
            told = f"{number} {one if number == 1 else several} when the backup was made; "
            told += "whatever has been done about that since is done again"
            errors().print(told, style="yellow", soft_wrap=True)
    if work.replies:
        told = "once it runs, `switchboard outbox list --state pending` shows these replies"
        told += "" if paused else "; restore with --paused to see them before they are sent"
        errors().print(told, style="yellow", soft_wrap=True)
