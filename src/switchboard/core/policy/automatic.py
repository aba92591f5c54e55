"""Whether a message was written by a machine, or to many: to such a one nothing is said unasked.

Called by `app/upkeep.py` before a sender is told anything. An envelope with its `payload.raw` enters, the sign that was
found leaves. The signs are those of RFC 3834 (automatic answers to mail) and what mailing lists and bounces show.
"""

from __future__ import annotations

import re
from typing import Final

from switchboard.core.routing.facts import mail_header
from switchboard.domain.envelope import Envelope

_MANY: Final = ("list-id", "list-unsubscribe", "list-post", "list-help")
_BULK: Final = frozenset({"bulk", "junk", "list", "auto_reply"})
_NOBODY = re.compile(
    r"(mailer-daemon|postmaster|no-?reply|do-?not-?reply|bounces?|owner-.*|.*-(request|bounces?|owner))([+=].*)?@"
)


def automatic_sign(envelope: Envelope) -> str | None:
    """What says that no person waits for an answer, such as `precedence: bulk`; None: a person may."""
    if envelope.source.channel != "email":
        return None
    if _NOBODY.match(envelope.sender.identity.strip("<> ").lower()):
        return f"from {envelope.sender.identity}"
    raw = envelope.payload.raw
    for name in _MANY:
        if _first(mail_header(raw, name)):
            return name
    submitted = _first(mail_header(raw, "auto-submitted")).partition(";")[0].strip().lower()
    if submitted not in {"", "no"}:
        return f"auto-submitted: {submitted}"
    precedence = _first(mail_header(raw, "precedence")).strip().lower()
    if precedence in _BULK:
        return f"precedence: {precedence}"
    return "return-path: <>" if _first(mail_header(raw, "return-path")).strip() == "<>" else None


def _first(value: object) -> str:
    """A header that may occur several times, or not at all."""
    top = value[0] if isinstance(value, list) and value else value
    return top if isinstance(top, str) else ""
