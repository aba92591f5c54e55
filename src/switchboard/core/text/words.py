"""Words for error messages: suggestions for a misspelt name, and lists as in a sentence.

Called wherever a name is refused. Next: `core/routing/check.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from difflib import get_close_matches
from typing import Final

_MANY: Final = 2000


def near(word: str, words: Iterable[str]) -> tuple[str, ...]:
    """The names that `word` was probably meant to be, best first; at most three, often none."""
    by_lower = {name.lower(): name for name in sorted(words)}
    if len(by_lower) > _MANY:
        # A comparison takes about 50 µs: with very many names, only those with the same beginning are compared.
        by_lower = {low: name for low, name in by_lower.items() if low[:2] == word[:2].lower()}
    return tuple(by_lower[low] for low in get_close_matches(word.lower(), list(by_lower)[:_MANY], n=3, cutoff=0.6))


def or_list(words: Iterable[str]) -> str:
    """`gmail, imap or smtp`: a list of alternatives."""
    *first, last = sorted(words) or ["nothing"]
    return f"{', '.join(first)} or {last}" if first else last


def offer(name: str, names: Collection[str]) -> str:
    """The end of a sentence about an unknown name: what it may mean, otherwise what exists."""
    meant = near(name, names)
    return f"; did you mean {or_list(meant)}?" if meant else f"; known here: {', '.join(sorted(names)[:20]) or 'none'}"
