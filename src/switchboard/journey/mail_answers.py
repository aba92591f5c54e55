"""Answers to mails that butlers wrote: found while they are accepted, and pinned to the butler that wrote the mail.

`accept.py` asks `MailAnswers` about messages that name others as answered. In: messages; out: the mail that each
answers. Whoever a mail was sent to may answer it for 30 days, although they may not write otherwise; that it is
certainly they must be known as of everybody else. Nobody answers them by itself: `app/answered_mails.py` tells what
they wrote where the mail was asked for. Next: `store/messages/mails.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Final

from switchboard.core.channels.registry import Channels
from switchboard.core.mail.scheduling import CALENDAR_TYPE
from switchboard.core.people.strangers import contact_of
from switchboard.domain.envelope import Envelope
from switchboard.domain.message import Message, Named
from switchboard.store.database import Database
from switchboard.store.messages.mails import AnsweredMail, PossibleAnswer, find_answered, was_invited
from switchboard.store.people.strangers import is_denied

ANSWERED_WITHIN: Final = timedelta(days=30)


class MailAnswers:
    """`owns`: whether the sender of a message is an owner of a butler, whose mails are messages to it as ever."""

    def __init__(self, database: Database, channels: Channels, owns: Callable[[Envelope], bool]) -> None:
        self._database = database
        self._channels = channels
        self._owns = owns

    async def find(self, given: Sequence[tuple[Message, Named]]) -> list[AnsweredMail | None]:
        """The mail that each message answers, in order. Raises Unavailable."""
        asked = [
            PossibleAnswer(f"{named.channel}/{named.endpoint}", named.answered, named.author) for _, named in given
        ]
        found = await find_answered(self._database, asked, ANSWERED_WITHIN)
        return [
            mail if mail is not None and await self._may_answer(message, mail) else None
            for mail, (message, _) in zip(found, given, strict=True)
        ]

    async def is_of_invited(self, message: Message, named: Named | None) -> bool:
        """Whether it is for calendars, from somebody whom we have mailed for theirs: it is kept, not held.

        Nobody else gets in by it, as it starts no turn. Raises Unavailable.
        """
        if named is None or message.envelope.event.kind != "calendar":
            return False
        contact = contact_of(message.envelope, self._channels[message.envelope.source.channel])
        if contact.scope != "person" or await is_denied(self._database, contact):
            return False
        return await was_invited(self._database, (named.channel, named.endpoint), named.author, ANSWERED_WITHIN)

    async def _may_answer(self, message: Message, mail: AnsweredMail) -> bool:
        """Whether it is certainly somebody whom nobody has denied, and whose own butlers these are not.

        Nobody is told of what programs of calendars answer to an invitation: the calendar's module reads that.
        """
        kinds = {one.media_type for one in message.envelope.payload.attachments}
        if mail.calendar and CALENDAR_TYPE in kinds:
            return False
        contact = contact_of(message.envelope, self._channels[message.envelope.source.channel])
        if contact.scope != "person" or self._owns(message.envelope):
            return False
        return not await is_denied(self._database, contact)
