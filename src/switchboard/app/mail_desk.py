"""The mail desk of a worker: mails that butlers write become messages with one reply each, which a connector sends.

The kernel of the modules hands `WorkerMailDesk` to modules that need it. The mail, its message and its reply in the
outbox are stored in one transaction, together with its key; so it is sent once, whenever whoever wrote it is killed.
In: an `OutgoingMail` and the scope of a call; out: a `QueuedMail`. Next: `core/mail/written.py`,
`store/messages/mails.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from switchboard.app.runtime import Runtime
from switchboard.app.settings import Settings
from switchboard.core.channels.email import NAME as EMAIL
from switchboard.core.envelope.identity import chat_conversation, event_key
from switchboard.core.files.blobs import stored_blob
from switchboard.core.files.reply_files import choose_files
from switchboard.core.mail.headers import domain_of
from switchboard.core.mail.written import WrittenMail, checked_address, checked_mail, written_address
from switchboard.core.routing.decide import keep
from switchboard.core.uuid7 import uuid7_time
from switchboard.domain.envelope import SCHEMA_VERSION, Control, Envelope, Event, Passage, Payload, Sender, Source
from switchboard.domain.errors import Conflict, InvalidInput, NotFound, Unavailable
from switchboard.domain.ledger import OutboxState, ReplyFile
from switchboard.domain.message import Message, RequestId
from switchboard.domain.routing import Member, SystemId
from switchboard.lanes.faults import point
from switchboard.lanes.notifier import outbox_topic
from switchboard.ports.checks import CheckResult, warning
from switchboard.ports.front_door import FrontDoor
from switchboard.ports.mail_desk import (
    MAILS_A_DAY,
    MAILS_AN_HOUR,
    MailFate,
    MailState,
    OutgoingMail,
    QueuedMail,
)
from switchboard.ports.tools import ToolScope
from switchboard.store.database import Database
from switchboard.store.ids import new_uuid7
from switchboard.store.messages import blobs, inbox
from switchboard.store.messages.inbox import Arrival, StoredMessage, get_message
from switchboard.store.messages.mails import NewMail, SentMail, accounts_of, find_mail, lock_account, queue_mail
from switchboard.store.messages.outbox import pull_pool

_SEND: Final = "email_send"
_STATES: Final[Mapping[OutboxState, MailState]] = {
    "pending": "waiting",
    "sending": "waiting",
    "sent": "sent",
    "uncertain": "uncertain",
    "failed": "failed",
    "dead": "failed",
}


class WorkerMailDesk:
    """See `switchboard.ports.mail_desk.MailDesk`. `door`: says where answers to a mail are told."""

    def __init__(self, runtime: Runtime, door: FrontDoor) -> None:
        self._runtime = runtime
        self._database = runtime.database
        self._door = door

    async def senders(self) -> Sequence[str]:
        """As in the port."""
        return [one.lower() for one in await accounts_of(self._database, EMAIL)]

    async def state(self, key: str) -> MailFate | None:
        """As in the port."""
        found = await find_mail(self._database, key)
        if found is None:
            return None
        return MailFate(_STATES[found.state], found.message_id, "" if found.state == "sent" else found.error or "")

    async def queue(self, mail: OutgoingMail, scope: ToolScope) -> QueuedMail:
        """As in the port."""
        written = checked_mail(mail, await self._message_id(mail))
        if (known := await find_mail(self._database, mail.key)) is not None:
            return _queued_before(known)
        endpoint = await self._find_account(written.sender)
        asked = await get_message(self._database, scope.turn)
        system_id = SystemId(scope.conversation.rpartition(" ")[0])
        if asked is None or not system_id:
            raise Unavailable("the message because of which the mail is written is not kept any more")
        origin = await self._door.origin(scope)
        files = await self._find_files(mail, scope, system_id)
        request_id = RequestId(new_uuid7())
        new = NewMail(
            key=mail.key,
            request_id=request_id,
            outbox_id=new_uuid7(),
            channel=EMAIL,
            endpoint=endpoint,
            system_id=system_id,
            message_id=written.message_id,
            recipients=written.recipients,
            origin=origin,
            conversation=chat_conversation(EMAIL, endpoint, written.message_id),
            reply_to=written.in_reply_to,
            text=mail.text,
            files=files,
            pool=pull_pool(EMAIL, endpoint),
        )
        message = _message_of(new, _envelope_of(mail, written, asked, uuid7_time(request_id)))
        point("mail_begun")
        async with self._database.transaction() as one:
            if (first := await self._store_mail(one, new, message)) is not None:
                return _queued_before(first)
        point("mail_queued")
        self._runtime.notifier.notify(outbox_topic(new.pool))
        return QueuedMail(request_id, written.message_id)

    async def _message_id(self, mail: OutgoingMail) -> str:
        """It follows from the key, and nobody outside can guess it: who names it has seen the mail."""
        name = (await self._database.keys()).of("mail", mail.key.encode())
        return f"<{name}@{domain_of(checked_address(mail.sender, 'sender')) or 'switchboard.invalid'}>"

    async def _find_account(self, sender: str) -> str:
        """The endpoint of the account that sends from this address. Raises NotFound."""
        accounts = await accounts_of(self._database, EMAIL)
        found = next((one for one in accounts if one.lower() == sender.lower()), None)
        if found is None:
            raise NotFound(
                f"nothing sends from {sender} here: an operator adds the account with `switchboard channels add email`"
            )
        return found

    async def _find_files(self, mail: OutgoingMail, scope: ToolScope, system_id: SystemId) -> tuple[ReplyFile, ...]:
        """The files, all of which this turn may send. Raises InvalidInput."""
        named = {blob for one in mail.files if (blob := stored_blob(one)) is not None}
        stored = await blobs.sendable(self._database, named, scope.turn, system_id) if named else {}
        chosen = choose_files(mail.files, stored, len(mail.files))
        if chosen.lines:
            raise InvalidInput(f"the mail cannot have all of its files: {' '.join(chosen.lines)}", field="files")
        return chosen.files

    async def _store_mail(self, one: Database, new: NewMail, message: Message) -> SentMail | None:
        """Store the mail, its message and its reply, or return the mail that has this key already."""
        lately = await lock_account(one, new.channel, new.endpoint)
        if (known := await find_mail(one, new.key)) is not None:
            return known
        for count, most, span in (
            (lately.within_hour, MAILS_AN_HOUR, "in the last 60 minutes"),
            (lately.within_day, MAILS_A_DAY, "in the last 24 hours"),
        ):
            if count >= most:
                raise Conflict(f"{count} mails were sent from {new.endpoint} {span}, and more are not: try again later")
        what = f"a mail that {new.system_id} has written"
        decision = keep(self._runtime.rule_book.rules.index, {}, what)
        await inbox.accept(one, [Arrival(message, decision)])
        named = [bytes.fromhex(file.sha256) for file in new.files]
        await blobs.refer(one, [(blob, message.request_id) for blob in named])
        await queue_mail(one, new)
        point("mail_written")
        return None


async def check_senders(database: Database, settings: Settings, members: Iterable[Member]) -> list[CheckResult]:
    """Mailboxes of the module from which nothing can be sent, if a butler may send mails at all."""
    if not any(member.active and _SEND in str(member.options.get("grants", "")) for member in members):
        return []
    known = frozenset(one.lower() for one in await accounts_of(database, EMAIL))
    accounts = settings.modules.get(EMAIL, {}).get("accounts", {})
    tables = accounts.items() if isinstance(accounts, Mapping) else ()
    lacking = [
        str(name) for name, table in tables if isinstance(table, Mapping) and known.isdisjoint(_own_addresses(table))
    ]
    remedy = "switchboard channels add email NAME --set address=ADDRESS --set receive=false"
    return [warning("module email", f"nothing sends from the addresses of {name}", remedy) for name in lacking]


def _own_addresses(table: Mapping[str, Any]) -> frozenset[str]:
    others = table.get("writes_as", ())
    named = (table.get("user", ""), *(others if isinstance(others, list | tuple) else ()))
    return frozenset(str(one).lower() for one in named)


def _queued_before(known: SentMail) -> QueuedMail:
    return QueuedMail(known.request_id, known.message_id, duplicate=True)


def _envelope_of(mail: OutgoingMail, written: WrittenMail, asked: StoredMessage, at: datetime) -> Envelope:
    """The mail as a message of whoever had it written; a model wrote its text, so that nothing in it is their words."""
    return Envelope(
        schema_version=SCHEMA_VERSION,
        source=Source(
            channel=asked.channel,
            provider=asked.envelope["source"]["provider"],
            endpoint_identity=asked.endpoint,
        ),
        event=Event(
            external_event_id=written.message_id,
            observed_at=at,
            reply_address=written_address(written),
        ),
        sender=Sender(identity=asked.sender),
        payload=Payload(
            normalized_text=mail.text,
            passages=(Passage(kind="forwarded", text=mail.text),) if mail.text.strip() else (),
            attachments=mail.files,
        ),
        control=Control(ingestion_tier="history"),
    )


def _message_of(new: NewMail, envelope: Envelope) -> Message:
    return Message(
        request_id=new.request_id,
        conversation=new.conversation,
        dedupe_key=event_key(new.message_id),
        envelope=envelope,
        raw=msgspec.json.encode(envelope),
        media_type="application/json",
        received_at=envelope.event.observed_at,
    )
