"""The port of the mail desk: how a butler's tool has a mail sent, and learns what became of it.

A module that writes mails has the need `mail_desk`; a worker implements it over the outbox, so that a mail is sent by
the connector of its sender's address, once, and its fate is seen where that of replies is. Whether a mail may be sent,
and in whose name, is the module's to decide, and approved before `queue` is called. Next: `connector.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final, Literal, Protocol
from uuid import UUID

from msgspec import Meta, Struct

from switchboard.domain.envelope import Attachment
from switchboard.ports.tools import ToolScope

MAIL_DESK: Final = "mail_desk"
"""The name in the `needs` of a manifest."""
MAX_RECIPIENTS: Final = 10
"""Of one mail, counting `to`, `cc` and `bcc`."""
MAILS_AN_HOUR: Final = 30
MAILS_A_DAY: Final = 100
"""Mails from one address, in any 60 minutes and 24 hours."""
MAX_MAIL_FILES: Final = 18_000_000
"""Bytes of all files of a mail, which base64 makes a third larger."""

MAX_CALENDAR_PART: Final = 256_000
"""Characters of an iCalendar object."""

MailState = Literal["waiting", "sent", "failed", "uncertain"]
"""`waiting`: it will be sent; `failed`: it was not, or was returned; `uncertain`: a person must look whether it was."""


class CalendarPart(Struct, frozen=True):
    """An iCalendar object of one method, sent as one part `text/calendar; method=…` beside the text (iMIP, RFC 6047).

    Programs of calendars read it; no file is attached. `ics`: the object, with CRLF and a `METHOD` line that agrees.
    """

    method: Literal["REQUEST", "CANCEL", "REPLY"]
    ics: Annotated[str, Meta(min_length=1, max_length=MAX_CALENDAR_PART)]


class OutgoingMail(Struct, frozen=True, kw_only=True):
    """A mail in plain text. Addresses are bare, such as `ann@example.org`; `bcc` stands in the envelope alone.

    `key`: the same key is the same mail, however often it is queued, and its Message-ID follows from it. It begins with
    the name of the module, and tells nothing of the mail: `email:` with the idempotency key of the step, for example.
    `in_reply_to` and `references` are Message-IDs in angle brackets. `files`: as returned by `ToolScope.keep`.
    `automatic`: a program has written it, so that other programs do not answer it.
    """

    key: Annotated[str, Meta(min_length=1, max_length=200)]
    sender: str
    to: tuple[str, ...]
    cc: tuple[str, ...] = ()
    bcc: tuple[str, ...] = ()
    subject: str
    text: str
    in_reply_to: str = ""
    references: tuple[str, ...] = ()
    calendar: CalendarPart | None = None
    files: tuple[Attachment, ...] = ()
    automatic: bool = False


class QueuedMail(Struct, frozen=True):
    """A mail that will be sent. `request_id`: under which `explain` and `outbox list` show it.

    `duplicate`: it was queued before, and is what it was then.
    """

    request_id: UUID
    message_id: str
    duplicate: bool = False


class MailFate(Struct, frozen=True):
    """What became of a mail. `why`: if it was not sent, or has to wait."""

    state: MailState
    message_id: str
    why: str = ""


class MailDesk(Protocol):
    """Has mails sent. All of it raises `Unavailable`."""

    async def senders(self) -> Sequence[str]:
        """The addresses from which this installation can send, in lower case: those of its accounts for e-mail."""
        ...

    async def queue(self, mail: OutgoingMail, scope: ToolScope) -> QueuedMail:
        """Have a mail sent; when this returns, it is stored. With the same key again, nothing happens twice.

        Answers to it come to the butler of the call, and are told in its conversation. Raises `InvalidInput` for a mail
        that cannot be sent, such as one with a line end in its subject, `NotFound` if no account has the address of the
        sender, and `Conflict` with a sentence where a limit is reached.
        """
        ...

    async def state(self, key: str) -> MailFate | None:
        """What became of the mail with this key; None: it was never queued."""
        ...
