"""What a server and the processes that read mails for it say to each other.

Next: `mail_reading.py`, the server's side, and `mail_process.py`, the other one.
"""

from __future__ import annotations

import struct
from datetime import datetime
from enum import IntEnum
from typing import Final

import msgspec

ASKED: Final = struct.Struct(">II")
"""Before a mail: the sizes of `MailRequest`, and of the mail."""
TOLD: Final = struct.Struct(">BI")
"""Before an answer: what it is, and its size."""


class MailOutcome(IntEnum):
    """`READY` comes once, before any mail."""

    READY = 0
    ENVELOPE = 1
    REFUSED = 2
    FILE = 3
    NO_FILE = 4
    BROKEN = 5


class MailRequest(msgspec.Struct, frozen=True):
    """About a mail: what is not in its bytes. `attachment`: only the bytes of this one are wanted.

    `mail`: if the last question had the same, it was about the same mail, whose bytes are not sent again.
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
