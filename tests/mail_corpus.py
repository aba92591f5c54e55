"""A thousand mails as strangers and broken programs write them; the same ones each time.

Every family gives a mail for a number; `words` that a person would have read must be in its text.
"""

from __future__ import annotations

import base64
import quopri
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from email.header import Header
from typing import Final

SIZE: Final = 1_200
_CHARSETS: Final = (
    ("utf-8", "Grüße aus Köln"),
    ("iso-8859-1", "Grüße aus Köln"),
    ("windows-1252", "“Größe” 5 €"),
    ("koi8-r", "Привет из Москвы"),
    ("iso-2022-jp", "こんにちは世界"),
    ("shift_jis", "こんにちは世界"),
    ("gb18030", "你好世界"),
    ("big5", "你好世界"),
    ("euc-kr", "안녕하세요"),
    ("windows-1255", "שלום עולם"),
    ("windows-1256", "مرحبا بالعالم"),
    ("utf-16", "Grüße"),
    ("utf-7", "Grüße"),
)
_NO_CHARSETS: Final = ("x-unknown", "", "utf-8; x=", "idna", "\N{SNOWMAN}", "a" * 900)


@dataclass(frozen=True, slots=True)
class Case:
    """A mail; `words` must be in its text, None: only that it is taken or refused."""

    family: str
    raw: bytes
    words: str | None = None


Family = Callable[[random.Random, int], tuple[bytes, str | None]]


def corpus(size: int = SIZE) -> Iterator[Case]:
    """So many mails, the families in turn."""
    for number in range(size):
        name = list(FAMILIES)[number % len(FAMILIES)]
        raw, words = FAMILIES[name](random.Random(number), number)
        yield Case(name, raw, words)


def _mail(number: int, head: str, body: bytes) -> bytes:
    fields = f"From: Ada <ada{number}@x.example>\r\nMessage-ID: <{number}@x.example>\r\nMIME-Version: 1.0\r\n"
    return (fields + head).encode("utf-8") + b"\r\n\r\n" + body


def _multipart(number: int, kind: str, *parts: bytes) -> bytes:
    body = b"".join(b"--b\r\n" + part + b"\r\n" for part in parts) + b"--b--\r\n"
    return _mail(number, f'Content-Type: multipart/{kind}; boundary="b"', body)


def _part(kind: str, data: bytes, *fields: str) -> bytes:
    head = "\r\n".join((f"Content-Type: {kind}", "Content-Transfer-Encoding: base64", *fields))
    return head.encode() + b"\r\n\r\n" + base64.encodebytes(data)


_TEXT: Final = b"Content-Type: text/plain\r\n\r\nreadable words"


def _charset(random_: random.Random, number: int) -> tuple[bytes, str | None]:
    charset, text = _CHARSETS[number % len(_CHARSETS)]
    data = text.encode(charset)
    encoding, body = random_.choice(
        (("base64", base64.encodebytes(data)), ("quoted-printable", quopri.encodestring(data)))
    )
    return _mail(
        number, f"Content-Type: text/plain; charset={charset}\r\nContent-Transfer-Encoding: {encoding}", body
    ), text


def _unknown_charset(random_: random.Random, number: int) -> tuple[bytes, str | None]:
    head = f"Content-Type: text/plain; charset={random_.choice(_NO_CHARSETS)}"
    return _mail(number, head, b"readable words " + random_.randbytes(20)), "readable words"


def _encoded_subject(_: random.Random, number: int) -> tuple[bytes, str | None]:
    charset, text = _CHARSETS[number % 11]
    subject = Header(text, charset).encode()
    return _mail(number, f"Subject: {subject}", b"x"), text


def _broken_subject(random_: random.Random, number: int) -> tuple[bytes, str | None]:
    broken = ("=?utf-8?b?####?=", "=?utf-8?q?=ZZ?=", "=?x?b?YQ==?=", "=?utf-8?b?" + "A" * 9_000, "=?" * 500)
    return _mail(number, f"Subject: {random_.choice(broken)}", b"readable words"), "readable words"


def _filename(random_: random.Random, number: int) -> tuple[bytes, str | None]:
    names = (
        "filename*=UTF-8''%E2%82%AC.pdf",
        "filename*0*=UTF-8''%E2; filename*1*=%82%AC.pdf",
        "filename*9=a; filename*0=b",
        'filename="=?utf-8?q?=C3=BC?=.pdf"',
        "filename*=x''%FF%FE",
        'filename="../../etc/passwd\\\\evil"',
    )
    disposition = f"Content-Disposition: attachment; {random_.choice(names)}"
    return _multipart(number, "mixed", _TEXT, _part("application/pdf", b"%PDF", disposition)), "readable words"


def _deep(random_: random.Random, number: int) -> tuple[bytes, str | None]:
    depth = random_.choice((2, 15, 16, 17, 100, 2_000))
    opened = b"".join(
        b'--b%d\r\nContent-Type: multipart/mixed; boundary="b%d"\r\n\r\n' % (at, at + 1) for at in range(depth)
    )
    body = opened + b"--b%d\r\n" % depth + _TEXT
    return _mail(number, 'Content-Type: multipart/mixed; boundary="b0"', body), "readable words" if depth < 15 else None


def _broken_mime(random_: random.Random, number: int) -> tuple[bytes, str | None]:
    whole = _multipart(number, "alternative", _TEXT, b"Content-Type: text/html\r\n\r\n<p>readable <b>words</b></p>")
    return whole[: random_.randrange(150, len(whole))], None


def _many_parts(random_: random.Random, number: int) -> tuple[bytes, str | None]:
    return _multipart(number, "mixed", _TEXT, *[b"\r\n"] * random_.choice((10, 199, 500))), "readable words"


def _tnef(random_: random.Random, number: int) -> tuple[bytes, str | None]:
    data = b"\x78\x9f\x3e\x22" + random_.randbytes(200)
    return _multipart(number, "mixed", _TEXT, _part("application/ms-tnef; name=winmail.dat", data)), "readable words"


def _calendar(_: random.Random, number: int) -> tuple[bytes, str | None]:
    invitation = b"BEGIN:VCALENDAR\r\nMETHOD:REQUEST\r\nBEGIN:VEVENT\r\nSUMMARY:x\r\nEND:VEVENT\r\nEND:VCALENDAR\r\n"
    return _multipart(
        number, "alternative", _TEXT, _part("text/calendar; method=REQUEST", invitation)
    ), "readable words"


def _notice(random_: random.Random, number: int) -> tuple[bytes, str | None]:
    action = random_.choice(("failed", "delayed", "relayed", ""))
    status = f"Content-Type: message/delivery-status\r\n\r\nReporting-MTA: dns; x\r\n\r\nAction: {action}".encode()
    original = b"Content-Type: message/rfc822\r\n\r\nMessage-ID: <ours@home.example>\r\n\r\nhello"
    return _multipart(number, "report; report-type=delivery-status", _TEXT, status, original), "readable words"


def _signed(random_: random.Random, number: int) -> tuple[bytes, str | None]:
    signature = _part("application/pkcs7-signature; name=smime.p7s", random_.randbytes(500))
    return _multipart(number, "signed; micalg=sha-256", _TEXT, signature), "readable words"


def _sealed(random_: random.Random, number: int) -> tuple[bytes, str | None]:
    kind = "Content-Type: application/pkcs7-mime; smime-type=enveloped-data"
    head = f"{kind}\r\nContent-Transfer-Encoding: base64\r\nSubject: sealed"
    return _mail(number, head, base64.encodebytes(random_.randbytes(500))), "sealed"


def _noise(random_: random.Random, number: int) -> tuple[bytes, str | None]:
    return (random_.randbytes(500) if number % 2 else _mail(number, "", random_.randbytes(500))), None


def _header_bomb(random_: random.Random, number: int) -> tuple[bytes, str | None]:
    bombs = (
        "To: " + "(" * 20_000,
        "References: " + "<" * 50_000,
        "Cc: " + "a@b, " * 10_000,
        "X: y\r\n" * 5_000 + "Z: 1",
    )
    return _mail(number, random_.choice(bombs), b"readable words"), "readable words"


def _hidden(_: random.Random, number: int) -> tuple[bytes, str | None]:
    html = b"Content-Type: text/html\r\n\r\n<style>p{}</style><p>readable words<script>x()</script>" + b"<div>" * 5_000
    return _multipart(number, "mixed", html), "readable words"


def _truncated_base64(random_: random.Random, number: int) -> tuple[bytes, str | None]:
    head = "Content-Type: text/plain\r\nContent-Transfer-Encoding: base64"
    data = base64.b64encode(b"readable words and more of them")[: -random_.randrange(1, 6)]
    return _mail(number, head, data + b"\x00!\xff"), "readable words"


FAMILIES: Final[dict[str, Family]] = {
    "charset": _charset,
    "unknown charset": _unknown_charset,
    "RFC 2047": _encoded_subject,
    "broken RFC 2047": _broken_subject,
    "RFC 2231": _filename,
    "depth": _deep,
    "broken MIME": _broken_mime,
    "many parts": _many_parts,
    "TNEF": _tnef,
    "calendar": _calendar,
    "DSN": _notice,
    "S/MIME signed": _signed,
    "S/MIME encrypted": _sealed,
    "noise": _noise,
    "bombs in header fields": _header_bomb,
    "HTML": _hidden,
    "truncated base64": _truncated_base64,
}


def large(size: int) -> bytes:
    """A mail with one attachment, of about so many bytes."""
    return _multipart(0, "mixed", _TEXT, _part("application/zip", bytes(size * 3 // 4)))
