"""What has been decoded and rendered of one mail, so that two readings of it cost little more than one.

Made by `core/mail/parse.py` for each mail. In: parts and HTML; out: bytes and text. Next: `core/mail/compared.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from switchboard.core.mail.charsets import ESCAPE, UTF8
from switchboard.core.mail.head import or_none
from switchboard.core.mail.mime import MailPart, content

if TYPE_CHECKING:
    from switchboard.core.mail.hypertext import HtmlText


class Reading:
    """Parts are known by their identity, so those of mails within the mail must be kept."""

    def __init__(self) -> None:
        self._kept: list[MailPart] = []
        self._data: dict[int, bytes] = {}
        self._utf8: dict[int, str | None] = {}
        self._labels: dict[int, str] = {}
        self._html: dict[str, HtmlText] = {}

    def data(self, part: MailPart) -> bytes:
        """The decoded bytes of a text part, at most a few megabytes of them."""
        if id(part) not in self._data:
            self._data[id(part)] = content(part)
        return self._data[id(part)]

    def label(self, part: MailPart) -> str:
        """The character set that the part names; empty if it names none."""
        if id(part) not in self._labels:
            self._labels[id(part)] = or_none(lambda: part.head.get_content_charset("")) or ""
        return self._labels[id(part)]

    def utf8(self, part: MailPart) -> str | None:
        """Its text without NUL, if it is valid UTF-8; None if it is not."""
        if id(part) not in self._utf8:
            text = or_none(lambda: self.data(part).decode("utf-8"))
            self._utf8[id(part)] = None if text is None else text.replace("\x00", "")
        return self._utf8[id(part)]

    def utf8_by(self, part: MailPart, label: str) -> str | None:
        """The same, if `label` says so or says nothing; None if it says something else."""
        text = self.utf8(part) if label.lower() in UTF8 else None
        return None if text is None or ESCAPE in self.data(part) or text.startswith("\ufeff") else text

    def keep(self, root: MailPart) -> None:
        """Keep the parts of a mail within the mail."""
        self._kept.append(root)

    def html(self, source: str) -> HtmlText:
        """The visible text of HTML, and whose words it says that they are."""
        if source not in self._html:
            from switchboard.core.mail.hypertext import read_html

            self._html[source] = read_html(source)
        return self._html[source]
