"""The reply to a mail: its recipient and its bytes.

Called by `connectors/email`. In: the header fields that a stranger wrote, and the text of a butler; out:
`event.reply_address`, and a mail with lines of at most 998 octets, to which neither input can add a header field.
Next: `writing.py`, which makes its lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from email.utils import format_datetime
from hashlib import sha256
from itertools import chain
from typing import Final

from msgspec import Struct

from switchboard.core.mail.head import decode_field
from switchboard.core.mail.headers import address, domain_of, is_mailbox, mailboxes
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
from switchboard.domain.json_values import JsonObject

_MAX_REFERENCES: Final = 7
_PREFIX = re.compile(r"\s*(re|aw|sv|antw|odp|ref|res)\s*(\[\d{1,3}\])?\s*:\s*", re.IGNORECASE)
HOPS: Final = "x-switchboard-hops"
_COUNT = re.compile(r"[0-9]{1,3}", re.ASCII)


class MailReply(Struct, frozen=True, kw_only=True):
    """A mail to send. `to` is a `reply_address`; `html` says the same as `text`; `key` names the part."""

    to: JsonObject
    own: str
    """The address of the account."""
    name: str = ""
    key: str
    text: str
    html: str = ""
    subject: str = ""
    """Replaces the subject of the mail being answered."""
    files: tuple[File, ...] = ()


def reply_address(headers: Mapping[str, str], own: str = "") -> JsonObject:
    """The address for an answer to a mail with these fields: its Reply-To, otherwise its From, and nobody else.

    A Reply-To that is the mailbox `own`, which received the mail, does not count: we would answer ourselves.
    `{"to", "subject", "message_id", "references"}`, at most 4 KB; without `to` the mail cannot be answered. `hops`, for
    a mail from a switchboard: how many answers by switchboards led to it.
    """
    named = (one for one in _addresses_in(headers.get("reply-to", "")) if not (own and is_mailbox(one.lower(), own)))
    to = next(chain(named, _addresses_in(headers.get("from", ""))), None)
    answered = message_ids_in(headers.get("message-id", ""))[:1]
    ids = message_ids_in(headers.get("references", "")) or message_ids_in(headers.get("in-reply-to", ""))[:1]
    references = list(dict.fromkeys((*ids[:1], *ids[1:][-_MAX_REFERENCES:], *answered)))
    subject = visible_line(decode_field(headers.get("subject", "")), MAX_SUBJECT)
    known = answered[0] if answered else None
    made: JsonObject = {"to": to, "subject": subject, "message_id": known, "references": references}
    count = hops(headers.get(HOPS, ""))
    return {**made, "hops": count} if count else made


def _addresses_in(line: str) -> Iterator[str]:
    return (found for one in mailboxes(line)[:10] if (found := ascii_address(address(one) or "")))


def hops(said: str) -> int:
    """How many answers by switchboards led to a mail, itself included, as it says; 0: it is no such answer."""
    return int(said) if _COUNT.fullmatch(said) else 0


def message_id(key: str, own: str) -> str:
    """The Message-ID of the part with this key when sent by the address `own`; always the same."""
    return f"<{sha256(key.encode()).hexdigest()[:40]}@{domain_of(ascii_address(own) or '') or 'switchboard.invalid'}>"


def compose(reply: MailReply, now: datetime) -> bytes:
    """The mail, with CRLF. `now` is an aware time. Raises ValueError if there is nobody to send it to."""
    to, own = ascii_address(str(reply.to.get("to") or "")), ascii_address(reply.own)
    if to is None or own is None:
        raise ValueError("the address of the sender cannot be answered" if own else "the account has no mail address")
    boundary = sha256(reply.key.encode()).hexdigest()[:24]
    return join_lines((*_head(reply, to, own, now), *_body(reply, boundary)))


def _references(given: object) -> list[str]:
    return [one for said in given for one in message_ids_in(str(said))] if isinstance(given, list) else []


def _head(reply: MailReply, to: str, own: str, now: datetime) -> Iterator[str]:
    name = encode_field(visible_line(reply.name, MAX_NAME), PLAIN_NAME)
    yield f"From: {name} <{own}>" if name else f"From: {own}"
    yield f"To: {to}"
    yield f"Subject: {encode_field(answered_subject(reply.subject or str(reply.to.get('subject') or '')), PLAIN_FIELD)}"
    yield f"Date: {format_datetime(now)}"
    yield f"Message-ID: {message_id(reply.key, own)}"
    if answered := message_ids_in(str(reply.to.get("message_id") or ""))[:1]:
        yield f"In-Reply-To: {answered[0]}"
    if references := _references(reply.to.get("references")):
        yield "References: " + "\r\n ".join(references)
    yield "Auto-Submitted: auto-replied"
    yield f"X-Switchboard-Hops: {min(hops(str(reply.to.get('hops') or 0)) + 1, 999)}"
    yield "X-Auto-Response-Suppress: OOF, AutoReply"  # Exchange heeds only this one
    yield "MIME-Version: 1.0"


def answered_subject(subject: str) -> str:
    """The subject with a single `Re:` before it."""
    rest = visible_line(subject, MAX_SUBJECT)
    while found := _PREFIX.match(rest):
        rest = rest[found.end() :]
    return f"Re: {rest}".strip()


def _body(reply: MailReply, boundary: str) -> MailLines:
    return with_files(_alternative(reply, boundary), reply.files, boundary)


def _alternative(reply: MailReply, boundary: str) -> MailLines:
    plain = text_part("plain", reply.text)
    return (
        multipart_of("alternative", f"=_a{boundary}", (plain, text_part("html", reply.html))) if reply.html else plain
    )
