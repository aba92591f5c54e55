"""Mails that butlers write: whether one can be sent, how it stands in an address, and its bytes. Pure.

`app/mail_desk.py` checks a mail and keeps it as the `event.reply_address` of its message, beside its text and files;
`connectors/email` composes it when it sends that. In: an `OutgoingMail`; out: a `WrittenMail`, and lines to which
nobody can add a header field. Next: `writing.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from email.utils import format_datetime
from hashlib import sha256
from typing import Final
from unicodedata import category

import msgspec
from msgspec import Struct

from switchboard.core.mail.writing import (
    MAX_NAME,
    MAX_SUBJECT,
    PLAIN_FIELD,
    PLAIN_NAME,
    File,
    MailLines,
    ascii_address,
    encode_field,
    join_lines,
    message_ids_in,
    multipart_of,
    text_part,
    visible_line,
    with_files,
)
from switchboard.domain.errors import InvalidInput
from switchboard.domain.json_values import JsonMapping, JsonObject
from switchboard.ports.connector import VERBATIM
from switchboard.ports.mail_desk import MAX_MAIL_FILES, MAX_RECIPIENTS, CalendarPart, OutgoingMail

MAX_MAIL_TEXT: Final = 100_000
"""Characters."""
_MAX_REFERENCES: Final = 8
_MAIL: Final = "mail"
_NO_TEXT: Final = frozenset({"Cc", "Cs", "Zl", "Zp"})


class WrittenMail(Struct, frozen=True, kw_only=True):
    """What of a mail stands in the address of its message. Addresses are those that SMTP takes."""

    message_id: str
    sender: str
    to: tuple[str, ...]
    cc: tuple[str, ...] = ()
    bcc: tuple[str, ...] = ()
    subject: str
    in_reply_to: str = ""
    references: tuple[str, ...] = ()
    calendar: CalendarPart | None = None
    automatic: bool = False

    @property
    def recipients(self) -> tuple[str, ...]:
        """All of them, each once."""
        return tuple(dict.fromkeys((*self.to, *self.cc, *self.bcc)))


def checked_mail(mail: OutgoingMail, message_id: str, *, draft: bool = False) -> WrittenMail:
    """The mail as it will be sent. Raises InvalidInput with a sentence. A draft need not have a recipient."""
    if not mail.to and not draft:
        raise InvalidInput("a mail has at least one recipient in `to`", field="to")
    written = WrittenMail(
        message_id=message_id,
        sender=checked_address(mail.sender, "sender"),
        to=tuple(checked_address(one, "to") for one in mail.to),
        cc=tuple(checked_address(one, "cc") for one in mail.cc),
        bcc=tuple(checked_address(one, "bcc") for one in mail.bcc),
        subject=_checked_subject(mail.subject),
        in_reply_to=next(iter(_checked_ids((mail.in_reply_to,))), "") if mail.in_reply_to else "",
        references=_checked_ids(mail.references)[-_MAX_REFERENCES:],
        calendar=mail.calendar,
        automatic=mail.automatic,
    )
    if len(written.recipients) > MAX_RECIPIENTS:
        raise InvalidInput(f"a mail has at most {MAX_RECIPIENTS} recipients, not {len(written.recipients)}", field="to")
    if len(mail.text) > MAX_MAIL_TEXT:
        raise InvalidInput(f"a mail has at most {MAX_MAIL_TEXT} characters, not {len(mail.text)}", field="text")
    if (size := sum(one.size_bytes for one in mail.files)) > MAX_MAIL_FILES:
        raise InvalidInput(
            f"the files have {size} bytes, and a mail takes at most {MAX_MAIL_FILES}: send fewer", field="files"
        )
    return written


def checked_address(given: str, field: str) -> str:
    """The address as SMTP takes it. Raises InvalidInput."""
    found = ascii_address(given.strip())
    if found is None:
        raise InvalidInput(f"{given!r} is no address of e-mail, such as ann@example.org", field=field)
    local, _, domain = found.rpartition("@")
    return f"{local}@{domain.lower()}"


def _checked_subject(subject: str) -> str:
    """Nothing is taken out of it in silence: whoever approves a mail has seen what is sent."""
    if any(category(one) in _NO_TEXT for one in subject):
        raise InvalidInput("a subject is one line without control characters", field="subject")
    line = subject.strip()
    if not line or len(line) > MAX_SUBJECT:
        raise InvalidInput(f"a subject has 1 to {MAX_SUBJECT} characters", field="subject")
    return line


def _checked_ids(given: tuple[str, ...]) -> tuple[str, ...]:
    for one in given:
        if message_ids_in(one) != [one]:
            raise InvalidInput("a mail is named by its Message-ID in angle brackets", field="in_reply_to")
    return given


def written_address(written: WrittenMail) -> JsonObject:
    """The `reply_address` of its message, which has nothing else than what it says and its files."""
    return {VERBATIM: True, _MAIL: msgspec.to_builtins(written)}


def written_in(address: JsonMapping) -> WrittenMail | None:
    """The mail in an address; None if that is the address of a mail to be answered."""
    found = address.get(_MAIL) if address.get(VERBATIM) is True else None
    return None if found is None else msgspec.convert(found, WrittenMail)


def compose_written(
    written: WrittenMail, text: str, files: tuple[File, ...], *, name: str = "", now: datetime, draft: bool = False
) -> bytes:
    """The mail, with CRLF. `name`: what its account is called; `now` is an aware time. A draft names those of `bcc`."""
    boundary = sha256(written.message_id.encode()).hexdigest()[:24]
    body = with_files(_written_body(text, written.calendar, boundary), files, boundary)
    hidden = ["Bcc: " + ",\r\n ".join(written.bcc)] if draft and written.bcc else []
    return join_lines((*hidden, *_written_head(written, name, now), *body))


def _written_head(written: WrittenMail, name: str, now: datetime) -> Iterator[str]:
    named = encode_field(visible_line(name, MAX_NAME), PLAIN_NAME)
    yield f"From: {named} <{written.sender}>" if named else f"From: {written.sender}"
    if written.to:
        yield "To: " + ",\r\n ".join(written.to)
    if written.cc:
        yield "Cc: " + ",\r\n ".join(written.cc)
    yield f"Subject: {encode_field(written.subject, PLAIN_FIELD)}"
    yield f"Date: {format_datetime(now)}"
    yield f"Message-ID: {written.message_id}"
    if written.in_reply_to:
        yield f"In-Reply-To: {written.in_reply_to}"
    if written.references:
        yield "References: " + "\r\n ".join(written.references)
    if written.automatic:
        yield "Auto-Submitted: auto-generated"
    yield "MIME-Version: 1.0"


def _written_body(text: str, calendar: CalendarPart | None, boundary: str) -> MailLines:
    plain = text_part("plain", text)
    if calendar is None:
        return plain
    event = text_part("calendar", calendar.ics, f"; method={calendar.method}")
    return multipart_of("alternative", f"=_a{boundary}", (plain, event))
