"""The texts in a mail: which of its parts say something, and which of them are not its sender's words.

Called by `core/mail/parse.py`. In: the parts of a mail, which a stranger wrote; out: texts in reading order. Never
raises; linear time. `core/mail/charsets.py` decodes the parts, `core/mail/flowed.py` joins their lines,
`core/mail/signed.py` opens signed mails. Next: `core/mail/passages.py`, which finds others' words within a text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import islice
from typing import Final

from msgspec import Struct

from switchboard.core.mail.charsets import read_text
from switchboard.core.mail.envelope import below_subject, date_of, short
from switchboard.core.mail.flowed import join_flowed_lines, without_markup
from switchboard.core.mail.head import decode_field, field, guessed_charset, or_none
from switchboard.core.mail.marks import CUT_MARK
from switchboard.core.mail.mime import (
    DIGEST,
    MAX_PARTS,
    MAX_TEXT_BYTES,
    MailPart,
    content,
    decoded_body,
    is_attached,
    leaves,
    parts_of,
    read_inner,
)
from switchboard.core.mail.reading import Reading
from switchboard.core.mail.signed import may_be_signed_mail, signed_mail, wrapper_of
from switchboard.core.mail.utf8 import Decoded
from switchboard.domain.envelope import MAX_TEXT

MAX_MAILS: Final = 3
"""The number of attached mails whose text is read, and of attached texts."""
MAX_ATTACHED: Final = 65_536
"""Maximum characters of each of them."""
_DEPTH: Final = 2
_MAX_WRAPPERS: Final = 4
"""Signed mails within each other that are opened."""
_PLAIN: Final = "text/plain"
_HTML: Final = "text/html"
_MARKED_UP: Final = frozenset({"text/enriched", "text/richtext"})
_WRITTEN: Final = _MARKED_UP | {"text/markdown", "text/x-markdown"}
"""What a person writes a mail in, if the part has no name; any other text is somebody's file."""
_NOT_SHOWN: Final = frozenset({"text/x-amp-html", "text/rfc822-headers", "text/css", "text/javascript"})
_MAILS: Final = frozenset({"message/rfc822", "message/global"})
_NO_MAILS_IN: Final = frozenset({"multipart/report", DIGEST})
"""They contain mails by the dozen, which nobody attached."""
_PLACEHOLDER: Final = re.compile(r"html|\bmime\b|browser|viewer|mail (?:client|program|reader)", re.IGNORECASE)
_MAX_PLACEHOLDER: Final = 400
_INVISIBLE: Final = dict.fromkeys(map(ord, "\u00ad\u034f\u200b\u200c\u200d\u2060\ufeff"))
_META: Final = re.compile(rb"<meta[^>]{0,200}charset\s{0,5}=\s{0,5}[\"']?([\w:.-]{1,40})", re.IGNORECASE)
_META_WITHIN: Final = 1024
_BASE64: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/="
_WORD: Final = re.compile(r"\w+")


class MailText(Struct, frozen=True):
    """A text in a mail, without blanks around it.

    `html`: the source of the same words as HTML, if there is one, for its marks of what is quoted; `rendered`: the text
    was made from it. `forwarded`: it is somebody's file or mail, and not what the sender wrote; `author` and `sent_at`
    are what an attached mail says about itself. `guessed`: the character set, where no label explains it.
    """

    text: str
    html: str | None = None
    rendered: bool = False
    forwarded: bool = False
    author: str | None = None
    sent_at: datetime | None = None
    guessed: str | None = None


def texts_of(root: MailPart, reading: Reading) -> tuple[MailText, ...]:
    """The texts of a mail: what its sender wrote, then what is in files, then the mails attached to it.

    Files are read only where no attachment stands for their text, as for a page with its pictures. But a mail in
    which nobody wrote anything has the first files that can be read as its text.
    """
    budget = iter(range(max(0, MAX_PARTS - sum(1 for _ in parts_of(root)))))
    return tuple(_Texts(reading, budget).all(root))


def charset_guessed(root: MailPart, texts: Sequence[MailText]) -> str | None:
    """The first character set that was guessed for its texts or header fields."""
    return next((one.guessed for one in texts if one.guessed), None) or guessed_charset(root.head)


class _Texts:
    """Reads the texts of one mail. `budget`: one item for each part that may still be read in attached mails."""

    def __init__(self, reading: Reading, budget: Iterator[int]) -> None:
        self._reading = reading
        self._budget = budget
        self._mails = iter(range(MAX_MAILS))
        self._wrappers = iter(range(_MAX_WRAPPERS))
        self._is_in_file = False
        self._room = {False: MAX_TEXT, True: MAX_TEXT}

    def all(self, root: MailPart) -> Iterator[MailText]:
        yield from self._own(root)
        yield from self._mails_in(root, 0)

    def _own(self, root: MailPart) -> list[MailText]:
        """The texts of a mail without those of the mails attached to it; what is in files comes last."""
        found = [*self._read_signed_mail(root), *self._texts_of_part(root)]
        own = [text for text in found if not text.forwarded]
        return [*(own or self._files(root)), *(text for text in found if text.forwarded)]

    def _read_signed_mail(self, root: MailPart) -> list[MailText]:
        """The texts of the signed mail that a mail consists of."""
        part = wrapper_of(root)
        if part is None or next(self._wrappers, None) is None or (data := signed_mail(part)) is None:
            return []
        inner = self._inner(data)
        return self._own(inner) if inner else []

    def _inner(self, data: bytes) -> MailPart | None:
        """A mail within the mail; None if too many parts have been read."""
        if inner := read_inner(data, self._budget):
            self._reading.keep(inner)
        return inner

    def _texts_of_part(self, part: MailPart, said: bool = False) -> Iterator[MailText]:
        """What the sender wrote in a part, and what is forwarded in it; `said`: another text is above it."""
        if part.is_file or (said and _is_described(part)):
            yield from self._in_file(part)
        elif part.media_type == "multipart/alternative" and part.children:
            yield from self._alternative(part.children, said)
        elif part.children:
            yield from self._in_parts(part.children, said)
        elif _is_readable(part):
            yield from self._leaf(part)

    def _in_parts(self, children: Sequence[MailPart], said: bool) -> Iterator[MailText]:
        for child in children:
            yield from self._texts_of_part(child, said)
            said = said or any(_is_readable(one) and not one.is_file for one in leaves(child))  # it may be blank

    def _in_file(self, part: MailPart) -> list[MailText]:
        """The texts in a file that is not among the attachments: nothing else shows them."""
        if part.is_attachment:
            return []
        before, self._is_in_file = self._is_in_file, True
        found = list(self._in_digest(part) if part.media_type == DIGEST else self._as_written(part))
        self._is_in_file = before
        return [text if text.forwarded else _forwarded_text(text.text, guessed=text.guessed) for text in found]

    def _as_written(self, part: MailPart) -> Iterator[MailText]:
        """What somebody wrote in a file."""
        if not part.children:
            return iter(self._leaf(part))
        is_one = part.media_type == "multipart/alternative"
        return self._alternative(part.children, False) if is_one else self._in_parts(part.children, False)

    def _leaf(self, part: MailPart) -> list[MailText]:
        if self._room[self._is_in_file] < 0:  # what is beyond would be cut
            return []
        text = self._read(part)
        self._room[self._is_in_file] -= min(len(text.text), MAX_ATTACHED if self._is_in_file else MAX_TEXT + 1)
        return _some(text)

    def _in_digest(self, part: MailPart) -> Iterator[MailText]:
        """The mails in a digest, which are mails unless a type says something else (RFC 2046, 5.1.5)."""
        if not part.children:
            yield from self._leaf(part)
        for child in part.children:
            yield from (self._mail_in(child) if _is_untyped(child) else ()) or self._texts_of_part(child)

    def _mail_in(self, part: MailPart) -> list[MailText]:
        """The mail that a part contains; none if it does not begin like one, or too many have been read."""
        if next(self._mails, None) is None:
            return []
        inner = part if field(part.head, "from") else self._inner(content(part))
        return _some(self._mail(inner)) if inner and field(inner.head, "from") else []

    def _alternative(self, children: Sequence[MailPart], said: bool) -> Iterator[MailText]:
        """The plain text with the HTML of the same words, unless it only stands in for the HTML."""
        plain = [text for one in children if one.kind == _PLAIN for text in self._texts_of_part(one, said)][:1]
        others = [one for one in children if one.kind != _PLAIN]
        if plain and not _PLACEHOLDER.search(plain[0].text[:_MAX_PLACEHOLDER]):
            yield _with_html(plain[0], [source for one in others for source in self._sources(one)])
            return
        found = next(filter(None, (list(self._texts_of_part(one, said)) for one in others)), [])
        if plain and not _stands_in(plain[0].text, found):
            yield _with_html(plain[0], [text.html for text in found if text.html])
        else:
            yield from found

    def _sources(self, part: MailPart) -> Iterator[str]:
        """The HTML in a part, which is not rendered."""
        html = (one for one in leaves(part) if not one.is_attachment and one.kind == _HTML)
        return (self._decode_text(one).text for one in html)

    def _files(self, root: MailPart) -> Iterator[MailText]:
        """The texts that the sender wrote in another format, or else the first files that can be read."""
        written = [text for one in _find_attachments(root) if _is_written(one) for text in _some(self._read(one))]
        if written:
            yield from written
            return
        attached = (one for one in leaves(root) if one.is_attachment and _is_text(one))
        files = (text for one in attached for text in _some(self._read(one)))
        for text in islice(files, MAX_MAILS):
            yield _forwarded_text(text.text, guessed=text.guessed)

    def _mails_in(self, root: MailPart, depth: int) -> Iterator[MailText]:
        for part in _attached_mails(root, wrapper_of(root)) if depth < _DEPTH else ():
            if next(self._mails, None) is not None and (inner := self._attached_mail(part)):
                yield from _some(self._mail(inner))
                yield from self._mails_in(inner, depth + 1)

    def _attached_mail(self, part: MailPart) -> MailPart | None:
        data = content(part) if part.media_type in _MAILS else signed_mail(part)
        return None if data is None else self._inner(data)

    def _mail(self, root: MailPart) -> MailText:
        """An attached mail, subject first; its text may be empty."""
        texts = self._own(root)
        words = "\n\n".join(one.text for one in texts)
        text = below_subject({"subject": field(root.head, "subject")}, words)
        sender = short(decode_field(field(root.head, "from")))
        return _forwarded_text(
            _without_blanks(text), sender or None, date_of(field(root.head, "date")), charset_guessed(root, texts)
        )

    def _read(self, part: MailPart) -> MailText:
        """The text of a leaf, which may be empty."""
        found, kind = self._decode_text(part), part.kind
        if kind == _HTML:
            lines = self._reading.html(found.text).text
            return MailText(_without_blanks(lines), found.text, rendered=True, guessed=found.guessed)
        text = found.text.replace("\r\n", "\n")
        if kind == _PLAIN and _parameter(part, "format") == "flowed":
            text = join_flowed_lines(text, deletes_space=_parameter(part, "delsp") == "yes")
        if kind in _MARKED_UP:
            text = without_markup(text)
        return MailText(_without_blanks(text), guessed=found.guessed)

    def _decode_text(self, part: MailPart) -> Decoded:
        body, footer = _without_footer(part)
        label = self._reading.label(part)
        if not footer and (text := self._reading.utf8_by(part, label)) is not None:
            return Decoded(text)
        data = decoded_body(part, body) if footer else self._reading.data(part)
        if not label and part.kind == _HTML and (told := _META.search(data[:_META_WITHIN])):
            label = told[1].decode("ascii", "replace")
        found = read_text(data, label)
        return Decoded(f"{found.text}\n{read_text(footer).text}", found.guessed) if footer else found


def _some(text: MailText) -> list[MailText]:
    return [text] if text.text else []


def _with_html(text: MailText, sources: Sequence[str]) -> MailText:
    return text if text.forwarded else MailText(text.text, "\n".join(sources) or None, guessed=text.guessed)


def _forwarded_text(
    text: str, author: str | None = None, sent_at: datetime | None = None, guessed: str | None = None
) -> MailText:
    cut = text if len(text) <= MAX_ATTACHED else text[: MAX_ATTACHED - len(CUT_MARK)] + CUT_MARK
    return MailText(cut, forwarded=True, author=author, sent_at=sent_at, guessed=guessed)


def _without_blanks(text: str) -> str:
    """Empty if there is nothing to see in it."""
    text = text.strip()
    return text if text.translate(_INVISIBLE).strip() else ""


def _stands_in(plain: str, shown: Sequence[MailText]) -> bool:
    """Whether a text only says that there is HTML: it is short, and the HTML says something else."""
    said = _WORD.findall(plain.lower())
    there = {word for text in shown for word in _WORD.findall(text.text.lower())}
    return len(plain) <= _MAX_PLACEHOLDER and bool(there) and sum(word in there for word in said) * 2 < len(said)


def _is_readable(part: MailPart) -> bool:
    """A multipart whose parts cannot be found is plain text."""
    kind = part.kind
    return kind in {_PLAIN, _HTML} or kind.startswith("multipart/")


def _is_text(part: MailPart) -> bool:
    kind = part.kind
    return kind.startswith("text/") and kind not in _NOT_SHOWN


def _is_written(part: MailPart) -> bool:
    return part.kind in _WRITTEN and not is_attached(part.head) and not part.filename


def _is_described(part: MailPart) -> bool:
    """Whether it has what files have, and texts between pictures do not."""
    return "content-description" in part.head or "content-location" in part.head


def _is_untyped(part: MailPart) -> bool:
    """Whether its media type is only a default."""
    return not part.is_file and part.media_type == _PLAIN not in str(part.head.get("content-type", "")).lower()


def _find_attachments(part: MailPart) -> Iterator[MailPart]:
    """The attachments of a mail that are in no other file."""
    if part.is_attachment:
        yield part
    for child in () if part.is_file else part.children:
        yield from _find_attachments(child)


def _attached_mails(part: MailPart, wrapper: MailPart | None) -> Iterator[MailPart]:
    """The mails attached to a mail, also signed ones, but not the one that the mail consists of."""
    if part.media_type in _NO_MAILS_IN or part is wrapper:
        return
    if not part.children and (part.media_type in _MAILS or may_be_signed_mail(part)):
        yield part
    for child in part.children:
        yield from _attached_mails(child, wrapper)


def _parameter(part: MailPart, name: str) -> str:
    if name not in str(part.head.get("content-type", "")).lower():
        return ""
    found = or_none(lambda: part.head.get_param(name, ""))
    return found.strip().lower() if isinstance(found, str) else ""


def _without_footer(part: MailPart) -> tuple[bytes, bytes]:
    """The body, and the lines of plain text that a mailing list appended to it without decoding it."""
    body = part.body[:MAX_TEXT_BYTES]
    if field(part.head, "content-transfer-encoding").lower() != "base64" or not body.translate(None, _BASE64 + b"\r\n"):
        return body, b""
    at, ended = 0, False
    for line in body.splitlines(keepends=True):
        words = line.strip()
        foreign = len(words.translate(None, _BASE64))
        if at and foreign and (ended or foreign > 1 or b" " in words):
            return body[:at], body[at:]
        ended = words.endswith(b"=") or (ended and not words)
        at += len(line)
    return body, b""
