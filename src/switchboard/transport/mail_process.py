"""The program of a child process that reads mails: `mail_reading.py` starts it, and sends it one mail after another.

Strangers wrote the mails, so memory of the process and processor time per mail are limited. It has no secrets in its
environment, and ends with its parent, when its input ends. In: frames with the account and the bytes; out: a frame with
the envelope as JSON, with the reason why there is none, or with the bytes of an attachment. The first mail waits for
all imports here, so modules that few mails need are imported when first needed. Next: `core/mail/parse.py`."""

from __future__ import annotations

import gc
import math
import resource
import sys

import msgspec

from switchboard.core.mail.files import attached_to, file_of
from switchboard.core.mail.mime import MailPart
from switchboard.core.mail.parse import envelope_from_mail
from switchboard.domain.errors import InvalidInput
from switchboard.transport.child import limit
from switchboard.transport.mail_frames import ASKED, TOLD, MailOutcome, MailRefusal, MailRequest


def main(memory_bytes: int, cpu_s: int) -> None:
    """Read mails until the input ends. A MemoryError ends the process, and so does a mail that takes too long."""
    gc.freeze()
    gc.enable()
    limit(resource.RLIMIT_AS, memory_bytes)
    limit(resource.RLIMIT_CORE, 0)
    _write_answer(MailOutcome.READY, b"")
    given, reading = sys.stdin.buffer, _Reading()
    while head := given.read(ASKED.size):
        about, size = ASKED.unpack(head)
        asked = msgspec.json.decode(given.read(about), type=MailRequest)
        _limit_time(cpu_s)
        reading.keeps(asked.mail)
        _write_answer(*reading.answer(given.read(size), asked))


class _Reading:
    """Keeps the attachments of one mail, since callers that request one usually request all."""

    def __init__(self) -> None:
        self._mail = ""
        self._attached: list[MailPart] | None = None

    def keeps(self, mail: str) -> None:
        """Drop the attachments of any other mail, so that only one mail is in memory."""
        if mail != self._mail or not mail:
            self._mail, self._attached = mail, None

    def answer(self, raw: bytes, asked: MailRequest) -> tuple[MailOutcome, bytes]:
        if asked.attachment is None:
            return _read_mail(raw, asked)
        if self._attached is None:
            self._attached = attached_to(raw)
        data = file_of(self._attached, asked.attachment)
        return (MailOutcome.NO_FILE, b"") if data is None else (MailOutcome.FILE, data)


def _read_mail(raw: bytes, asked: MailRequest) -> tuple[MailOutcome, bytes]:
    try:
        mail = envelope_from_mail(raw, endpoint=asked.endpoint, provider=asked.provider, now=asked.now)
    except InvalidInput as error:
        return MailOutcome.REFUSED, msgspec.json.encode(MailRefusal(error.message, error.code, error.field))
    except ImportError as error:  # an upgrade is under way, or the installation is broken: not this mail's fault
        return MailOutcome.BROKEN, str(error).encode()
    return MailOutcome.ENVELOPE, msgspec.json.encode(mail.envelope)


def _write_answer(outcome: MailOutcome, answer: bytes) -> None:
    sys.stdout.buffer.write(TOLD.pack(outcome, len(answer)) + answer)
    sys.stdout.buffer.flush()


def _limit_time(cpu_s: int) -> None:
    """Set the limit for the next mail, in total CPU time of the process; other load of the machine does not count."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    limit(resource.RLIMIT_CPU, math.ceil(used.ru_utime + used.ru_stime) + cpu_s)
