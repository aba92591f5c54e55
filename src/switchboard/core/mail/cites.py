"""How mail programs mark the words of others in HTML.

Called by `core/mail/hypertext.py` for each element. In: its name and attributes; out: what it says of the author of the
words in it. Next: `core/passages/plain.py`, which weighs that with what the words say.
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
    r"|moz-forward-container|mail_quote|quoted-text|mail-editor-reference|qmbox)"
)
"""Classes and ids; some programs put something before them."""
_NAMES: Final = frozenset({"quote", "quoted-content", "messagereplysection"})
"""Values of the attribute `name`."""


def citing_of(tag: str, attributes: Mapping[str, str]) -> Citing:
    """What an element says of the words in it."""
    if tag == "blockquote":
        return "quotes"
    if tag == "q" or attributes.get("name", "").lower() in _NAMES:
        return "container"
    if "class" not in attributes and "id" not in attributes:
        return ""
    found = _CITES.search(f"{attributes.get('class', '')} {attributes.get('id', '')}".lower())
    return cast(Citing, found.lastgroup) if found else ""
