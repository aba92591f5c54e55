"""The error for input that is not a mail.

Called by `core/mail/envelope.py`, and by `core/mail/unusual.py`, which adds the error for a wrong account.
"""

from __future__ import annotations

from switchboard.domain.errors import InvalidInput


def unreadable(reason: str) -> InvalidInput:
    """The error for a mail; `reason` follows a colon."""
    return InvalidInput(f"this mail cannot be read: {reason}", code="unreadable_mail")
