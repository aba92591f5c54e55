"""The bytes of the attachments of a mail, by their position in `payload.attachments`.

Called by `transport/mail_process.py`. Next: `core/mail/parse.py`, which lists them.
"""

from __future__ import annotations

from collections.abc import Sequence

from switchboard.core.mail.mime import MailPart, decoded_body, leaves, read_part


def attached_to(raw: bytes) -> list[MailPart]:
    """The attachments of a mail, in order."""
    return [part for part in leaves(read_part(raw)) if part.is_attachment]


def file_of(attached: Sequence[MailPart], attachment: int) -> bytes | None:
    """The decoded bytes; None if there is no such attachment."""
    if not 0 <= attachment < len(attached):
        return None
    return decoded_body(attached[attachment], attached[attachment].body)
