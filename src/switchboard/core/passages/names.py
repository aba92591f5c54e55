"""How the names of people appear in prompts. Pure.

Names are chosen by strangers, so they are shown as one short line in quotes, beside the handle, and decide nothing. In:
a name as a platform or a mail gives it; out: what models are shown. Called by `showing.py` and `core/turns/entries.py`.
A person whom operators have linked is called by the name that they gave, the same under each handle.
"""

from __future__ import annotations

import unicodedata
from typing import Final

MOST_NAME: Final = 40
"""Characters of a name that are shown."""
_MOST_READ: Final = 512
_LEFT_OUT: Final = frozenset({"Cc", "Cf", "Co", "Cs", "Cn", "Zl", "Zp", "Ps", "Pe", "Pi", "Pf"})
"""Control, bidirectional and invisible characters, brackets and quotation marks, by their Unicode category."""
_MARKS: Final = frozenset('"<>`|')


def shown_name(name: str | None) -> str:
    """A name in one line of at most 40 characters; empty if nothing of it can be shown."""
    kept = (" " if one.isspace() else one for one in (name or "")[:_MOST_READ] if one.isspace() or _is_shown(one))
    return " ".join("".join(kept).split())[:MOST_NAME].strip()


def speaker(name: str, handle: str) -> str:
    """A person as prompts call them: `"Ann", telegram/bot%3Ahouse/42`. `name`: of `shown_name` or `person_name`."""
    return f'"{name}", {handle}' if name else handle


def person_name(name: str, person_id: str) -> str:
    """A linked person as prompts call them instead: `Ann (person ann)`, which no name of a stranger can look like.

    That has no brackets.
    """
    return f"{shown_name(name)} (person {person_id})".lstrip()


def _is_shown(one: str) -> bool:
    return one not in _MARKS and unicodedata.category(one) not in _LEFT_OUT
