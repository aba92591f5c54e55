"""Whether a message was written by a machine, or to many: to such a one nothing is said unasked.

Called by `app/upkeep.py` before a sender is told anything. An envelope with its `payload.raw` enters, the sign that was
found leaves. The signs are those of RFC 3834 (automatic answers to mail), what mailing lists and bounces show, and that
the mail came from the very mailbox it went to.
"""

from __future__ import annotations

import re
from typing import Final

from switchboard.core.routing.facts import address, mail_header
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
    return _sign_of_sender(envelope) or _sign_of_headers(envelope.payload.raw)


def _sign_of_sender(envelope: Envelope) -> str | None:
    identity = envelope.sender.identity
    sender = _address(identity)
    if _NOBODY.match(sender):
        return f"from {identity}"
    if _address(envelope.source.endpoint_identity.rpartition(":")[2]) in {sender, _without_tag(sender)}:
        return f"from {identity}, which is this mailbox"
    return None


def _sign_of_headers(raw: object) -> str | None:
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


def _address(identity: str) -> str:
    return address(identity) or identity.strip("<> ").lower()


def _without_tag(mail_address: str) -> str:
    """`me@example.com` for `me+shop@example.com`."""
    local, at, domain = mail_address.rpartition("@")
    return f"{local.partition('+')[0]}{at}{domain}"


def _first(value: object) -> str:
    """A header that may occur several times, or not at all."""
    top = value[0] if isinstance(value, list) and value else value
    return top if isinstance(top, str) else ""
