"""Makes text from outside safe to show to a person: it controls no terminal, and hides nothing.

Called by the command line for everything it prints, by logs on a terminal, and for the error messages of providers. In:
text; out: text. Line ends and tabs stay, and so do the two joiners, without which some scripts cannot be written. For
prompts there is `outside.py`, which loses nothing.
"""

from __future__ import annotations

import re
from typing import Final

_HIDDEN: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b\u200e\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ud800-\udfff\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e00ff\U000e01f0-\U000e0fff]"
    "|(?<=[\ufe00-\ufe0f\U000e0100-\U000e01ef])[\ufe00-\ufe0f\U000e0100-\U000e01ef]"
)
"""Controls of both sets, directional marks, separators, zero-width characters, fillers, lone surrogates, tags; and
variation selectors that follow another one: emoji and names have one, a text hidden in them is a row of many."""


def visible(text: str) -> str:
    """The text without invisible characters."""
    return _HIDDEN.sub("", text)


def visible_start(text: str, most: int) -> str:
    """The same, without blanks around it; of a longer one the beginning, which ends in `…`: `most` characters."""
    plain = visible(text).strip()
    return plain if len(plain) <= most else f"{plain[: most - 1]}…"


def escaped(text: str) -> str:
    """The text with invisible characters written as `\\x1b` or `\\u202e`."""
    return _HIDDEN.sub(lambda match: match.group().encode("unicode_escape").decode("ascii"), text)
