"""Plain text as its sender wrote it: lines that were broken for transport are whole again, and markup is gone.

Called by `core/mail/texts.py`. In: the text of a part; out: the same words. Pure, and in linear time, because a
stranger wrote the text. Next: `core/mail/texts.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

_SIGNATURE: Final = "-- "
_MARKUP: Final = re.compile(r"<<|<(/?)([a-z0-9-]{1,60})>|(?:\r?\n)++", re.IGNORECASE)
_RICH_SIGNS: Final = {"lt": "<", "nl": "\n", "np": "\n", "paragraph": "\n\n"}


def join_flowed_lines(text: str, *, deletes_space: bool) -> str:
    """The text of `format=flowed` (RFC 3676), its lines joined within a paragraph and a level of quotation.

    `deletes_space`: the blank that marks a line as continued is not part of the text (`delsp=yes`).
    """
    return "\n".join(_paragraphs(text, deletes_space=deletes_space))


def _paragraphs(text: str, *, deletes_space: bool) -> Iterator[str]:
    pieces, before = list[str](), 0
    for line in text.split("\n"):
        depth, words = _quoted(line.removesuffix("\r"))
        is_mark = words == _SIGNATURE
        if pieces and (depth != before or is_mark):
            yield _line(before, pieces)
            pieces = []
        continues = words.endswith(" ") and not is_mark
        pieces.append(words[:-1] if continues and deletes_space else words)
        before = depth
        if not continues:
            yield _line(depth, pieces)
            pieces = []
    if pieces:
        yield _line(before, pieces)


def _quoted(line: str) -> tuple[int, str]:
    """How many `>` a line begins with, and its words without the blank that protects them."""
    words = line.lstrip(">")
    return len(line) - len(words), words.removeprefix(" ")


def _line(depth: int, pieces: list[str]) -> str:
    marks = ">" * depth + " " * bool(depth)
    return marks + "".join(_joined_url(piece) for piece in pieces[:-1]) + pieces[-1]


def _joined_url(piece: str) -> str:
    """Without the blank behind an URL that was broken at a hyphen: none ends with one."""
    words = piece.rstrip(" ")
    is_broken = words.endswith("-") and words.rpartition(" ")[2].startswith(("http://", "https://"))
    return words if is_broken else piece


def without_markup(text: str) -> str:
    """The words of `text/enriched` (RFC 1896) and of its predecessor `text/richtext`."""
    hidden, found, at = 0, list[str](), 0
    for mark in _MARKUP.finditer(text):
        if not hidden:
            found.append(text[at : mark.start()])
        at = mark.end()
        name = (mark[2] or "").lower()
        if name in {"param", "comment"}:
            hidden = max(0, hidden + (-1 if mark[1] else 1))
        elif not hidden:
            found.append(_text_of_mark(mark[0], name))
    return "".join(found) + (text[at:] if not hidden else "")


def _text_of_mark(mark: str, name: str) -> str:
    if name or mark == "<<":
        return _RICH_SIGNS.get(name, "") if name else "<"
    breaks = mark.count("\n")
    return " " if breaks == 1 else "\n" * (breaks - 1)
