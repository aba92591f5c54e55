"""The text by which a mail is recognised when it comes again: frozen, so that better reading makes no new messages.

Called by `core/mail/parse.py` with a mail, by `core/channels/email.py` with an envelope.
In: a mail; out: its text as the first release read it, in which nothing may ever change: mails that were stored then
would be answered again. So this keeps its own copies of what chose the parts, decoded them, and cut the history of a
reply. Nothing else reads a mail in this way. Linear time, because a stranger wrote the mail. See
docs/decisions/0124-what-is-compared-of-a-mail-is-frozen.md. Next: `core/envelope/identity.py`.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Mapping, Sequence
from email.header import decode_header
from email.message import Message
from typing import Final

from msgspec.structs import replace

from switchboard.core.mail.head import or_none
from switchboard.core.mail.marks import CUT_MARK
from switchboard.core.mail.mime import MailPart, leaves
from switchboard.core.mail.reading import Reading
from switchboard.domain.envelope import MAX_TEXT, Payload

COMPARED: Final = "compared"
"""The key in `payload.raw` of the text that is compared, where it is not `payload.normalized_text`."""

_NO_WORD = re.compile(r"[\W_]+")
_EMPTY: Final = "(an empty mail)"
# These are not character sets: slow, or a way to smuggle in characters.
_NOT_CHARSETS: Final = frozenset({"idna", "punycode", "unicode-escape", "raw-unicode-escape", "undefined"})
_FOLD = re.compile(r"[\r\n]+[ \t]*")
_ENCODED_OR_BACKSLASH = re.compile(r"(=\?[^?]*\?[bq]\?.*?\?=)|\\", re.IGNORECASE)
_BACKSLASH = re.compile(r"\\|&#0*+92(?![0-9]);?|&#x0*+5c(?![0-9a-f]);?|&bsol;", re.IGNORECASE)
_OF_OFFICE: Final = re.compile(r"\b[a-z]\\:\*")
"""Selectors in most mails of Outlook (`v\\:*`), which have never been read."""
_STAND_IN: Final = "\ue05c"
_ATTRIBUTIONS: Final = (
    ("on ", "wrote:"),
    ("am ", "schrieb"),
    ("le ", "a écrit"),
    ("el ", "escribió:"),
    ("il ", "ha scritto:"),
    ("op ", "schreef"),
    ("em ", "escreveu:"),
    ("den ", "skrev"),
    ("w dniu ", "napisał"),
)
"""How the line above a quotation begins, and what it has near its end: in English, German, French and so on."""
_MAX_ATTRIBUTION: Final = 400
_ATTRIBUTION_LINES: Final = 3
_FIELDS: Final = (
    re.compile(r"\*?(from|von|de|da|van|från|fra)\s?:", re.IGNORECASE),
    re.compile(r"\*?(sent|date|gesendet|datum|envoyé|enviado|inviato|verzonden|skickat|sendt)\s?:", re.IGNORECASE),
    re.compile(r"\*?(subject|betreff|objet|asunto|oggetto|onderwerp|ämne|emne|assunto)\s?:", re.IGNORECASE),
)
"""The fields that Outlook writes above the original, in this order; there may be others between them."""
_HEAD_LINES: Final = 8
_ORIGINAL = re.compile(
    r"-{2,}\s?(original message|ursprüngliche nachricht|message d'origine|mensaje original|messaggio originale"
    r"|oorspronkelijk bericht)\s?-{2,}",
    re.IGNORECASE,
)
_RULE = re.compile(r"_{8,}")
_FORWARDED = re.compile(r"\s*(fwd?|wg|tr|rv|enc|i|vs|doorst)\s*:", re.IGNORECASE)


def compared_text(root: MailPart, reading: Reading) -> str:
    """The text of a mail, subject first, as the first release read it."""
    subject = _subject(root.head)
    text = _below(subject, _without_history(_text_of(root, reading), subject))
    if len(text) > MAX_TEXT:
        text = text[: MAX_TEXT - len(CUT_MARK)] + CUT_MARK
    attached = any(_is_attachment(part) for part in leaves(root))
    return text or ("" if attached else _EMPTY)


def compared_head(head: Message, body: str) -> str:
    """The same for a mail of which only the header fields are read; `body` stands for the rest."""
    return _below(_subject(head), body)


def compared_words(payload: Payload, subject: str) -> str:
    """The letters and digits that are compared, the subject first; `subject` is the header field as it was sent.

    Only the words are the same in all forms in which connectors submit a mail; some omit the subject.
    """
    if (text := _given_text(payload)) is not None:
        return _words(text)
    words, headline = _words(payload.normalized_text), _words(_decode_header(subject))
    return words if words.startswith(headline) else headline + words


def with_compared(payload: Payload, subject: str, text: str) -> Payload:
    """The payload with `text` as what is compared, unless its own text has the same words."""
    if payload.normalized_text == text and subject.isascii():  # its subject is at its beginning, and read as ever
        return payload
    if not isinstance(payload.raw, Mapping) or compared_words(payload, subject) == _words(text):
        return payload
    return replace(payload, raw={**payload.raw, COMPARED: text})


def text_for_marks(payload: Payload) -> str:
    """The text by which a waiting message is told from others of its id."""
    given = _given_text(payload)
    return payload.normalized_text if given is None else given


def _given_text(payload: Payload) -> str | None:
    given = payload.raw.get(COMPARED) if isinstance(payload.raw, Mapping) else None
    return given if isinstance(given, str) else None


def _words(text: str) -> str:
    return _NO_WORD.sub("", text.lower())


def _below(subject: str, text: str) -> str:
    return "\n\n".join(piece for piece in (subject.strip(), text) if piece)


def _subject(head: Message) -> str:
    found = next((value for key, value in head.raw_items() if key.lower() == "subject"), "")
    data = str(found).encode("utf-8", "surrogateescape")
    return _decode_header(_FOLD.sub(" ", _as_text(data)).strip())


def _text_of(part: MailPart, reading: Reading) -> str:
    """Plain text if there is any, otherwise HTML as text; without attachments."""
    if _is_attachment(part):
        return ""
    texts = [text for child in _parts_by_preference(part) if (text := _text_of(child, reading).strip())]
    if part.children:
        return texts[0] if part.media_type == "multipart/alternative" and texts else "\n\n".join(texts)
    text = _decoded_part(part, reading)
    return _lines_of_html(text, reading) if part.media_type == "text/html" else text.replace("\r\n", "\n")


def _is_attachment(part: MailPart) -> bool:
    if part.children or part.media_type.startswith("multipart/"):
        return False
    if part.media_type not in {"text/plain", "text/html"}:
        return True
    return or_none(part.head.get_content_disposition) == "attachment" or _is_named(part.head)


def _is_named(head: Message) -> bool:
    if "content-disposition" not in head and "name" not in str(head.get("content-type", "")).lower():
        return False
    return bool(_decode_header(or_none(lambda: head.get_filename("")) or ""))


def _parts_by_preference(part: MailPart) -> list[MailPart]:
    if part.media_type != "multipart/alternative":
        return list(part.children)
    return sorted(part.children, key=lambda child: child.media_type != "text/plain")


def _decoded_part(part: MailPart, reading: Reading) -> str:
    codec = _codec(reading.label(part))
    text = reading.utf8(part) if codec == "utf-8" else None
    return _as_text(reading.data(part), codec) if text is None else text


def _lines_of_html(source: str, reading: Reading) -> str:
    """CSS escapes were not read: a backslash was a character like any other, which the stand-in still is."""
    if not _BACKSLASH.search(_OF_OFFICE.sub("", source) if "\\" in source else source):
        return reading.html(source).text
    return reading.html(_BACKSLASH.sub(_STAND_IN, source)).text.replace(_STAND_IN, "\\")


def _as_text(data: bytes, charset: str = "") -> str:
    codec = _codec(charset)
    text = or_none(lambda: data.decode(codec, "strict" if codec == "utf-8" else "replace"))
    if text is None:
        text = data.decode("cp1252", "replace")
    return text.encode("utf-8", "replace").decode("utf-8").replace("\x00", "")


def _codec(charset: str) -> str:
    codec = or_none(lambda: codecs.lookup(charset))
    name = codec.name if codec else "utf-8"
    return "utf-8" if name == "ascii" or name.replace("_", "-") in _NOT_CHARSETS else name


def _decode_header(value: str) -> str:
    if "=?" not in value:
        return _storable(value)
    escaped = _ENCODED_OR_BACKSLASH.sub(lambda found: found[1] or r"\u005c", value)
    chunks = or_none(lambda: decode_header(escaped)) or [(value, None)]
    if isinstance(chunks[0][0], str):  # nothing in it is encoded
        return _storable(value)
    return "".join(_chunk(data, charset) for data, charset in chunks)


def _chunk(data: bytes, charset: str | None) -> str:
    return _as_text(data, charset) if charset else _storable(data.decode("raw-unicode-escape", "replace"))


def _storable(text: str) -> str:
    raw = or_none(lambda: text.encode("utf-8", "surrogateescape"))
    return _as_text(text.encode("utf-8", "replace") if raw is None else raw)


def _without_history(text: str, subject: str) -> str:
    """The text without the history at its end; nothing is cut from a forwarded mail, and no mail is left empty."""
    if _FORWARDED.match(subject):
        return text.strip()
    lines = text.split("\n")
    return "\n".join(lines[: _begin(lines)]).strip() or text.strip()


def _begin(lines: Sequence[str]) -> int:
    """The index of the first line of the history."""
    quoted = _quoted_from(lines)
    last = max((at for at, line in enumerate(lines) if line.startswith(">")), default=-1)
    for at in range(len(lines)):
        if _is_original(lines, at):
            return at - 1 if at and _RULE.fullmatch(lines[at - 1].strip()) else at
        if length := _attribution(lines, at):
            below = next((one for one in range(at + length, len(lines)) if lines[one].strip()), len(lines))
            # Everything below is quoted, or nothing below is marked as quoted, as in text from HTML.
            if below >= quoted or below > last:
                return at
    return quoted


def _quoted_from(lines: Sequence[str]) -> int:
    """The index where the quoted and blank lines at the end begin."""
    at = len(lines)
    while at and (not lines[at - 1].strip() or lines[at - 1].startswith(">")):
        at -= 1
    return at


def _is_original(lines: Sequence[str], at: int) -> bool:
    line = lines[at].strip()
    if _ORIGINAL.fullmatch(line):
        return True
    if not _FIELDS[0].match(line):
        return False
    below = iter([one.strip() for one in lines[at + 1 : at + _HEAD_LINES]])
    return all(any(field.match(one) for one in below) for field in _FIELDS[1:])


def _attribution(lines: Sequence[str], at: int) -> int:
    """How many lines from `at` on say who wrote the quotation below them; 0: none."""
    begins = lines[at][:_MAX_ATTRIBUTION].strip().lower()
    ends = [end for start, end in _ATTRIBUTIONS if begins.startswith(start)]
    if not ends:
        return 0
    for length in range(1, _ATTRIBUTION_LINES + 1):
        said = " ".join(lines[at : at + length])[:_MAX_ATTRIBUTION].strip().lower()
        if said.endswith(":") and any(end in said for end in ends) and any(map(str.isdigit, said)):
            return length
    return 0
