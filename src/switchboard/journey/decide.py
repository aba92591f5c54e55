"""Decide: apply the rules in force to a message.

`accept.py` calls `DecideLeg` while it stores a batch, so that decision and message are one write. A message that no
rule decides but a model may is not decided here: it waits in a `route:` lane for `classify.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from switchboard.core.channels.registry import CHANNELS, Channels
from switchboard.core.people.known import NOBODY
from switchboard.core.routing.decide import decide_now, is_kept, keep
from switchboard.core.routing.due import decide_task
from switchboard.core.routing.facts import add_people_version, facts
from switchboard.domain.envelope import Envelope
from switchboard.domain.routing import Decision, SystemId
from switchboard.journey.people_book import PeopleBook
from switchboard.journey.rulebook import RuleBook
from switchboard.store.messages.inbox import ToClassify


class DecideLeg:
    """Who receives a message, and why; nobody only for history. Or the fact that a model must be asked."""

    def __init__(
        self, rule_book: RuleBook, channels: Channels = CHANNELS, people_book: PeopleBook | None = None
    ) -> None:
        self._rule_book = rule_book
        self._channels = channels
        self._people_book = people_book

    @property
    def queued(self) -> bool:
        """Whether messages may be waiting to be classified, so that later ones may have to queue behind them."""
        return self._rule_book.queued

    def __call__(
        self, envelope: Envelope, pinned: SystemId | None, received_at: datetime | None
    ) -> Decision | ToClassify:
        """Decide.

        `pinned` precedes all rules: the connector named it, or it wrote the message that this one replies to.
        """
        known = self._facts(envelope, received_at)
        if is_kept(envelope, pinned):
            return keep(self._rule_book.rules.index, known, envelope.event.kind)
        if envelope.control.task is not None:
            return decide_task(self._rule_book.rules.index, known, pinned, envelope.control.task)
        decision = decide_now(self._rule_book.rules.index, known, pinned)
        return ToClassify(known) if decision is None else decision

    def names_command(self, envelope: Envelope, received_at: datetime) -> bool:
        """Whether a rule says who gets a message with this command: then it is nobody else's."""
        return self._rule_book.rules.index.depends_on("command", self._facts(envelope, received_at))

    def _facts(self, envelope: Envelope, received_at: datetime | None) -> Mapping[str, str]:
        schedule = None if received_at is None else self._channels.schedule_at(received_at)
        people = NOBODY if self._people_book is None else self._people_book.people
        found = facts(envelope, self._channels[envelope.source.channel], schedule, people.find_sender)
        return add_people_version(found, people.version)
