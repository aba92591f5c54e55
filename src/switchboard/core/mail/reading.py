"""What has been decoded and rendered of one mail, so that two readings of it cost little more than one.

Made by `core/mail/parse.py` for each mail. In: parts and HTML; out: bytes and text. Next: `core/mail/texts.py` and
`core/mail/compared.py`, which read the same parts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from switchboard.core.mail.head import or_none
from switchboard.core.mail.mime import MailPart, content
from switchboard.core.mail.utf8 import ESCAPE, UTF8

if TYPE_CHECKING:
    from switchboard.core.mail.hypertext import HtmlText

_KEPT: Final = 8 * 1024 * 1024
"""Bytes and characters that are kept; beyond that, parts are decoded again when they are read again."""


class Reading:
    """Parts are known by their identity, so those of mails within the mail must be kept."""

    def __init__(self) -> None:
        self._room = _KEPT
        self._roots: list[MailPart] = []
        self._data: dict[int, bytes] = {}
        self._labels: dict[int, str] = {}
        self._utf8: dict[int, str | None] = {}
        self._html: dict[str, HtmlText] = {}

    def keep(self, root: MailPart) -> None:
        """Keep the parts of a mail within the mail."""
        self._roots.append(root)

    def data(self, part: MailPart) -> bytes:
        """The decoded bytes of a text part, at most a few megabytes of them."""
        if (known := self._data.get(id(part))) is not None:
            return known
        data = content(part)
        if self._has_room(len(data)):
            self._data[id(part)] = data
        return data

    def label(self, part: MailPart) -> str:
        """The character set that the part names; empty if it names none."""
        if (known := self._labels.get(id(part))) is not None:
            return known
        found = self._labels[id(part)] = or_none(lambda: part.head.get_content_charset("")) or ""
        return found

    def utf8(self, part: MailPart) -> str | None:
        """Its text without NUL, if it is valid UTF-8; None if it is not."""
        if id(part) in self._utf8:
            return self._utf8[id(part)]
        text = or_none(lambda: self.data(part).decode("utf-8").replace("\x00", ""))
        if self._has_room(len(text or "")):
            self._utf8[id(part)] = text
        return text

    def utf8_by(self, part: MailPart, label: str) -> str | None:
        """The same, if `label` says so or says nothing; None if it says something else."""
        text = self.utf8(part) if label.lower() in UTF8 else None
        return None if text is None or ESCAPE in self.data(part) or text.startswith("\ufeff") else text

    def html(self, source: str) -> HtmlText:
        """The visible text of HTML, and whose words it says that they are."""
        if (known := self._html.get(source)) is not None:
            return known
        from switchboard.core.mail.hypertext import read_html

        found = read_html(source)
        if self._has_room(len(source)):
            self._html[source] = found
        return found

    def _has_room(self, size: int) -> bool:
        self._room -= size
        return self._room >= 0
