"""The parts of which a mail that we write is made: fields of its header, texts, files. Pure.

`reply.py` and `written.py` compose mails of them. In: what models and strangers wrote; out: lines of ASCII of at most
998 octets, in which neither can begin a line of their own. They are made here, because the standard library puts long
message ids into encoded words. Next: `reply.py`.
"""

from __future__ import annotations

import re
from base64 import encodebytes
from binascii import b2a_qp
from collections.abc import Sequence
from email.header import Header
from typing import Final
from unicodedata import category
from urllib.parse import quote

from msgspec import Struct

MailLines = Sequence[str | bytes]
"""Lines of a mail; `bytes` are many at once."""

MAX_SUBJECT: Final = 200
MAX_NAME: Final = 60
PLAIN_FIELD: Final = re.compile(r"[A-Za-z0-9 .,:;!?'()*+/_-]*")
PLAIN_NAME: Final = re.compile(r"[A-Za-z0-9 '_-]*")
_MAX_ID: Final = 250
_MAX_FILENAME: Final = 70  # still fits into a line when percent-encoded
_LOCAL: Final = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(?:\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*"
_DOMAIN: Final = r"[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?"
_ADDRESS = re.compile(rf"{_LOCAL}@{_DOMAIN}")
_ID = re.compile(r"<[!-;=?-~]+>")
# A multipart or a mail must not be encoded as base64: it would be misread or refused.
_MEDIA_TYPE = re.compile(r"(?!multipart/|message/)[a-z0-9][a-z0-9.+-]{0,62}/[a-z0-9][a-z0-9.+-]{0,62}")
_UNSEEN: Final = frozenset({"Cc", "Cs", "Zl", "Zp"})


class File(Struct, frozen=True):
    """A whole file that goes with a mail."""

    filename: str
    media_type: str
    data: bytes


def ascii_address(mail_address: str) -> str | None:
    """The address in the form that SMTP accepts without extensions; None if there is none."""
    local, at, domain = mail_address.rpartition("@")
    try:
        plain = local + at + domain.encode("idna").decode("ascii")
    except UnicodeError:
        return None
    return plain if len(plain) <= 320 and _ADDRESS.fullmatch(plain) else None


def message_ids_in(value: str) -> list[str]:
    """The Message-IDs in brackets that a field has; those that are too long to be passed on are left out."""
    return [one for one in _ID.findall(value) if len(one) <= _MAX_ID]


def visible_line(text: str, most: int, end: str = "…") -> str:
    """The text on one line, without invisible characters."""
    seen = "".join(" " if category(one) in _UNSEEN else one for one in text[: 4 * most])
    plain = " ".join(seen.split())
    return plain if len(plain) <= most else plain[: most - len(end)] + end


def encode_field(text: str, plain: re.Pattern[str]) -> str:
    """The text for a header field: as encoded words (RFC 2047) unless it is plain."""
    if plain.fullmatch(text):
        return text
    return Header(text, "utf-8", maxlinelen=75, header_name="Subject").encode(linesep="\r\n")


def join_lines(lines: MailLines) -> bytes:
    """The mail, with CRLF."""
    return b"\r\n".join(line if isinstance(line, bytes) else line.encode("ascii") for line in lines)


# Parts, each with its own head ----------------------------------------------------------------------------------------


def with_files(body: MailLines, files: Sequence[File], boundary: str) -> MailLines:
    """The body with files below it, if there are any. `boundary`: letters and digits that no other part has."""
    if not files:
        return body
    return multipart_of("mixed", f"=_m{boundary}", (body, *map(_attached_part, files)))


def multipart_of(kind: str, boundary: str, parts: Sequence[MailLines]) -> MailLines:
    """Neither quoted-printable nor base64 ever contains `=_`, so a boundary that begins so occurs in no part."""
    lines: list[str | bytes] = [f'Content-Type: multipart/{kind}; boundary="{boundary}"', ""]
    for part in parts:
        lines += [f"--{boundary}", *part]
    return [*lines, f"--{boundary}--", ""]


def text_part(kind: str, text: str, parameters: str = "") -> MailLines:
    """A text of the type `text/…`, with further parameters such as `; method=REQUEST`."""
    data = text.replace("\r\n", "\n").replace("\r", "\n").encode("utf-8", "replace")
    head = [f"Content-Type: text/{kind}; charset=utf-8{parameters}", "Content-Transfer-Encoding: quoted-printable", ""]
    return [*head, *b2a_qp(data).decode("ascii").split("\n")]


def _attached_part(file: File) -> MailLines:
    kind = file.media_type.lower()
    name = visible_line(re.split(r"[/\\]", file.filename)[-1], _MAX_FILENAME, end="") or "file"
    return [
        f"Content-Type: {kind if _MEDIA_TYPE.fullmatch(kind) else 'application/octet-stream'}",
        "Content-Disposition: attachment;",
        f" filename*=UTF-8''{quote(name, safe='')}",
        "Content-Transfer-Encoding: base64",
        "",
        encodebytes(file.data).replace(b"\n", b"\r\n"),  # as one piece: 18 MB would be a third of a million lines
    ]
