"""The bytes of the attachments of a mail, by their position in `payload.attachments`.

Called by `transport/mail_process.py`. Next: `core/mail/parse.py`, which lists them.
"""

from __future__ import annotations

from switchboard.core.mail.mime import decoded_body, leaves, read_part


def file_of(raw: bytes, attachment: int) -> bytes | None:
    """Decoded; None if there is no such attachment."""
    attached = [part for part in leaves(read_part(raw)) if part.is_attachment]
    if not 0 <= attachment < len(attached):
        return None
    return decoded_body(attached[attachment], attached[attachment].body)
