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
from switchboard.core.mail.flowed import unflowed, without_markup
from switchboard.core.mail.head import decoded, field, guessed_charset, or_none
from switchboard.core.mail.marks import CUT_MARK
from switchboard.core.mail.mime import (
    MAX_PARTS,
    MAX_TEXT_BYTES,
    MailPart,
    content,
    decoded_body,
    leaves,
    parts_of,
    read_inner,
)
from switchboard.core.mail.reading import Reading
from switchboard.core.mail.signed import signed_content
from switchboard.core.mail.utf8 import Decoded
from switchboard.domain.envelope import MAX_TEXT

MAX_MAILS: Final = 3
"""The number of attached mails whose text is read, and of attached texts."""
MAX_ATTACHED: Final = 65_536
"""Maximum characters of each of them."""
_DEPTH: Final = 2
_PLAIN: Final = "text/plain"
_HTML: Final = "text/html"
_MARKED_UP: Final = frozenset({"text/enriched", "text/richtext"})
_WRITTEN: Final = _MARKED_UP | {"text/markdown", "text/x-markdown"}
"""What a person writes a mail in, if the part has no name; any other text is somebody's file."""
_NOT_SHOWN: Final = frozenset({"text/x-amp-html", "text/rfc822-headers", "text/css", "text/javascript"})
_MAILS: Final = frozenset({"message/rfc822", "message/global"})
_NO_MAILS_IN: Final = frozenset({"multipart/report", "multipart/digest"})
"""They contain mails by the dozen, which nobody attached."""
_SIGNED: Final = frozenset({"application/pkcs7-mime", "application/x-pkcs7-mime"})
_WRAPPERS: Final = frozenset({"", "smime.p7m", "smime.p7s"})
_ENTITY: Final = re.compile(rb"\s{0,20}(?:content-[a-z-]{1,30}|mime-version)[ \t]*:", re.IGNORECASE)
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
    """The texts of a mail: what its sender wrote, then the mails attached to it.

    A mail in which nobody wrote anything has the files in it that can be read as its text.
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
        self._room = MAX_TEXT

    def all(self, root: MailPart) -> Iterator[MailText]:
        yield from self._own(root)
        yield from self._mails_in(root, 0)

    def _own(self, root: MailPart) -> list[MailText]:
        """The texts of a mail without those of the mails attached to it."""
        return list(self._written(root)) or list(self._files(root))

    def _written(self, part: MailPart) -> Iterator[MailText]:
        """What the sender wrote in a part."""
        if part.children:
            if part.media_type == "multipart/alternative":
                yield from self._alternative(part.children)
            else:
                for child in part.children:
                    yield from self._written(child)
        elif _is_wrapper(part):
            yield from self._signed(part)
        elif self._room >= 0 and not part.is_attachment and _is_readable(part):  # what is beyond would be cut
            text = self._read(part)
            self._room -= len(text.text)
            yield from _some(text)

    def _alternative(self, children: Sequence[MailPart]) -> Iterator[MailText]:
        """The plain text with the HTML of the same words, unless it only stands in for the HTML."""
        plain = [text for one in children if one.kind == _PLAIN for text in self._written(one)][:1]
        others = [one for one in children if one.kind != _PLAIN]
        if plain and not _PLACEHOLDER.search(plain[0].text[:_MAX_PLACEHOLDER]):
            yield _with_html(plain[0], [source for one in others for source in self._sources(one)])
            return
        found = next(filter(None, (list(self._written(one)) for one in others)), [])
        if plain and not _stands_in(plain[0].text, found):
            yield _with_html(plain[0], [text.html for text in found if text.html])
        else:
            yield from found

    def _sources(self, part: MailPart) -> Iterator[str]:
        """The HTML in a part, which is not rendered."""
        html = (one for one in leaves(part) if not one.is_attachment and one.kind == _HTML)
        return (self._decoded(one).text for one in html)

    def _signed(self, part: MailPart) -> Iterator[MailText]:
        inner = signed_content(content(part))
        if inner is not None and _ENTITY.match(inner) and (root := read_inner(inner, self._budget)):
            self._reading.keep(root)
            yield from self._written(root)

    def _files(self, root: MailPart) -> Iterator[MailText]:
        """The texts that the sender wrote in another format, or else the first files that can be read."""
        attached = [one for one in leaves(root) if one.is_attachment and _is_text(one)]
        written = [text for one in attached if _is_written(one) for text in _some(self._read(one))]
        if written:
            yield from written
            return
        files = (text for one in attached for text in _some(self._read(one)))
        for text in islice(files, MAX_MAILS):
            yield _forwarded(text.text, guessed=text.guessed)

    def _mails_in(self, root: MailPart, depth: int) -> Iterator[MailText]:
        for part in _attached_mails(root) if depth < _DEPTH else ():
            if next(self._mails, None) is not None and (inner := read_inner(content(part), self._budget)):
                self._reading.keep(inner)
                yield self._mail(inner)
                yield from self._mails_in(inner, depth + 1)

    def _mail(self, root: MailPart) -> MailText:
        """An attached mail, subject first."""
        texts = self._own(root)
        words = "\n\n".join(one.text for one in texts)
        text = below_subject({"subject": field(root.head, "subject")}, words)
        sender = short(decoded(field(root.head, "from")))
        return _forwarded(text, sender or None, date_of(field(root.head, "date")), charset_guessed(root, texts))

    def _read(self, part: MailPart) -> MailText:
        """The text of a leaf, which may be empty."""
        found, kind = self._decoded(part), part.kind
        if kind == _HTML:
            lines = self._reading.html(found.text).text
            return MailText(_without_blanks(lines), found.text, rendered=True, guessed=found.guessed)
        text = found.text.replace("\r\n", "\n")
        if kind == _PLAIN and _parameter(part, "format") == "flowed":
            text = unflowed(text, deletes_space=_parameter(part, "delsp") == "yes")
        if kind in _MARKED_UP:
            text = without_markup(text)
        return MailText(_without_blanks(text), guessed=found.guessed)

    def _decoded(self, part: MailPart) -> Decoded:
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
    return MailText(text.text, "\n".join(sources) or None, guessed=text.guessed)


def _forwarded(
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
    disposition = or_none(part.head.get_content_disposition)
    return part.kind in _WRITTEN and disposition != "attachment" and not part.filename


def _is_wrapper(part: MailPart) -> bool:
    return part.kind in _SIGNED and part.filename.lower() in _WRAPPERS


def _attached_mails(part: MailPart) -> Iterator[MailPart]:
    if part.media_type in _NO_MAILS_IN:
        return
    if not part.children and part.media_type in _MAILS:
        yield part
    for child in part.children:
        yield from _attached_mails(child)


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
