"""What has been decoded and rendered of one mail, so that two readings of it cost little more than one.

Made by `core/mail/parse.py` for each mail. In: parts and HTML; out: bytes and text. Next: `core/mail/compared.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from switchboard.core.mail.head import or_none
from switchboard.core.mail.mime import MailPart, content

if TYPE_CHECKING:
    from switchboard.core.mail.hypertext import HtmlText


class Reading:
    """The parts of one mail, which must be kept as long as this is."""

    def __init__(self) -> None:
        self._data: dict[int, bytes] = {}
        self._utf8: dict[int, str | None] = {}
        self._html: dict[str, HtmlText] = {}

    def data(self, part: MailPart) -> bytes:
        """The decoded bytes of a text part, at most a few megabytes of them."""
        if id(part) not in self._data:
            self._data[id(part)] = content(part)
        return self._data[id(part)]

    def utf8(self, part: MailPart) -> str | None:
        """Its text without NUL, if it is valid UTF-8; None if it is not."""
        if id(part) not in self._utf8:
            text = or_none(lambda: self.data(part).decode("utf-8"))
            self._utf8[id(part)] = None if text is None else text.replace("\x00", "")
        return self._utf8[id(part)]

    def html(self, source: str) -> HtmlText:
        """The visible text of HTML, and whose words it says that they are."""
        if source not in self._html:
            from switchboard.core.mail.hypertext import read_html

            self._html[source] = read_html(source)
        return self._html[source]
