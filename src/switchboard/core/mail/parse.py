"""From the bytes of a mail to an envelope.

Called by `transport/mail_process.py`, and for a mail without its body by `transport/mail_reading.py` and
`app/messages/originals.py`. In: the mail as received, the account that
received it, and the time. Out: `Mail`, an envelope and, separately, the bytes; InvalidInput if there is nothing to
read. Strangers write mails: a defect in a part affects only that part, and no mail takes much time.
`core/mail/mime.py` reads the parts. Next: `core/identity.py` names the event, `journey/accept.py` stores it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.message import Message
from email.utils import parsedate_to_datetime
from hashlib import sha256
from itertools import islice
from typing import Final

from pydantic import ValidationError

from switchboard.core.envelope.strict import strict
from switchboard.core.mail.hypertext import CUT_MARK
from switchboard.core.mail.mime import Part, decoded, field, leaves, or_none, read_head, read_part, size_of, text_of
from switchboard.domain.envelope import (
    MAX_TEXT,
    SCHEMA_VERSION,
    Attachment,
    Control,
    Envelope,
    Event,
    Payload,
    Sender,
    Source,
)
from switchboard.domain.errors import InvalidInput
from switchboard.domain.json_values import JsonObject

KEPT_HEADERS: Final = (
    *("from", "sender", "reply-to", "to", "cc", "subject", "date", "message-id", "in-reply-to", "references"),
    *("list-id", "list-unsubscribe", "authentication-results", "auto-submitted", "precedence", "return-path"),
    *("delivered-to", "x-original-to", "importance"),
)
"""The fields in `payload.raw.headers`: what rules, loop protection and replies need. The rest is in `Mail.raw`."""

_PARAMETERS: Final[Mapping[tuple[int | str, ...], str]] = {
    ("source", "endpoint_identity"): "endpoint",
    ("source", "provider"): "provider",
}
"""What is not in the mail, under the name it has at every interface."""
UNREAD_MARK: Final = "[the body of this mail takes too long or too much memory to read; the original is kept]"
"""The text of a mail of which only the header fields are read."""
_MAX_NAME: Final = 512
_MAX_ATTACHMENTS: Final = 100
_TOLERANCE: Final = timedelta(days=1)
_EARLIEST: Final = datetime(1970, 1, 1, tzinfo=UTC)
_ID = re.compile(r"<[^<>\s]+>")
_MAX_FROM: Final = 2_000
_ADDRESS = re.compile(r"[^\s<>()\",;:@]{1,255}(?:@[^\s<>()\",;:@]{1,255})?")
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"')
_ANGLED = re.compile(r"<\s*([^<>\s]+)\s*>")
_COMMENT = re.compile(r"\(([^()]*)\)")


@dataclass(frozen=True, slots=True)
class Mail:
    """`envelope.payload.raw` holds selected headers; `raw` holds the mail byte for byte (`message/rfc822`)."""

    envelope: Envelope
    raw: bytes


def envelope_from_mail(raw: bytes, *, endpoint: str, provider: str = "file", now: datetime) -> Mail:
    """The mail `raw` as it was received by the account `endpoint`; `now` is an aware time.

    Its text is the subject, a blank line and the body, cut at MAX_TEXT. Its thread is the first mail it refers to. A
    date that is missing, broken or ahead of `now` becomes `now`. Raises InvalidInput(code="unreadable_mail") if it is
    not a mail or has no sender, and "invalid_value" for an invalid account; every lesser fault is tolerated.
    """
    root = read_part(_not_empty(raw))
    return _mail(raw, root.head, _source(endpoint, provider), now, lambda headers: _payload(root, headers))


def envelope_of_head(raw: bytes, *, endpoint: str, provider: str = "file", now: datetime) -> Mail:
    """The same for a mail that takes too much to read: a mark stands for its body, and its attachments are not told."""
    return _mail(raw, read_head(_not_empty(raw)), _source(endpoint, provider), now, _payload_of_head)


def raw_of_mail(raw: bytes) -> JsonObject:
    """What `payload.raw` holds of a mail: selected headers. Takes milliseconds, whatever the mail."""
    return _raw(_kept_headers(read_head(raw)))


def _mail(
    raw: bytes, head: Message, source: Source, now: datetime, payload: Callable[[Mapping[str, str]], Payload]
) -> Mail:
    headers = _kept_headers(head)
    envelope = Envelope(
        schema_version=SCHEMA_VERSION,
        sender=_sender(headers.get("from", ""), has_headers=len(head) > 0),
        source=source,
        event=_event(headers, raw, now),
        payload=payload(headers),
        control=Control(),
    )
    try:
        return Mail(strict(Envelope, envelope), raw)
    except ValidationError as error:
        raise _explained(error) from None


def _source(endpoint: str, provider: str) -> Source:
    return Source(channel="email", provider=provider, endpoint_identity=endpoint)


def _kept_headers(head: Message) -> dict[str, str]:
    return {name: value for name in KEPT_HEADERS if (value := field(head, name))}


def _raw(headers: Mapping[str, str]) -> JsonObject:
    return {"media_type": "message/rfc822", "headers": dict(headers)}


def _explained(error: ValidationError) -> InvalidInput:
    """A wrong account is the caller's fault, everything else the mail's."""
    first = error.errors(include_url=False, include_input=False)[0]
    name = _PARAMETERS.get(first["loc"])
    if name is None:
        return _unreadable(str(first["msg"]))
    match first:
        case {"type": "string_too_short"}:
            reason = "must not be empty"
        case {"type": "string_too_long", "ctx": {"max_length": most}}:
            reason = f"must not be longer than {most}"
        case _:
            reason = "must not hold NUL"
    return InvalidInput(f"the {name} of a mail {reason}", code="invalid_value", field=name)


def _unreadable(reason: str) -> InvalidInput:
    return InvalidInput(f"this mail cannot be read: {reason}", code="unreadable_mail")


def _not_empty(raw: bytes) -> bytes:
    if not raw.strip():
        raise _unreadable("it is empty")
    return raw


def _sender(value: str, *, has_headers: bool) -> Sender:
    if not has_headers:
        raise _unreadable("it does not begin with header fields such as From: joe@example.org")
    name, address = _mailbox(value[:_MAX_FROM])
    if not _ADDRESS.fullmatch(address):
        raise _unreadable("its From field names no sender" if value else "it has no From field")
    return Sender(identity=address.lower(), display_name=_short(decoded(name)) or None)


def _mailbox(value: str) -> tuple[str, str]:
    """The name and address of the first author.

    An address in angle brackets takes precedence, and encoded words are not decoded yet: a display name may contain an
    address, and email.utils.parseaddr takes `boss@example.org <thief@example.net>` for the boss.
    """
    bare = _QUOTED.sub("", value)
    if angled := _ANGLED.search(bare):
        name = value[: value.rfind(f"<{angled[1]}")]
        return name.strip().strip('"').replace("\\", ""), angled[1]
    comment = _COMMENT.search(bare)
    return comment[1] if comment else "", _COMMENT.sub("", bare).partition(",")[0].strip()


def _event(headers: Mapping[str, str], raw: bytes, now: datetime) -> Event:
    own = _first_id(headers.get("message-id", "")) or f"sha256:{sha256(raw).hexdigest()}"
    thread = _first_id(headers.get("references", "")) or _first_id(headers.get("in-reply-to", "")) or own
    return Event(external_event_id=own, external_thread_id=thread, observed_at=_date(headers.get("date", ""), now))


def _first_id(value: str) -> str | None:
    found = _ID.search(value)
    if found is None:
        return None
    # A truncated id could be that of another mail.
    return found[0] if len(found[0]) <= _MAX_NAME else f"sha256:{sha256(found[0].encode()).hexdigest()}"


def _date(value: str, now: datetime) -> datetime:
    date = or_none(lambda: _aware(parsedate_to_datetime(value[:200])))
    return date if date and _EARLIEST <= date <= now + _TOLERANCE else now


def _aware(date: datetime) -> datetime:
    """In UTC, which `-0000` means as well."""
    return (date if date.tzinfo else date.replace(tzinfo=UTC)).astimezone(UTC)


def _payload(root: Part, headers: Mapping[str, str]) -> Payload:
    attached = tuple(_attachment(part) for part in islice(filter(_is_attached, leaves(root)), _MAX_ATTACHMENTS))
    text = _below_subject(headers, text_of(root).strip())
    return Payload(
        raw=_raw(headers),
        normalized_text=_cut(text) or ("" if attached else "(an empty mail)"),
        attachments=attached,
    )


def _payload_of_head(headers: Mapping[str, str]) -> Payload:
    return Payload(raw=_raw(headers), normalized_text=_below_subject(headers, UNREAD_MARK))


def _below_subject(headers: Mapping[str, str], text: str) -> str:
    subject = decoded(headers.get("subject", "")).strip()
    return "\n\n".join(piece for piece in (subject, text) if piece)


def _is_attached(part: Part) -> bool:
    return part.is_attachment


def _attachment(part: Part) -> Attachment:
    return Attachment(
        media_type=_short(part.media_type),
        # Only the last part of a path: the sender must not choose where anything is stored.
        filename=_short(re.split(r"[/\\]", part.filename)[-1]) or None,
        size_bytes=size_of(part),
        source_attachment_id=_short(field(part.head, "content-id")) or None,
    )


def _short(text: str) -> str:
    return " ".join(text.split())[:_MAX_NAME].strip()


def _cut(text: str) -> str:
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - len(CUT_MARK)] + CUT_MARK
