"""The envelope of a mail, made from its header fields; its payload is read elsewhere, or not at all.

Called by `core/mail/parse.py`, and for a mail without its body by `transport/mail_reading.py` and
`core/originals.py`. In: the fields as `core/mail/head.py` finds them; out: `Mail`, an envelope and, separately,
the bytes; InvalidInput if there is nothing to read. Strangers write mails: a defect in a field affects only that field.
Next: `core/mail/unusual.py` for what is unusual; `core/identity.py` names the event, `journey/accept.py` stores it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from email.message import Message
from email.utils import parsedate_to_datetime
from hashlib import sha256
from typing import Final

import msgspec
from msgspec import Struct

from switchboard.core.envelope.fast import fast_envelope
from switchboard.core.mail.head import decoded, field, or_none, read_head
from switchboard.core.mail.marks import CUT_MARK, UNREAD_MARK
from switchboard.core.mail.refusals import unreadable
from switchboard.core.mail.reply import reply_address
from switchboard.domain.envelope import (
    MAX_TEXT,
    SCHEMA_VERSION,
    Control,
    Envelope,
    Event,
    Payload,
    Sender,
    Source,
)
from switchboard.domain.json_values import JsonObject

KEPT_HEADERS: Final = (
    *("from", "sender", "reply-to", "to", "cc", "subject", "date", "message-id", "in-reply-to", "references"),
    *("list-id", "list-unsubscribe", "authentication-results", "auto-submitted", "precedence", "return-path"),
    *("delivered-to", "x-original-to", "importance", "list-post", "list-help", "content-type"),
    *("x-autoreply", "x-autorespond", "x-switchboard-hops"),
)
"""The fields in `payload.raw.headers`: what rules, loop protection and replies need. The rest is in `Mail.raw`."""

_MAX_NAME: Final = 512
_TOLERANCE: Final = timedelta(days=1)
_EARLIEST: Final = datetime(1970, 1, 1, tzinfo=UTC)
_ID = re.compile(r"<[^<>\s]+>")
_MAX_FROM: Final = 2_000
_ADDRESS = re.compile(r"[^\s<>()\",;:@]{1,255}(?:@[^\s<>()\",;:@]{1,255})?")
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"')
_ANGLED = re.compile(r"<\s*([^<>\s]+)\s*>")
_COMMENT = re.compile(r"\(([^()]*)\)")


class Mail(Struct, frozen=True):
    """`envelope.payload.raw` holds selected headers; `raw` holds the mail byte for byte (`message/rfc822`)."""

    envelope: Envelope
    raw: bytes


def envelope_of_head(raw: bytes, *, endpoint: str, provider: str = "file", now: datetime) -> Mail:
    """The result of `envelope_from_mail` for a mail that is too expensive to read: a mark replaces its body.

    Its attachments are not listed.
    """
    return mail_of(raw, read_head(not_empty(raw)), source_of(endpoint, provider), now, _payload_of_head)


def raw_of_mail(raw: bytes) -> JsonObject:
    """The `payload.raw` of a mail: selected headers. Takes milliseconds for any mail."""
    return kept_raw(_kept_headers(read_head(raw)))


def mail_of(
    raw: bytes,
    head: Message,
    source: Source,
    now: datetime,
    payload: Callable[[Mapping[str, str]], Payload],
    bounced: str | None = None,
) -> Mail:
    """The mail with the payload for its kept headers; `bounced` is the Message-ID of the mail that it says bounced.

    Raises InvalidInput.
    """
    headers = _kept_headers(head)
    envelope = Envelope(
        schema_version=SCHEMA_VERSION,
        sender=_sender(headers.get("from", ""), has_headers=len(head) > 0),
        source=source,
        event=_event(headers, raw, now, bounced),
        payload=payload(headers),
        control=Control(),
    )
    return Mail(_checked(envelope), raw)


def _checked(envelope: Envelope) -> Envelope:
    """The same with its strings stripped. Raises InvalidInput."""
    try:
        checked = fast_envelope(msgspec.json.encode(envelope))
    except UnicodeEncodeError:  # half a pair of surrogates
        checked = None
    if checked is not None:
        return checked
    from switchboard.core.mail.unusual import strictly_checked

    return strictly_checked(envelope)


def source_of(endpoint: str, provider: str) -> Source:
    """The account that received a mail."""
    return Source(channel="email", provider=provider, endpoint_identity=endpoint)


def _kept_headers(head: Message) -> dict[str, str]:
    return {name: value for name in KEPT_HEADERS if (value := field(head, name))}


def kept_raw(headers: Mapping[str, str]) -> JsonObject:
    """The headers as `payload.raw`."""
    return {"media_type": "message/rfc822", "headers": dict(headers)}


def not_empty(raw: bytes) -> bytes:
    """Raises InvalidInput."""
    if not raw.strip():
        raise unreadable("it is empty")
    return raw


def _sender(value: str, *, has_headers: bool) -> Sender:
    if not has_headers:
        raise unreadable("it does not begin with header fields such as From: joe@example.org")
    name, address = _mailbox(value[:_MAX_FROM])
    if not _ADDRESS.fullmatch(address):
        raise unreadable("its From field names no sender" if value else "it has no From field")
    return Sender(identity=address.lower(), display_name=short(decoded(name)) or None)


def _mailbox(value: str) -> tuple[str, str]:
    """The name and address of the first author.

    An address in angle brackets takes precedence, and encoded words are not decoded yet: a display name may contain an
    address, and email.utils.parseaddr takes `boss@example.org <thief@example.net>` for a mail from the boss.
    """
    bare = _QUOTED.sub("", value)
    if angled := _ANGLED.search(bare):
        name = value[: value.rfind(f"<{angled[1]}")]
        return name.strip().strip('"').replace("\\", ""), angled[1]
    comment = _COMMENT.search(bare)
    return comment[1] if comment else "", _COMMENT.sub("", bare).partition(",")[0].strip()


def _event(headers: Mapping[str, str], raw: bytes, now: datetime, bounced: str | None) -> Event:
    own = _first_id(headers.get("message-id", "")) or f"sha256:{sha256(raw).hexdigest()}"
    thread = _first_id(headers.get("references", "")) or _first_id(headers.get("in-reply-to", "")) or own
    sent = _date(headers.get("date", ""), now)
    return Event(
        external_event_id=own,
        external_thread_id=thread,
        observed_at=sent or now,
        sent_at=sent,
        kind="bounce" if bounced else "message",
        refers_to=bounced,
        reply_address=reply_address(headers),
    )


def answered_id(headers: Mapping[str, str]) -> str | None:
    """The id of the mail that this one answers; None if it is the first of its thread."""
    last = _ID.findall(headers.get("references", ""))[-1:]
    return _first_id(headers.get("in-reply-to", "")) or _first_id("".join(last))


def _first_id(value: str) -> str | None:
    found = _ID.search(value)
    if found is None:
        return None
    # A truncated id could match that of another mail.
    return found[0] if len(found[0]) <= _MAX_NAME else f"sha256:{sha256(found[0].encode()).hexdigest()}"


def _date(value: str, now: datetime) -> datetime | None:
    """None if it is missing, broken or ahead of `now`."""
    date = or_none(lambda: _aware(parsedate_to_datetime(value[:200])))
    return date if date and _EARLIEST <= date <= now + _TOLERANCE else None


def _aware(date: datetime) -> datetime:
    """The date in UTC, which is also what `-0000` means."""
    return (date if date.tzinfo else date.replace(tzinfo=UTC)).astimezone(UTC)


def _payload_of_head(headers: Mapping[str, str]) -> Payload:
    return Payload(raw=kept_raw(headers), normalized_text=below_subject(headers, UNREAD_MARK))


def below_subject(headers: Mapping[str, str], text: str) -> str:
    """The subject, a blank line and the text."""
    subject = decoded(headers.get("subject", "")).strip()
    return "\n\n".join(piece for piece in (subject, text) if piece)


def short(text: str) -> str:
    """The text on one line, shortened to the maximum length of a name."""
    return " ".join(text.split())[:_MAX_NAME].strip()


def shortened(text: str) -> str:
    """The text, shortened to the maximum length of a message."""
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - len(CUT_MARK)] + CUT_MARK
