"""How mail programs mark the words of others in HTML.

Called by `core/mail/passages.py`, which reads no HTML that marks nothing, and by `core/mail/hypertext.py`. It is apart
from the latter because most mails need no HTML at all. Next: `hypertext.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, Literal, cast

Citing = Literal["", "quotes", "container", "attribution", "rest"]
"""What an element says of what is in it: it quotes, it holds a quotation and what was written into it, it names the
author; or, that all to the end of the mail is by others."""

_CITES = re.compile(
    r"(?P<rest>divrplyfwdmsg|appendonsend|outlookmessageheader)|(?P<attribution>gmail_attr|moz-cite-prefix)"
    r"|(?P<container>gmail_quote|yahoo_quoted|protonmail_quote|zmail_extra|isreplycontent|isforwardcontent"
    r"|moz-forward-container|mail_quote|quoted-text)"
)
"""Classes and ids; some programs put something before them."""
_MAY_CITE: Final = re.compile(rf"<blockquote|border-top:\s*solid|{_CITES.pattern}", re.IGNORECASE)
"""Also the line that Outlook draws above the fields of the original."""


def may_cite(source: str) -> bool:
    """Whether an HTML document may mark words of others; found without reading it."""
    return _MAY_CITE.search(source) is not None


def citing_of(tag: str, attributes: Mapping[str, str]) -> Citing:
    """What an element says of the words in it."""
    if tag == "blockquote":
        return "quotes"
    if "class" not in attributes and "id" not in attributes:
        return ""
    found = _CITES.search(f"{attributes.get('class', '')} {attributes.get('id', '')}".lower())
    return cast(Citing, found.lastgroup) if found else ""
