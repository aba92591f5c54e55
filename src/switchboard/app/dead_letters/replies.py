"""Replies that need a person become dead letters, so that the System4 of their team and operators are told.

Of a mail that a butler has written, it is also told where the mail was asked for.

One of the workers calls `ReplyNotices.tell` every two seconds (`app/ops/periodic.py`). In: replies that may have been
sent, that the brake has stopped, that were not delivered, or whose conversation is blocked; out: dead letters with
notices. Nobody who wrote is told. Next: `store/messages/outbox.py`, `telling.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from switchboard.app.answered_mails import tell_failure
from switchboard.app.front_door import WorkerFrontDoor
from switchboard.app.runtime import Runtime
from switchboard.domain.routing import DeadLetterCategory, Unrouted
from switchboard.journey.rulebook import RuleBook
from switchboard.lanes.notifier import WORK, Notifier
from switchboard.ports.front_door import FrontDoor
from switchboard.ports.maintenance import MaintenanceTask
from switchboard.store.database import Database
from switchboard.store.messages import outbox
from switchboard.store.messages.mails import forget_mails
from switchboard.store.messages.outbox import Unsent, UntoldReply

_AT_ONCE: Final = 100
_TOLD: Final[Mapping[Unsent, tuple[DeadLetterCategory, str]]] = {
    "uncertain": ("reply_uncertain", "may have been sent, so it is not repeated"),
    "braked": ("reply_braked", "was one of many within minutes, so perhaps a program answers: no more are sent there"),
    "blocked": (
        "reply_unreachable",
        "cannot be sent, nor can others in this conversation, until somebody writes there again",
    ),
    "undelivered": ("reply_undelivered", "was not delivered, as the platform reported after it had taken it"),
    "unsent": ("reply_undelivered", "is a mail, and was not sent: `switchboard outbox show` has what the server said"),
}
"""By what has happened. No word of it is of a sender, a butler or a platform."""


class ReplyNotices:
    """Notifies people of replies that cannot be sent."""

    def __init__(
        self, database: Database, notifier: Notifier, rule_book: RuleBook, door: FrontDoor | None = None
    ) -> None:
        self._database = database
        self._notifier = notifier
        self._rule_book = rule_book
        self._door = door

    async def tell(self) -> int:
        """Create the dead letters that are due; returns how many."""
        told = 0
        for reply in await outbox.untold(self._database, _AT_ONCE):
            if reply.mail and self._door is not None:
                await tell_failure(self._database, self._door, reply)  # first: it is told once, however often
            told += await outbox.tell(self._database, reply, self._notice_of(reply))
        if told:
            self._notifier.notify(WORK)
        return told

    def _notice_of(self, reply: UntoldReply) -> Unrouted:
        """The dead letter of the reply; the root receives those of removed teams."""
        index = self._rule_book.rules.index
        team_id = index.root if reply.team_id is None or not index.reaches(reply.team_id) else reply.team_id
        category, what = _TOLD[reply.why]
        reason = f"reply {reply.outbox_id} {what}; to send it again: switchboard outbox resend {reply.outbox_id}"
        return Unrouted(team_id, category, reason, index.handler(team_id))


def reply_tasks(runtime: Runtime) -> tuple[MaintenanceTask, ...]:
    """What a worker does about replies and mails from time to time."""
    notices = ReplyNotices(runtime.database, runtime.notifier, runtime.rule_book, WorkerFrontDoor(runtime))
    return (
        MaintenanceTask("tell_of_replies", 2.0, notices.tell),
        MaintenanceTask("forget_mails", 3600.0, lambda: forget_mails(runtime.database)),
    )
