"""The reply to a mail: its recipient and its bytes.

Called by `connectors/email`. In: the header fields that a stranger wrote, and the text of a butler; out:
`event.reply_address`, and a mail with lines of at most 998 octets, to which neither input can add a header field. The
lines are written here, because the standard library puts long message ids into encoded words. Next: `compared.py`.
"""

from __future__ import annotations

import re
from base64 import encodebytes
from binascii import b2a_qp
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from email.header import Header
from email.utils import format_datetime
from hashlib import sha256
from itertools import chain
from typing import Final
from unicodedata import category
from urllib.parse import quote

from msgspec import Struct

from switchboard.core.mail.head import decode_field
from switchboard.core.mail.headers import address, domain_of, is_mailbox, mailboxes
from switchboard.domain.json_values import JsonObject

_MAX_REFERENCES: Final = 7
_MAX_ID: Final = 250
_MAX_SUBJECT: Final = 200
_MAX_NAME: Final = 60
_MAX_FILENAME: Final = 70  # still fits into a line when percent-encoded
_PLAIN = re.compile(r"[A-Za-z0-9 .,:;!?'()*+/_-]*")
_PLAIN_NAME = re.compile(r"[A-Za-z0-9 '_-]*")
_PREFIX = re.compile(r"\s*(re|aw|sv|antw|odp|ref|res)\s*(\[\d{1,3}\])?\s*:\s*", re.IGNORECASE)
_LOCAL: Final = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(?:\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*"
_DOMAIN: Final = r"[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?"
_ADDRESS = re.compile(rf"{_LOCAL}@{_DOMAIN}")
_ID = re.compile(r"<[!-;=?-~]+>")
# A multipart or a mail must not be encoded as base64: it would be misread or refused.
_MEDIA_TYPE = re.compile(r"(?!multipart/|message/)[a-z0-9][a-z0-9.+-]{0,62}/[a-z0-9][a-z0-9.+-]{0,62}")
HOPS: Final = "x-switchboard-hops"
_COUNT = re.compile(r"[0-9]{1,3}", re.ASCII)
_UNSEEN: Final = frozenset({"Cc", "Cs", "Zl", "Zp"})


class File(Struct, frozen=True):
    """A whole file that goes with a reply."""

    filename: str
    media_type: str
    data: bytes


class MailReply(Struct, frozen=True, kw_only=True):
    """A mail to send. `to` is a `reply_address`; `html` says the same as `text`; `key` names the part."""

    to: JsonObject
    own: str
    """The address of the account."""
    name: str = ""
    key: str
    text: str
    html: str = ""
    subject: str = ""
    """Replaces the subject of the mail being answered."""
    files: tuple[File, ...] = ()


def reply_address(headers: Mapping[str, str], own: str = "") -> JsonObject:
    """The address for an answer to a mail with these fields: its Reply-To, otherwise its From, and nobody else.

    A Reply-To that is the mailbox `own`, which received the mail, does not count: we would answer ourselves.
    `{"to", "subject", "message_id", "references"}`, at most 4 KB; without `to` the mail cannot be answered. `hops`, for
    a mail from a switchboard: how many answers by switchboards led to it.
    """
    named = (one for one in _addresses_in(headers.get("reply-to", "")) if not (own and is_mailbox(one.lower(), own)))
    to = next(chain(named, _addresses_in(headers.get("from", ""))), None)
    answered = _ids(headers.get("message-id", ""))[:1]
    ids = _ids(headers.get("references", "")) or _ids(headers.get("in-reply-to", ""))[:1]
    references = list(dict.fromkeys((*ids[:1], *ids[1:][-_MAX_REFERENCES:], *answered)))
    subject = _line(decode_field(headers.get("subject", "")), _MAX_SUBJECT)
    known = answered[0] if answered else None
    made: JsonObject = {"to": to, "subject": subject, "message_id": known, "references": references}
    count = hops(headers.get(HOPS, ""))
    return {**made, "hops": count} if count else made


def _addresses_in(line: str) -> Iterator[str]:
    return (found for one in mailboxes(line)[:10] if (found := _ascii(address(one) or "")))


def hops(said: str) -> int:
    """How many answers by switchboards led to a mail, itself included, as it says; 0: it is no such answer."""
    return int(said) if _COUNT.fullmatch(said) else 0


def message_id(key: str, own: str) -> str:
    """The Message-ID of the part with this key when sent by the address `own`; always the same."""
    return f"<{sha256(key.encode()).hexdigest()[:40]}@{domain_of(_ascii(own) or '') or 'switchboard.invalid'}>"


def compose(reply: MailReply, now: datetime) -> bytes:
    """The mail, with CRLF. `now` is an aware time. Raises ValueError if there is nobody to send it to."""
    to, own = _ascii(str(reply.to.get("to") or "")), _ascii(reply.own)
    if to is None or own is None:
        raise ValueError("the address of the sender cannot be answered" if own else "the account has no mail address")
    boundary = sha256(reply.key.encode()).hexdigest()[:24]
    lines = (*_head(reply, to, own, now), *_body(reply, boundary))
    return b"\r\n".join(line if isinstance(line, bytes) else line.encode("ascii") for line in lines)


def _references(given: object) -> list[str]:
    return [one for said in given for one in _ids(str(said))] if isinstance(given, list) else []


def _head(reply: MailReply, to: str, own: str, now: datetime) -> Iterator[str]:
    name = _encode_field(_line(reply.name, _MAX_NAME), _PLAIN_NAME)
    yield f"From: {name} <{own}>" if name else f"From: {own}"
    yield f"To: {to}"
    yield f"Subject: {_encode_field(answered_subject(reply.subject or str(reply.to.get('subject') or '')), _PLAIN)}"
    yield f"Date: {format_datetime(now)}"
    yield f"Message-ID: {message_id(reply.key, own)}"
    if answered := _ids(str(reply.to.get("message_id") or ""))[:1]:
        yield f"In-Reply-To: {answered[0]}"
    if references := _references(reply.to.get("references")):
        yield "References: " + "\r\n ".join(references)
    yield "Auto-Submitted: auto-replied"
    yield f"X-Switchboard-Hops: {min(hops(str(reply.to.get('hops') or 0)) + 1, 999)}"
    yield "X-Auto-Response-Suppress: OOF, AutoReply"  # Exchange heeds only this one
    yield "MIME-Version: 1.0"


def answered_subject(subject: str) -> str:
    """The subject with a single `Re:` before it."""
    rest = _line(subject, _MAX_SUBJECT)
    while found := _PREFIX.match(rest):
        rest = rest[found.end() :]
    return f"Re: {rest}".strip()


def _body(reply: MailReply, boundary: str) -> Iterator[str | bytes]:
    words = tuple(_alternative(reply, boundary))
    if not reply.files:
        yield from words
        return
    yield from _multipart("mixed", f"=_m{boundary}", (words, *(tuple(_encode_attachment(one)) for one in reply.files)))


def _alternative(reply: MailReply, boundary: str) -> Iterator[str | bytes]:
    plain = tuple(_words("plain", reply.text))
    if not reply.html:
        yield from plain
        return
    yield from _multipart("alternative", f"=_a{boundary}", (plain, tuple(_words("html", reply.html))))


def _multipart(kind: str, boundary: str, parts: Sequence[Sequence[str | bytes]]) -> Iterator[str | bytes]:
    """Neither quoted-printable nor base64 ever contains `=_`, so the boundary occurs in no part."""
    yield f'Content-Type: multipart/{kind}; boundary="{boundary}"'
    yield ""
    for part in parts:
        yield f"--{boundary}"
        yield from part
    yield f"--{boundary}--"
    yield ""


def _words(kind: str, text: str) -> Iterator[str]:
    yield f"Content-Type: text/{kind}; charset=utf-8"
    yield "Content-Transfer-Encoding: quoted-printable"
    yield ""
    data = text.replace("\r\n", "\n").replace("\r", "\n").encode("utf-8", "replace")
    yield from b2a_qp(data).decode("ascii").split("\n")


def _encode_attachment(file: File) -> Iterator[str | bytes]:
    kind = file.media_type.lower()
    yield f"Content-Type: {kind if _MEDIA_TYPE.fullmatch(kind) else 'application/octet-stream'}"
    yield "Content-Disposition: attachment;"
    name = _line(re.split(r"[/\\]", file.filename)[-1], _MAX_FILENAME, end="") or "file"
    yield f" filename*=UTF-8''{quote(name, safe='')}"
    yield "Content-Transfer-Encoding: base64"
    yield ""
    yield encodebytes(file.data).replace(b"\n", b"\r\n")  # as one piece: 18 MB would be a third of a million lines


def _ascii(mail_address: str) -> str | None:
    """The address in the form that SMTP accepts without extensions; None if there is none."""
    local, at, domain = mail_address.rpartition("@")
    try:
        plain = local + at + domain.encode("idna").decode("ascii")
    except UnicodeError:
        return None
    return plain if len(plain) <= 320 and _ADDRESS.fullmatch(plain) else None


def _ids(value: str) -> list[str]:
    return [one for one in _ID.findall(value) if len(one) <= _MAX_ID]


def _line(text: str, most: int, end: str = "…") -> str:
    """The text on one line, without invisible characters."""
    seen = "".join(" " if category(one) in _UNSEEN else one for one in text[: 4 * most])
    plain = " ".join(seen.split())
    return plain if len(plain) <= most else plain[: most - len(end)] + end


def _encode_field(text: str, plain: re.Pattern[str]) -> str:
    """The text for a header field: as encoded words (RFC 2047) unless it is plain."""
    if plain.fullmatch(text):
        return text
    return Header(text, "utf-8", maxlinelen=75, header_name="Subject").encode(linesep="\r\n")
