"""The protocol between a server and the processes that read mails for it.

Next: `mail_reading.py`, the server's side, and `mail_process.py`, the other side.
"""

from __future__ import annotations

import struct
from datetime import datetime
from enum import IntEnum
from typing import Final

import msgspec

ASKED: Final = struct.Struct(">II")
"""Precedes a mail: the sizes of `MailRequest` and of the mail."""
TOLD: Final = struct.Struct(">BI")
"""Precedes an answer: its kind and its size."""


class MailOutcome(IntEnum):
    """The kind of an answer. `READY` comes once, before any mail."""

    READY = 0
    ENVELOPE = 1
    REFUSED = 2
    FILE = 3
    NO_FILE = 4
    BROKEN = 5


class MailRequest(msgspec.Struct, frozen=True):
    """Data about a mail that is not in its bytes. `attachment`: return only the bytes of this one.

    `mail`: if it equals that of the last request, both are about the same mail, and its bytes are not sent again.
    """

    endpoint: str
    provider: str
    now: datetime
    attachment: int | None = None
    mail: str = ""


class MailRefusal(msgspec.Struct, frozen=True):
    """The parts of an InvalidInput."""

    message: str
    code: str
    field: str | None
