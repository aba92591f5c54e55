"""From the bytes of a mail to an envelope.

Called by `transport/mail_process.py`. In: the mail as received, the account that received it, and the time. Out:
`Mail`, an envelope and, separately, the bytes; InvalidInput if there is nothing to read. Strangers write mails: a
defect in a part affects only that part, and no mail takes much time. `core/mail/mime.py` reads the parts,
`core/mail/envelope.py` the header fields. Next: `core/envelope/identity.py` names the event, `journey/accept.py` stores
it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from switchboard.core.mail.attachments import attachments_of
from switchboard.core.mail.bounce import id_of_bounced_mail
from switchboard.core.mail.compared import compared_text, with_compared
from switchboard.core.mail.envelope import (
    Mail,
    MailAbout,
    answered_id,
    kept_raw,
    mail_of,
    not_empty,
    shortened,
    source_of,
)
from switchboard.core.mail.head import decode_field
from switchboard.core.mail.mime import MailPart, read_part
from switchboard.core.mail.passages import below_subject, passages_of_texts
from switchboard.core.mail.reading import Reading
from switchboard.core.mail.scheduling import is_for_calendars
from switchboard.core.mail.texts import MailText, charset_guessed, texts_of
from switchboard.core.passages.fitting import fitting
from switchboard.core.passages.own import has_others_words, joined
from switchboard.core.passages.plain import MailFacts, is_forward_subject
from switchboard.domain.envelope import Passage, Payload


def envelope_from_mail(raw: bytes, *, endpoint: str, provider: str = "file", now: datetime) -> Mail:
    """The mail `raw` as it was received by the account `endpoint`; `now` is an aware time.

    Its text is the subject, a blank line and the body, cut at MAX_TEXT; its passages say whose words these are, unless
    all are the sender's. What is compared of it is in `payload.raw` if that has other words. A notice that a mail was
    not delivered is a `bounce` that refers to it, and a message of a calendar program is of the kind `calendar`. Its
    thread is the first mail it refers to. A date that is missing, broken or ahead of `now` becomes `now`.

    Raises InvalidInput(code="unreadable_mail") if it is not a mail or has no sender, and "invalid_value" for an
    invalid account; every lesser fault is tolerated.
    """
    root = read_part(not_empty(raw))
    source = source_of(endpoint, provider)
    return mail_of(raw, root.head, source, now, lambda headers: _payload(root, headers), _about(root))


def _about(root: MailPart) -> MailAbout:
    if bounced := id_of_bounced_mail(root):
        return MailAbout("bounce", bounced)
    return MailAbout("calendar" if is_for_calendars(root) else "message")


def _payload(root: MailPart, headers: Mapping[str, str]) -> Payload:
    reading = Reading()
    attached = attachments_of(root, reading)
    texts = texts_of(root, reading)
    guessed = charset_guessed(root, texts)
    passages = _passages(headers, texts, reading)
    others = has_others_words(passages)
    payload = Payload(
        raw=kept_raw(headers) | ({"charset_guessed": guessed} if guessed else {}),
        normalized_text=(joined(passages) if others else shortened(joined(passages)))
        or ("" if attached else "(an empty mail)"),
        passages=passages if others else (),
        attachments=attached,
    )
    return with_compared(payload, headers.get("subject", ""), compared_text(root, reading))


def _passages(headers: Mapping[str, str], texts: Sequence[MailText], reading: Reading) -> tuple[Passage, ...]:
    subject = decode_field(headers.get("subject", "")).strip()
    facts = MailFacts(answered_id(headers), is_forward_subject(subject))
    passages = below_subject(subject, passages_of_texts(texts, facts, reading), facts)
    return fitting(passages) if has_others_words(passages) else passages
