"""What is in a mail: its text as its sender wrote it, whose words that is, and its files.

Mails are parsed in child processes with limits, as everywhere. `reading.py` and `looking.py` call it. In: bytes, which
a stranger wrote; out: a `ReadMail`. Next: `transport/mail_reading.py`.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from switchboard.core.mail.attachments import SHOWN
from switchboard.core.mail.auth import mail_auth
from switchboard.core.mail.head import decode_field
from switchboard.core.mail.headers import address, domain_of, header
from switchboard.core.passages.folding import Shown, answers_something, folded
from switchboard.core.passages.own import passages_of
from switchboard.core.passages.showing import marked_text
from switchboard.core.text.visible import visible
from switchboard.domain.envelope import Attachment, Envelope, Passage
from switchboard.domain.errors import InvalidInput
from switchboard.transport.mail_reading import MailReader, mail_name

_PROTECTIONS: Final = {
    "multipart/signed": "signed",
    "multipart/encrypted": "encrypted",
    "application/pkcs7-mime": "signed or encrypted",
    "application/x-pkcs7-mime": "signed or encrypted",
}
_ENDPOINT: Final = "mail"
"""Mails that are looked up arrive at no account of a connector."""


class ReadMail(Struct, frozen=True):
    """A mail. `text` has no history if `quoted_lines` of it were left out."""

    raw: bytes
    envelope: Envelope
    text: str
    quoted_lines: int

    @property
    def attachments(self) -> tuple[Attachment, ...]:
        """Also those pictures that the text shows."""
        return self.envelope.payload.attachments

    @property
    def protection(self) -> str:
        """Whether it is signed or encrypted, by what it says of itself; empty: neither."""
        kind = header(self.envelope.payload.raw, "content-type").partition(";")[0].strip().lower()
        return _PROTECTIONS.get(kind, "")

    def header(self, name: str) -> str:
        """The first field of that name, encoded as it was sent."""
        return header(self.envelope.payload.raw, name)

    def authentication(self, trusted: frozenset[str]) -> str:
        """Whether the sender is who they say, according to one of these servers."""
        if not trusted:
            return "unknown"
        domain = domain_of(address(self.header("from")) or "") or ""
        return mail_auth(self.header("authentication-results"), trusted, domain) or "unknown"


def is_shown(one: Attachment) -> bool:
    """Whether it is a picture that the text shows, so that nobody attached it."""
    return (one.source_attachment_id or "").startswith(SHOWN)


class MailContents:
    """Reads mails; `close` ends the processes that do."""

    def __init__(self) -> None:
        self._reader = MailReader()

    async def read(self, raw: bytes, *, quoted: bool = False) -> ReadMail:
        """`quoted`: with the history that it repeats. Raises InvalidInput if it is no mail, and Unavailable."""
        mail = await self._reader.read(raw, endpoint=_ENDPOINT, provider="imap", now=datetime.now(UTC))
        passages = _without_subject(mail.envelope)
        shown = folded(passages, answers_something(passages) and not quoted)
        text = visible(marked_text([one for one in shown if not one.folded]))
        return ReadMail(raw, mail.envelope, text, _count_folded(shown))

    async def text_of(self, raw: bytes) -> str:
        """All its words; empty if it cannot be read."""
        try:
            mail = await self._reader.read(raw, endpoint=_ENDPOINT, provider="imap", now=datetime.now(UTC))
        except InvalidInput:
            return ""
        return mail.envelope.payload.normalized_text or ""

    async def file(self, mail: ReadMail, position: int) -> bytes | None:
        """The bytes of an attachment; None if it cannot be read. Raises Unavailable."""
        return await self._reader.file(mail.raw, position, mail_name(mail.raw))

    async def close(self) -> None:
        """End the processes."""
        await self._reader.close()


def _without_subject(envelope: Envelope) -> tuple[Passage, ...]:
    """The passages of a mail, the first of which begins with its subject."""
    first, *others = passages_of(envelope) or (Passage(kind="own", text=" "),)
    subject = decode_field(header(envelope.payload.raw, "subject")).strip()
    rest = first.text.removeprefix(subject).lstrip() if subject else first.text
    return (*((replace(first, text=rest),) if rest.strip() else ()), *others)


def _count_folded(shown: tuple[Shown, ...]) -> int:
    return sum(one.folded for one in shown)
