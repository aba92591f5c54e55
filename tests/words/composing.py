"""Mails as bytes, as programs send them.

Used by `forms.py`, `first_mails.py` and `orders.py`. In: header fields, a plain text, an HTML text or both; out: bytes.
"""

from __future__ import annotations

import base64
import quopri
from email.header import Header
from typing import Final

ANN: Final = "ann@people.example"
_ANSWERED: Final = "<q1@people.example>"
_BOUNDARY: Final = "=_b0b5ea1f"


def mail(
    subject: str,
    *,
    plain: str | None = None,
    html: str | None = None,
    fields: tuple[str, ...] = (),
    encoding: str = "8bit",
    flowed: bool = False,
) -> bytes:
    """A mail of Ann's; `fields` are further header fields. With both texts it is `multipart/alternative`."""
    head = (
        f"From: Ann Example <{ANN}>",
        "To: me@example.org",
        f"Subject: {subject if subject.isascii() else Header(subject, 'utf-8').encode()}",
        "Date: Sat, 28 Nov 2026 09:00:00 +0100",
        "Message-ID: <m1@people.example>",
        "MIME-Version: 1.0",
        *fields,
    )
    parts = [_part("plain", plain, encoding, flowed=flowed)] if plain is not None else []
    parts += [_part("html", html, encoding)] if html is not None else []
    if len(parts) == 1:
        return "\r\n".join(head).encode() + b"\r\n" + parts[0]
    mixed = (*head, f'Content-Type: multipart/alternative; boundary="{_BOUNDARY}"', "", "")
    mark = f"--{_BOUNDARY}".encode()
    return "\r\n".join(mixed).encode() + b"".join(mark + b"\r\n" + part + b"\r\n" for part in parts) + mark + b"--\r\n"


def answering(*, only_references: bool = False) -> tuple[str, ...]:
    """The fields of a mail that answers another."""
    return (
        (f"References: {_ANSWERED}",) if only_references else (f"In-Reply-To: {_ANSWERED}", f"References: {_ANSWERED}")
    )


def _part(kind: str, text: str, encoding: str, *, flowed: bool = False) -> bytes:
    shape = "; format=flowed" if flowed else ""
    head = f"Content-Type: text/{kind}; charset=utf-8{shape}\r\nContent-Transfer-Encoding: {encoding}\r\n\r\n"
    return head.encode() + _encoded(text.replace("\n", "\r\n").encode(), encoding)


def _encoded(data: bytes, encoding: str) -> bytes:
    if encoding == "base64":
        return base64.encodebytes(data).replace(b"\n", b"\r\n")
    if encoding == "quoted-printable":
        return quopri.encodestring(data.replace(b"\r\n", b"\n")).replace(b"\n", b"\r\n")
    return data
