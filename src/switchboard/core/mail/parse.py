"""From the bytes of a mail to an envelope.

Called by `transport/mail_process.py`. In: the mail as received, the account that received it, and the time. Out:
`Mail`, an envelope and, separately, the bytes; InvalidInput if there is nothing to read. Strangers write mails: a
defect in a part affects only that part, and no mail takes much time. `core/mail/mime.py` reads the parts,
`core/mail/envelope.py` the header fields. Next: `core/identity.py` names the event, `journey/accept.py` stores it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from itertools import islice
from typing import Final

from switchboard.core.mail.bounce import bounced
from switchboard.core.mail.compared import compared_text, with_compared
from switchboard.core.mail.envelope import (
    Mail,
    answered_id,
    kept_raw,
    mail_of,
    not_empty,
    short,
    shortened,
    source_of,
)
from switchboard.core.mail.head import decoded, field
from switchboard.core.mail.mime import MailPart, bodies_of, leaves, read_part, size_of
from switchboard.core.mail.passages import below_subject, fitting, passages_of_bodies
from switchboard.core.mail.reading import Reading
from switchboard.core.passages.own import has_others_words, joined
from switchboard.core.passages.plain import MailFacts, is_forward_subject
from switchboard.domain.envelope import Attachment, Passage, Payload

_MAX_ATTACHMENTS: Final = 100


def envelope_from_mail(raw: bytes, *, endpoint: str, provider: str = "file", now: datetime) -> Mail:
    """The mail `raw` as it was received by the account `endpoint`; `now` is an aware time.

    Its text is the subject, a blank line and the body, cut at MAX_TEXT; its passages say whose words these are, unless
    all are the sender's. What is compared of it is in `payload.raw` if that has other words. A notice that a mail was
    not delivered is a `bounce` that refers to it. Its thread is the first mail it refers to. A date that is missing,
    broken or ahead of `now` becomes `now`.

    Raises InvalidInput(code="unreadable_mail") if it is not a mail or has no sender, and "invalid_value" for an
    invalid account; every lesser fault is tolerated.
    """
    root = read_part(not_empty(raw))
    source = source_of(endpoint, provider)
    return mail_of(raw, root.head, source, now, lambda headers: _payload(root, headers), bounced(root))


def _payload(root: MailPart, headers: Mapping[str, str]) -> Payload:
    attachments = (part for part in leaves(root) if part.is_attachment)
    attached = tuple(map(_attachment, islice(attachments, _MAX_ATTACHMENTS)))
    reading = Reading()
    passages = _passages(root, headers, reading)
    text = joined(passages) if has_others_words(passages) else shortened(joined(passages))
    payload = Payload(
        raw=kept_raw(headers),
        normalized_text=text or ("" if attached else "(an empty mail)"),
        passages=passages if has_others_words(passages) else (),
        attachments=attached,
    )
    return with_compared(payload, headers.get("subject", ""), compared_text(root, reading))


def _passages(root: MailPart, headers: Mapping[str, str], reading: Reading) -> tuple[Passage, ...]:
    subject = decoded(headers.get("subject", "")).strip()
    facts = MailFacts(answered_id(headers), is_forward_subject(subject))
    passages = below_subject(subject, passages_of_bodies(bodies_of(root), facts, reading), facts)
    return fitting(passages) if has_others_words(passages) else passages


def _attachment(part: MailPart) -> Attachment:
    return Attachment(
        media_type=short(part.media_type),
        # Only the last part of a path: the sender must not choose where anything is stored.
        filename=short(re.split(r"[/\\]", part.filename)[-1]) or None,
        size_bytes=size_of(part),
        source_attachment_id=short(field(part.head, "content-id")) or None,
    )
