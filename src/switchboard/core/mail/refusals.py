"""The refusal of what is no mail.

Called by `core/mail/envelope.py` and `core/mail/unusual.py`, which add the refusal of a wrong account.
"""

from __future__ import annotations

from switchboard.domain.errors import InvalidInput


def unreadable(reason: str) -> InvalidInput:
    """The refusal of a mail; `reason` follows a colon."""
    return InvalidInput(f"this mail cannot be read: {reason}", code="unreadable_mail")
