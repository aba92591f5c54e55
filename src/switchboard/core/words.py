"""Words for error messages: suggestions for a misspelt name, lists as in a sentence, what pydantic means.

Called wherever a name is refused. Next: `core/routing/check.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final

_MANY: Final = 2000
_PLAINLY: Final = (
    ("^Value error, |(?<=: )Value error, ", ""),
    ("Input should be a valid integer.*", "must be a whole number"),
    ("Input should be a valid number.*", "must be a number"),
    ("Input should be a valid string", "must be a text"),
    ("Input should be greater than or equal to ", "must be at least "),
    ("Input should be less than or equal to ", "must be at most "),
    ("Input should be ", "must be "),
)


def near(word: str, words: Iterable[str]) -> tuple[str, ...]:
    """The names that `word` was probably meant to be, best first; at most three, often none."""
    by_lower = {name.lower(): name for name in sorted(words)}
    if len(by_lower) > _MANY:
        # Comparing takes some 50 µs per name: among very many, only those with the same beginning are worth it.
        by_lower = {low: name for low, name in by_lower.items() if low[:2] == word[:2].lower()}
    return tuple(by_lower[low] for low in get_close_matches(word.lower(), list(by_lower)[:_MANY], n=3, cutoff=0.6))


def or_list(words: Iterable[str]) -> str:
    """`gmail, imap or smtp`: a list of alternatives."""
    *first, last = sorted(words) or ["nothing"]
    return f"{', '.join(first)} or {last}" if first else last


def plainly(message: str) -> str:
    """A message of pydantic about a value, as people would put it."""
    for theirs, ours in _PLAINLY:
        message = re.sub(theirs, ours, message)
    return message
