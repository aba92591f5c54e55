"""Mails that butlers write: each once, by its key, as a reply in the outbox, and what became of it.

Called by `app/mail_desk.py`, and by `journey/mail_answers.py` for messages that answer one. Next: `outbox.py`, which
sends them like all replies.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple
from uuid import UUID

from msgspec import Struct

from switchboard.core.mail.headers import without_tag
from switchboard.core.text.storable import storable_text
from switchboard.domain.json_values import JsonObject
from switchboard.domain.ledger import OutboxState, ReplyFile
from switchboard.domain.message import Conversation, RequestId
from switchboard.domain.routing import SystemId
from switchboard.store.database import Database, arrays, part_as, query, row_as, to_json

_MAILS_STAY: Final = timedelta(days=35)
"""As long as a repetition of the call is recognised, and answers are told."""


class NewMail(Struct, frozen=True, kw_only=True):
    """A mail whose message has just been stored. `conversation`: that of its answers; `origin`: where they are told."""

    key: str
    request_id: RequestId
    outbox_id: UUID
    channel: str
    endpoint: str
    system_id: SystemId
    message_id: str
    recipients: Sequence[str]
    origin: object | None
    conversation: Conversation
    reply_to: str
    text: str
    files: Sequence[ReplyFile]
    pool: str


class SentMail(Struct, frozen=True):
    """A mail, and the state of its reply in the outbox."""

    key: str
    request_id: UUID
    message_id: str
    state: OutboxState
    error: str | None


class MailsLately(NamedTuple):
    """How many mails an account was given."""

    within_hour: int
    within_day: int


class MailOnRecord(Struct, frozen=True):
    """A mail by which people are told of what came of it. `origin`: as it was given; `written`: without its text.

    Both are None once its words were erased. `settled_at` and `error`: of its reply.
    """

    system_id: SystemId
    message_id: str
    origin: str | None
    created_at: datetime
    written: JsonObject | None
    settled_at: datetime | None
    error: str | None


class PossibleAnswer(Struct, frozen=True):
    """A message that may answer a mail. `account`: that which received it, as `email/house@home.example`."""

    account: str
    message_ids: Sequence[str]
    author: str


class AnsweredMail(Struct, frozen=True):
    """The mail that a message answers, and the butler that wrote it. `calendar`: programs of calendars read it."""

    request_id: UUID
    system_id: SystemId
    calendar: bool


async def find_mail(database: Database, key: str) -> SentMail | None:
    """The mail with this key, and what became of it."""
    return row_as(SentMail, await database.row(query("mails.by_key"), key))


async def lock_account(transaction: Database, channel: str, endpoint: str) -> MailsLately:
    """Let nobody else write mails from an account until the transaction ends; returns how many were written."""
    await transaction.value(query("mails.lock"), channel, endpoint)
    row = await transaction.row(query("mails.count_lately"), channel, endpoint)
    return MailsLately(row["within_hour"], row["within_day"]) if row else MailsLately(0, 0)


async def queue_mail(transaction: Database, mail: NewMail) -> None:
    """Put it into the outbox."""
    keys = await transaction.keys()
    await transaction.run(
        query("mails.queue"),
        *(mail.key, mail.request_id, mail.outbox_id, mail.channel, mail.endpoint, mail.system_id, mail.message_id),
        [keys.of("person", _as_author(one)) for one in mail.recipients],
        None if mail.origin is None else to_json(mail.origin),
        keys.conversation(mail.conversation),
        *(storable_text(mail.recipients[0]), mail.reply_to, storable_text(mail.text)),
        *(to_json(mail.files), mail.pool),
    )


async def find_answered(
    database: Database, given: Sequence[PossibleAnswer], within: timedelta
) -> list[AnsweredMail | None]:
    """Which mail of ours each message answers that came within this time after it, in order."""
    keys = await database.keys()
    asked: list[tuple[Any, ...]] = [
        (n, storable_text(one.account), f"<{name.strip('<>')}>", keys.of("person", _as_author(one.author)))
        for n, one in enumerate(given)
        for name in one.message_ids
    ]
    rows = await database.rows(query("mails.answered"), *arrays(asked, 4), within)
    found = {row["ord"]: part_as(AnsweredMail, row) for row in rows}
    return [found.get(n) for n in range(len(given))]


async def was_invited(database: Database, account: tuple[str, str], author: str, within: timedelta) -> bool:
    """Whether an account, a channel and an endpoint, has mailed somebody for their calendar within this time."""
    keys = await database.keys()
    return bool(await database.value(query("mails.invited"), *account, keys.of("person", _as_author(author)), within))


async def mail_of_message(database: Database, request_id: UUID) -> MailOnRecord | None:
    """The mail that is this message."""
    return row_as(MailOnRecord, await database.row(query("mails.of_message"), request_id))


async def mail_of_reply(database: Database, outbox_id: UUID) -> MailOnRecord | None:
    """The mail that is this reply in the outbox."""
    return row_as(MailOnRecord, await database.row(query("mails.of_reply"), outbox_id))


async def accounts_of(database: Database, channel: str) -> list[str]:
    """The endpoints through which mails can be sent."""
    return [row["endpoint"] for row in await database.rows(query("mails.accounts"), channel)]


async def forget_mails(database: Database, older: timedelta = _MAILS_STAY) -> int:
    """Forget whose answers are told where; returns how many mails."""
    return int(await database.value(query("mails.forget"), older))


def _as_author(address: str) -> bytes:
    return without_tag(address.lower()).encode("utf-8", "surrogatepass")
