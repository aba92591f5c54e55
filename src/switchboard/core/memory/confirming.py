"""Whether somebody's words confirm what they have said before. Pure.

`tools/keeping.py` asks it about what a model quotes. What was recalled confirms nothing: only words of its author that
repeat something of the fact, or agree with it. Next: `remembering.py`, which finds the quote.
"""

from __future__ import annotations

import re
from typing import Final

from switchboard.core.memory.extraction import count_denials
from switchboard.core.memory.settling import same_value

_AGREES: Final = re.compile(
    r"\W*(yes|yeah|yep|right|correct|exactly|indeed|still|true|of course|ja|genau|stimmt|richtig|korrekt|immer noch)\b",
    re.IGNORECASE,
)
_LEAST: Final = 4
"""Letters of a word that says something."""


def is_confirmed_by(fact: str, quote: str) -> bool:
    """Whether words agree with a fact, or say something of it again, and deny as often as it does."""
    if count_denials(quote) != count_denials(fact):
        return False
    return _AGREES.match(quote) is not None or bool(_words_of(quote) & _words_of(fact))


def _words_of(text: str) -> set[str]:
    return {word for word in re.findall(r"\w+", same_value(text)) if len(word) >= _LEAST}
