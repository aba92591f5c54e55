"""What mails are looked for: as keys of a search on a server, and as a comparison here. Pure.

`looking.py` asks both. A server that refuses characters beyond ASCII is asked for the ASCII part of it, and what it
finds is compared here. Next: `transport/mail_servers/criteria.py`.
"""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta
from typing import Final
from unicodedata import normalize
from zoneinfo import ZoneInfo

from msgspec import Struct

from switchboard.transport.mail_servers.criteria import SearchKey, SearchText, any_of, search_day

_WORD: Final = re.compile(r'"([^"]+)"|(\S+)')
_MOST_WORDS: Final = 20
_ASCII_START: Final = re.compile(r"[\x21-\x7e]{3,}")
_DAY: Final = timedelta(days=1)
_EARLIEST: Final = date(1970, 1, 2)
_ATTACHED: Final = re.compile(rb'\("attachment"|\("application" "(?!(?:x-)?pkcs7-|pgp-)', re.IGNORECASE)
"""In the structure of a mail: a part that is attached, or that is no text, picture or signature."""


class WantedMails(Struct, frozen=True):
    """All of it must apply. `words` are in the text or the header fields; days are those of the person, and included.

    `folder`: only this one; empty: where mails usually are.
    """

    words: tuple[str, ...] = ()
    sender: str = ""
    recipient: str = ""
    subject: str = ""
    first: date | None = None
    last: date | None = None
    folder: str = ""
    attached: bool = False

    @property
    def is_ascii(self) -> bool:
        """Whether any server can search for it."""
        return all(one.isascii() for one in (*self.words, self.sender, self.recipient, self.subject))


class MailTexts(Struct, frozen=True):
    """The texts of a mail that are compared. `whole` has all that can be read."""

    sender: str
    recipients: str
    subject: str
    whole: str = ""


def words_of(text: str) -> tuple[str, ...]:
    """The words, and what stands in quotes as one."""
    found = (quoted or word for quoted, word in _WORD.findall(normalize("NFC", text)))
    return tuple(one.strip() for one in found if one.strip())[:_MOST_WORDS]


def search_keys(wanted: WantedMails, *, ascii_only: bool = False) -> tuple[SearchKey, ...]:
    """The keys for a server. Its days are in its own zone, so there is one more on each side."""
    shorten = _ascii_part if ascii_only else str
    keys = list[SearchKey]()
    for name, text in [
        *(("TEXT", word) for word in wanted.words),
        ("FROM", wanted.sender),
        ("SUBJECT", wanted.subject),
    ]:
        if shortened := shorten(text):
            keys += [name, SearchText(shortened)]
    if to := shorten(wanted.recipient):
        keys += any_of([("TO", SearchText(to)), ("CC", SearchText(to))])
    if wanted.first is not None and wanted.first > _EARLIEST:
        keys.append(f"SINCE {search_day(wanted.first - _DAY)}")
    if wanted.last is not None and wanted.last.year < date.max.year:
        keys.append(f"BEFORE {search_day(wanted.last + 2 * _DAY)}")
    if wanted.attached:
        keys += ["NOT", "HEADER", "CONTENT-TYPE", SearchText("text/plain")]
    return tuple(keys) or ("ALL",)


def _ascii_part(text: str) -> str:
    """What text that has it certainly has as well: the beginning of the first word, since servers may compare words."""
    if text.isascii():
        return text
    found = _ASCII_START.match(text)
    return found[0] if found else ""


def is_in_days(wanted: WantedMails, sent: datetime, zone: ZoneInfo) -> bool:
    """Whether a mail was sent on one of the days, as the person counts them."""
    day = sent.astimezone(zone).date()
    return (wanted.first is None or wanted.first <= day) and (wanted.last is None or day <= wanted.last)


def may_have_attachment(structure: bytes) -> bool:
    """Whether a mail with this structure has a file."""
    return _ATTACHED.search(structure) is not None


def has_wanted_words(wanted: WantedMails, texts: MailTexts) -> bool:
    """Whether all words are there, whatever their case."""
    everything = "\n".join((texts.sender, texts.recipients, texts.subject, texts.whole))
    sought = [
        (wanted.sender, texts.sender),
        (wanted.recipient, texts.recipients),
        (wanted.subject, texts.subject),
        *((word, everything) for word in wanted.words),
    ]
    return all(_fold_case(word) in _fold_case(text) for word, text in sought)


def _fold_case(text: str) -> str:
    return normalize("NFC", text).casefold()
