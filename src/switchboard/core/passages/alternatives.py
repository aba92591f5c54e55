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
_URL = re.compile(r"(?:https?://|www\.)[^\s<>()\[\]]{1,2000}", re.IGNORECASE)
_UNSAID = re.compile(
    rf"[<(\[]?\b(?:mailto:[^\s<>()\[\]]{{1,300}}|{_URL.pattern})[>)\]]?|\[cid:[^\]\s]{{1,200}}\]", re.IGNORECASE
)
"""What each form writes in its own way: the targets of links, and pictures."""
_SCHEME = re.compile(r"https?://")
_BULLET = re.compile(r"\s*(?:[-*\u2022\u00b7o]|\d{1,3}[.)])\s+")
_FUEL: Final = 64
"""Characters that may be searched per character of both texts; what is not found by then counts as others'."""
_ELSEWHERE: Final = LineTag("quoted")
_BETWEEN: Final = LineTag("between")


def reconcile_tags(lines: Sequence[str], tags: Sequence[LineTag], html: Sequence[tuple[str, LineTag]]) -> list[LineTag]:
    """The tags of the plain lines; `html`: the lines of the HTML with their tags.

    What is in the plain text alone is `quoted`, as nobody who reads the HTML sees it. Below the first line that the
    HTML calls others', no line is the sender's own.
    """
    shown = _Shown(html, _FUEL * (sum(map(len, lines)) + sum(len(line) for line, _ in html) + 1))
    found, has_others = list[LineTag](), False
    for line, tag in zip(lines, tags, strict=True):
        other = shown.tag_of(line, found[-1] if found else OWN)
        has_others = has_others or (other.kind != "own" and other is not _ELSEWHERE)
        found.append(_stricter_tag(tag, _BETWEEN if has_others and other.kind == "own" else other))
    return found


def _stricter_tag(tag: LineTag, other: LineTag) -> LineTag:
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
        self._links = {link for line, tag in html if tag.kind == "own" for link in _links_of(line)}
        self._at = 0
        self._fuel = fuel

    def tag_of(self, line: str, above: LineTag) -> LineTag:
        """The tag of the first line of the HTML with these words that is not the sender's; `OWN` if all are.

        `above`: the tag of the line above, which is that of a line without words, too.
        """
        if not _links_of(line) <= self._links:
            return _ELSEWHERE
        words = _words_of(line)
        if not words:
            return OWN if _links_of(line) else above
        begin = self._place_of(words)
        if begin < 0:
            return _ELSEWHERE
        first, last = bisect_right(self._ends, begin), bisect_right(self._ends, begin + len(words))
        return next((tag for tag in self._tags[first : last + 1] if tag.kind != "own"), OWN)

    def _place_of(self, words: str) -> int:
        """Where the words are, behind the last place if possible; -1: nowhere, or the search takes too long."""
        wanted = f" {words} "
        found = self._find_line(wanted, self._at)
        if found < 0 and self._at:
            return self._find_line(wanted, 0)
        self._at = max(self._at, found + len(wanted) - 1)
        return found

    def _find_line(self, wanted: str, begin: int) -> int:
        if self._fuel < 0:
            return -1
        found = self._text.find(wanted, begin)
        self._fuel -= (len(self._text) if found < 0 else found + len(wanted)) - begin
        return found


def _links_of(line: str) -> set[str]:
    """The addresses that a line shows or that its links lead to, without what each form writes in its own way."""
    found = _URL.findall(line) if "http" in line.lower() or "www." in line.lower() else ()
    return {_SCHEME.sub("", link.lower(), count=1).rstrip("/.,;:!?'\"") for link in found}


def _words_of(line: str) -> str:
    """The words of a line, without targets of links and bullets."""
    begin = found.end() if (found := _BULLET.match(line)) else 0
    return " ".join(_WORD.findall(_UNSAID.sub(" ", line[begin:]).lower()))
