"""What a list of mails shows of one, made of its header fields. Pure.

`looking.py` and `reading.py` call it. In: what the server tells of a mail, which strangers wrote; out: a `ListedMail`,
and JSON for the model. Next: `core/mail/head.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final
from zoneinfo import ZoneInfo

from msgspec import Struct

from switchboard.core.mail.envelope import date_of
from switchboard.core.mail.head import decode_field, field, read_head
from switchboard.core.mail.headers import address
from switchboard.core.text.visible import visible_start
from switchboard.domain.json_values import JsonObject
from switchboard.modules.email.names import MailId, MailPlace, message_ids_in
from switchboard.modules.email.wanted import MailTexts, may_have_attachment
from switchboard.transport.mail_servers.mailbox import FetchedHead

_LONGEST: Final = 200
_RECIPIENTS: Final = 300


class FoundFolder(Struct, frozen=True):
    """A folder of an account that was searched. `sent`: what is in it was sent by the person of the account.

    `everything`: it has the mails of all folders.
    """

    account: str
    name: str
    validity: int
    sent: bool = False
    everything: bool = False


class ListedMail(Struct, frozen=True):
    """A mail as a list shows it. `sent` is its own date, else when it arrived; `own`: the person has sent it."""

    id: MailId
    sent: datetime
    sender: str
    to: str
    copies: str
    subject: str
    answers: tuple[str, ...]
    attached: bool
    size: int
    own: bool

    @property
    def identity(self) -> tuple[str, ...]:
        """Equal for the same mail in several folders."""
        place = self.id.place
        return (self.id.message_id,) if self.id.message_id else (self.id.account, place.folder, str(place.uid))

    @property
    def texts(self) -> MailTexts:
        """What is compared of it."""
        return MailTexts(self.sender, f"{self.to}, {self.copies}", self.subject)


def read_listed(found: FetchedHead, folder: FoundFolder, own_addresses: frozenset[str]) -> ListedMail:
    """Never raises, whatever the mail is."""
    head = read_head(found.head)
    said = {name: field(head, name) for name in ("from", "to", "cc", "subject", "date")}
    ids = message_ids_in(field(head, "message-id"))
    answers = (*message_ids_in(field(head, "references")), *message_ids_in(field(head, "in-reply-to")))
    by_person = address(said["from"]) in own_addresses
    return ListedMail(
        id=MailId(folder.account, MailPlace(folder.name, folder.validity, found.uid), ids[0] if ids else ""),
        sent=date_of(said["date"]) or found.arrived or datetime.fromtimestamp(0, UTC),
        sender=decode_field(said["from"]),
        to=decode_field(said["to"]),
        copies=decode_field(said["cc"]),
        subject=decode_field(said["subject"]),
        answers=tuple(dict.fromkeys(answers)),
        attached=may_have_attachment(found.structure),
        size=found.size,
        own=folder.sent or (folder.everything and by_person),
    )


def list_mails(
    heads: Mapping[int, FetchedHead], folder: FoundFolder, own_addresses: frozenset[str]
) -> dict[int, ListedMail]:
    """The mails of a folder, by UID. Strangers may have made it slow: call it in a thread."""
    return {uid: read_listed(head, folder, own_addresses) for uid, head in heads.items()}


def show_listed(one: ListedMail, zone: ZoneInfo) -> JsonObject:
    """For the model."""
    shown: JsonObject = {
        "id": one.id.text,
        "date": show_time(one.sent, zone),
        "from": visible_start(one.sender, _LONGEST),
        "to": visible_start(one.to, _RECIPIENTS),
        "subject": visible_start(one.subject, _LONGEST),
        "folder": visible_start(one.id.place.folder, _LONGEST),
    }
    if one.own:
        shown["sent_by_the_person"] = True
    if one.attached:
        shown["has_attachment"] = True
    return shown


def show_time(moment: datetime, zone: ZoneInfo) -> str:
    """With weekday and zone."""
    return f"{moment.astimezone(zone):%a %Y-%m-%d %H:%M} {zone.key}"
