"""Replies that need a person become dead letters, so that the System4 of their team and operators are told.

`app/wiring.py` has one of the workers call `ReplyNotices.tell` every two seconds. In: replies that may have been sent,
that the brake has stopped, that were not delivered, or whose conversation is blocked; out: dead letters with notices.
Nobody who wrote is told. Next: `store/messages/outbox.py`, `telling.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from switchboard.domain.routing import DeadLetterCategory, Unrouted
from switchboard.journey.rulebook import RuleBook
from switchboard.lanes.notifier import WORK, Notifier
from switchboard.store.database import Database
from switchboard.store.messages import outbox
from switchboard.store.messages.outbox import UntoldReply

_AT_ONCE: Final = 100
_TOLD: Final[Mapping[Literal["uncertain", "braked", "blocked", "undelivered"], tuple[DeadLetterCategory, str]]] = {
    "uncertain": ("reply_uncertain", "may have been sent, so it is not repeated"),
    "braked": ("reply_braked", "was one of many within minutes, so perhaps a program answers: no more are sent there"),
    "blocked": (
        "reply_unreachable",
        "cannot be sent, nor can others in this conversation, until somebody writes there again",
    ),
    "undelivered": ("reply_undelivered", "was not delivered, as the platform reported after it had taken it"),
}
"""By what has happened. No word of it is of a sender, a butler or a platform."""


class ReplyNotices:
    """Notifies people of replies that cannot be sent."""

    def __init__(self, database: Database, notifier: Notifier, rule_book: RuleBook) -> None:
        self._database = database
        self._notifier = notifier
        self._rule_book = rule_book

    async def tell(self) -> int:
        """Create the dead letters that are due; returns how many."""
        told = 0
        for reply in await outbox.untold(self._database, _AT_ONCE):
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
