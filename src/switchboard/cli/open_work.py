"""What was open in a restored installation, in words. Called by `backup.py` and `db.py`."""

from __future__ import annotations

from switchboard.cli.output import errors, wants_json
from switchboard.store.checkup import OpenWork


def say_open_work(work: OpenWork, *, paused: bool) -> None:
    """Say on stderr what was open when the backup was made, unless it is nothing, or the result is for a script."""
    if wants_json():
        return
    if work.messages:
        told = "1 message was" if work.messages == 1 else f"{work.messages} messages were"
        told += " unanswered when the backup was made, and will be answered, even if that has been done since"
        told += "" if paused else "; restore with --paused to prevent that for now"
        errors().print(told, style="yellow", soft_wrap=True)
    if work.replies:
        told = "1 reply" if work.replies == 1 else f"{work.replies} replies"
        told += " may have been sent, and will not be sent again without you: once it runs, see "
        told += "`switchboard outbox list --state uncertain` and `switchboard outbox resend`"
        errors().print(told, style="yellow", soft_wrap=True)
