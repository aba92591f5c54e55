"""Whose words the lines of a plain text are, according to the HTML of the same mail. Pure.

Called by `core/mail/passages.py` for mails that have both. Programs often quote in plain text without a mark, and mark
it in HTML only. In: the tagged lines of both; out: tags for the plain text, in which a line is the sender's own only if
neither calls it others'. Lines are compared by their words, because each form wraps them differently. Next: `plain.py`.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Final

from switchboard.core.passages.plain import OWN, LineTag

_WORD = re.compile(r"\w+")
_URL = re.compile(r"[<(\[]?\b(?:https?://|mailto:|www\.)[^\s<>()\[\]]{1,2000}[>)\]]?|\[(?:cid|image)[^\]\n]{0,200}\]")
_BULLET = re.compile(r"\s*(?:[-*\u2022\u00b7o]|\d{1,3}[.)])\s+")
_FUEL: Final = 64
"""Characters that may be searched per character of both texts; what is not found by then counts as others'."""
_ELSEWHERE: Final = LineTag("quoted")


def agreed(
    lines: Sequence[str], tags: Sequence[LineTag], html: Sequence[tuple[str, LineTag]], *, is_whole: bool = True
) -> list[LineTag]:
    """The tags of the plain lines; `html`: the lines of the HTML with their tags.

    What is in the plain text alone is `quoted`, as nobody who reads the HTML sees it; not if the HTML is not whole.
    """
    shown = _Shown(html, _FUEL * (sum(map(len, lines)) + sum(len(line) for line, _ in html) + 1))
    elsewhere = _ELSEWHERE if is_whole else OWN
    return [_stricter(tag, shown.tag_of(line, elsewhere)) for line, tag in zip(lines, tags, strict=True)]


def _stricter(tag: LineTag, other: LineTag) -> LineTag:
    if tag.kind not in ("own", "between") or other.kind == "own":
        return tag
    return tag if tag.kind == other.kind else other


class _Shown:
    """The words of the HTML in one string, and whose they are; searched from the last place on."""

    def __init__(self, html: Sequence[tuple[str, LineTag]], fuel: int) -> None:
        said = [(words, tag) for line, tag in html if (words := _words_of(line))]
        self._text = " ".join(("", *(words for words, _ in said), ""))
        self._ends = list(accumulate(len(words) + 1 for words, _ in said))
        self._tags = [tag for _, tag in said]
        self._at = 0
        self._fuel = fuel

    def tag_of(self, line: str, elsewhere: LineTag) -> LineTag:
        """The tag of the first line of the HTML with these words that is not the sender's; `OWN` if all are.

        `elsewhere`: the tag of words that it does not have.
        """
        words = _words_of(line)
        if not words:
            return OWN
        begin = self._place_of(words)
        if begin < 0:
            return elsewhere
        first, last = bisect_right(self._ends, begin), bisect_right(self._ends, begin + len(words))
        return next((tag for tag in self._tags[first : last + 1] if tag.kind != "own"), OWN)

    def _place_of(self, words: str) -> int:
        """Where the words are, behind the last place if possible; -1: nowhere, or the search takes too long."""
        wanted = f" {words} "
        found = self._find(wanted, self._at)
        if found < 0 and self._at:
            return self._find(wanted, 0)
        self._at = max(self._at, found)
        return found

    def _find(self, wanted: str, begin: int) -> int:
        if self._fuel < 0:
            return -1
        found = self._text.find(wanted, begin)
        self._fuel -= (len(self._text) if found < 0 else found + len(wanted)) - begin
        return found


def _words_of(line: str) -> str:
    """The words of a line, without addresses of links and bullets, which each form writes in its own way."""
    return " ".join(_WORD.findall(_URL.sub(" ", line[found.end() if (found := _BULLET.match(line)) else 0 :]).lower()))
