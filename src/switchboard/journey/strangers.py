"""Strangers: at endpoints with a policy, messages from people who are not approved are held, not decided.

`accept.py` asks `Strangers` about messages of such endpoints. In: a message that is ready to be stored; out: the stored
message, or None if its sender may write. Next: `app/connectors/pairing.py`, where an operator approves the sender.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final

import structlog
from msgspec.structs import replace

from switchboard.core.channels.registry import Channels
from switchboard.core.people.strangers import Contact, Policy, code_in, contact_of
from switchboard.core.turns.command import command_text
from switchboard.core.turns.house import house_command
from switchboard.domain.envelope import Envelope
from switchboard.domain.errors import Forbidden, Unavailable
from switchboard.domain.message import Message
from switchboard.journey.mail_answers import MailAnswers
from switchboard.lanes.notifier import RULES, WORK, Notifier, outbox_topic
from switchboard.store.database import Database
from switchboard.store.messages import blobs
from switchboard.store.messages.inbox import Acceptance, Prepared
from switchboard.store.messages.outbox import pull_pool
from switchboard.store.people import audit
from switchboard.store.people import strangers as store
from switchboard.store.people.strangers import NamedContact, StrangerNotice, StrangerOutcome

log = structlog.get_logger(__name__)

LATE_TEXT: Final = (
    "Your message arrived too late and was not read. It has been kept; if you still need an answer, please write again."
)
STRANGER_TEXT: Final = "Your message has been kept. An operator must approve you before it is read and answered."
PAIRED_TEXT: Final = (
    "You may write here now. Tools, such as those for files and web pages, are used for owners only; to become "
    "one, ask the operator for a code for owners."
)
OWNER_TEXT: Final = "You may write here now, and you are an owner of {name}: it uses its tools for you."
_REFUSED: Final = {
    "denied": "an operator has denied this sender; nothing was stored",
    "sender_full": f"{store.HELD_PER_SENDER} messages of this sender wait for an operator; nothing was stored",
    "account_full": f"{store.HELD_PER_ACCOUNT} messages of strangers wait for an operator here; nothing was stored",
}


class Strangers:
    """`policies` by (channel, endpoint), which may change at run time; an endpoint without one is open.

    `owns`: whether the sender of a message is an owner, who may let groups in.
    """

    def __init__(
        self,
        database: Database,
        notifier: Notifier,
        channels: Channels,
        policies: Mapping[tuple[str, str], Policy],
        *,
        owns: Callable[[Envelope], bool] = lambda _: False,
    ) -> None:
        self._database = database
        self._notifier = notifier
        self._channels = channels
        self._policies = policies
        self._owns = owns
        self.answers = MailAnswers(database, channels, owns)
        """Finds those who may write because a butler has written to them."""

    def __bool__(self) -> bool:
        return bool(self._policies)

    def contact(self, message: Message) -> Contact | None:
        """Whose approval is needed; None if anybody may write there."""
        if self._policy(message.envelope) is None:
            return None
        return contact_of(message.envelope, self._channels[message.envelope.source.channel])

    def may_be_code(self, message: Message, contact: Contact) -> bool:
        """Whether the message may be a code, which makes an owner also of a sender who may write already."""
        return self._code(message.envelope, contact) is not None

    def late(self, message: Message) -> Contact:
        """The name under which a message that came too late is held: its conversation."""
        source = message.envelope.source
        return Contact(source.channel, source.endpoint_identity, "late", message.conversation)

    async def let_in(self, contacts: Collection[Contact]) -> set[Contact]:
        """Those of the contacts who may write."""
        return {one for one in await store.let_in(self._database, contacts) if one.scope != "unverified"}

    async def hold(self, prepared: Prepared, contact: Contact, refers: Collection[bytes] = ()) -> Acceptance | None:
        """Hold the message, which names these blobs; None if its sender may now write. A late one is always held.

        Raises Forbidden if too much is held already.
        """
        envelope = prepared.arrival.message.envelope
        named, code = self._name_contact(envelope, contact), self._code(envelope, contact)
        if code is None and self._admits(envelope, contact) and await self._admit(prepared, named):
            return None
        pairs = self._pairs(envelope, contact)
        notice = self._notice(envelope, contact) if pairs or contact.scope == "late" else None
        async with self._database.transaction() as one:
            held = await store.hold(one, prepared, named, code=code, notice=notice)
            await _refer(one, refers, held)
            if held.outcome == "code":
                detail = {"channel": contact.channel, "endpoint": contact.endpoint, "identity": contact.identity}
                owns = {} if held.owner_of is None else {"owner_of": held.owner_of}
                await audit.append(one, "pairing", "contact_paired", {**detail, **owns})
        if held.told and notice is not None:
            self._notifier.notify(outbox_topic(notice.pool))
        if held.outcome == "code":
            self._notifier.notify(WORK)
            await self._tell(held, notice)
        if held.owner_of is not None:
            self._notifier.notify(RULES)
        return _acceptance(held)

    def _name_contact(self, envelope: Envelope, contact: Contact) -> NamedContact:
        title = self._channels[contact.channel].title(envelope) if contact.scope == "group" else None
        return NamedContact(contact, title if contact.scope == "group" else envelope.sender.display_name)

    def _admits(self, envelope: Envelope, contact: Contact) -> bool:
        """Whether it is the `/start` of an owner, who lets the group in; nobody else can, whatever they quote."""
        if contact.scope != "group" or envelope.kept_as_history or envelope.control.ingestion_tier == "held":
            return False
        command = house_command(envelope, self._channels[contact.channel])
        return command is not None and command.name == "start" and self._owns(envelope)

    async def _admit(self, prepared: Prepared, group: NamedContact) -> bool:
        """Whether the group may write now; not if an operator has denied it."""
        who = group.contact
        by = f"owner {who.channel}:{prepared.arrival.message.envelope.sender.identity}"
        async with self._database.transaction() as one:
            admitted = await store.admit(one, prepared, group, by)
            if admitted:
                detail = {"channel": who.channel, "endpoint": who.endpoint, "identity": who.identity, "by": by}
                await audit.append(one, "pairing", "group_admitted", detail)
        if admitted:
            self._notifier.notify(WORK)
        return admitted

    async def _tell(self, held: StrangerOutcome, notice: StrangerNotice | None) -> None:
        """Tell the sender of a code what it has done, where strangers are told anything."""
        if notice is None or held.request_id is None:
            return
        name = held.owner_of and held.owner_of.partition("/")[2]
        said = replace(notice, text=OWNER_TEXT.format(name=name) if name else PAIRED_TEXT)
        try:
            await store.tell_of_code(self._database, held.request_id, said)
        except Unavailable as error:
            log.warning("the sender of a code was not told of it", reason=error.message)
        else:
            self._notifier.notify(outbox_topic(said.pool))

    def _pairs(self, envelope: Envelope, contact: Contact) -> bool:
        """Whether this may be the message of a person who pairs."""
        return contact.scope == "person" and self._is_written(envelope) and self._policy(envelope) == "pair"

    def _is_written(self, envelope: Envelope) -> bool:
        return envelope.event.kind == "message" and not envelope.edits

    def _code(self, envelope: Envelope, contact: Contact) -> str | None:
        """Where others read it, too, and edits: there a code for owners makes nobody an owner, and is locked."""
        written = self._is_written(envelope) or (envelope.edits and not contact.private)
        there = contact.scope != "late" and written and self._policy(envelope) == "pair"
        mark = self._channels[envelope.source.channel].command_mark
        return code_in(command_text(envelope, mark)) if there else None

    def _policy(self, envelope: Envelope) -> Policy | None:
        found = self._policies.get((envelope.source.channel, envelope.source.endpoint_identity))
        return None if found == "open" else found

    def _notice(self, envelope: Envelope, contact: Contact) -> StrangerNotice | None:
        """Only strangers in a direct chat, never by mail: a forged sender would send the notice to somebody else.

        What was written before the account was connected is history, and is not answered whoever is approved.
        """
        channel, late = self._channels[contact.channel], contact.scope == "late"
        if channel.personal or channel.replies != "connector" or channel.automatic(envelope):
            return None
        if envelope.kept_as_history or not (late or contact.private):
            return None
        return StrangerNotice(LATE_TEXT if late else STRANGER_TEXT, pull_pool(contact.channel, contact.endpoint))


async def _refer(database: Database, named: Collection[bytes], held: StrangerOutcome) -> None:
    if named and held.request_id is not None and held.outcome != "known":
        await blobs.refer(database, [(blob, held.request_id) for blob in named])


def _acceptance(held: StrangerOutcome) -> Acceptance | None:
    if held.outcome == "let_in":
        return None
    if held.request_id is None:
        raise Forbidden(_REFUSED[held.outcome], code=_code(held.outcome), field="sender.identity")
    if held.outcome == "known":
        return Acceptance(held.request_id, duplicate=True, differs=held.differs)
    return Acceptance(held.request_id, duplicate=False, held=True)


def _code(outcome: str) -> str:
    return "sender_denied" if outcome == "denied" else "held_full"
