"""Tells what became of mails where they were asked for: what somebody has answered, and that one was not sent.

`journey/turn.py` runs `AnsweredMailEngine` for answers, instead of the butler's own engine: nobody is answered by it,
but the butler is told, in the conversation in which it was asked to write. `app/dead_letters/replies.py` calls
`tell_failure`. In: messages and replies; out: firings, each once. Next: `core/mail/telling.py`, `app/front_door.py`.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final
from uuid import UUID

import msgspec
import structlog
from msgspec import Struct

from switchboard.core.channels.registry import Channels
from switchboard.core.mail.telling import answer_told, failure_told
from switchboard.core.mail.written import WrittenMail
from switchboard.domain.errors import InvalidInput, Unavailable
from switchboard.ports.engine import EngineFailure, Journal, NoReply, Turn, TurnResult
from switchboard.ports.front_door import Firing, FrontDoor, Origin
from switchboard.store.database import Database
from switchboard.store.messages.mails import MailOnRecord, mail_of_message, mail_of_reply
from switchboard.store.messages.outbox import UntoldReply

log = structlog.get_logger(__name__)

_NOWHERE: Final = "it is kept: there is no conversation in which to tell of it"


class AskedMail(Struct, frozen=True):
    """A mail that can still be told of: who had it written, and what it was."""

    origin: Origin
    written: WrittenMail
    created_at: datetime


class AnsweredMailEngine:
    """The engine of messages that answer a mail of a butler. No butler has it: it is no entry point."""

    def __init__(self, database: Database, door: FrontDoor, channels: Channels) -> None:
        self._database = database
        self._door = door
        self._channels = channels

    async def run(self, turn: Turn, journal: Journal) -> TurnResult:  # noqa: ARG002
        """Tell it, once. Raises EngineFailure if that cannot be done now, or at all."""
        answered = turn.envelope.control.answers_mail or ""
        mail = _asked_mail(await mail_of_message(self._database, UUID(answered)))
        if mail is None:
            return NoReply(f"an answer to a mail of the butler; {_NOWHERE}")
        if obstacle := await self._door.obstacle(mail.origin):
            raise EngineFailure(obstacle, error_class="target_unavailable", retryable=False)
        channel = self._channels[turn.envelope.source.channel]
        text = answer_told(turn.envelope, mail.written, channel.automatic(turn.envelope))
        firing = Firing(
            origin=mail.origin,
            task_id=f"answer-{turn.request_id}",
            revision=0,
            due=turn.received_at,
            made_at=mail.created_at,
            text=text,
            answer=True,
        )
        told = await self._door.submit(firing)
        return NoReply(f"an answer to a mail of the butler, which is told as {told.request_id}")


async def tell_failure(database: Database, door: FrontDoor, reply: UntoldReply) -> None:
    """Say where a mail was asked for that it was not sent; nothing if nobody can be told. Raises Unavailable."""
    found = await mail_of_reply(database, reply.outbox_id)
    mail = _asked_mail(found)
    if found is None or mail is None or found.settled_at is None:
        return
    text = failure_told(mail.written, reply.outbox_id, found.error or "", uncertain=reply.why == "uncertain")
    firing = Firing(
        origin=mail.origin,
        task_id=f"mail-{reply.outbox_id}",
        revision=0,
        due=found.settled_at,
        made_at=mail.created_at,
        text=text,
        say=True,
    )
    try:
        if not await door.obstacle(mail.origin):
            await door.submit(firing)
    except (Unavailable, InvalidInput) as error:  # operators are told in any case
        log.warning("nobody was told that a mail was not sent", outbox_id=str(reply.outbox_id), why=error.message)


def _asked_mail(found: MailOnRecord | None) -> AskedMail | None:
    if found is None or found.origin is None or found.written is None:
        return None
    origin = msgspec.json.decode(found.origin, type=Origin)
    return AskedMail(origin, msgspec.convert(found.written, WrittenMail), found.created_at)
