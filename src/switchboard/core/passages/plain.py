"""Reads the passages of a plain text. Pure, and in linear time, because a stranger wrote the text.

Called by `own.py` and `core/mail/parse.py`. Next: `domain/envelope.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from switchboard.domain.envelope import Passage


def passages_of_text(text: str) -> tuple[Passage, ...]:
    """The passages of a text that is not a mail: lines that begin with `>` are quoted."""
    return tuple(_passages(text))


def passages_of_mail(text: str) -> tuple[Passage, ...]:
    """The passages of the text of a mail."""
    return tuple(_passages(text))


def _passages(text: str) -> Iterator[Passage]:
    for quoted, lines in groupby(text.split("\n"), key=_is_quoted):
        if words := "\n".join(lines).strip():
            yield Passage(kind="quoted" if quoted else "own", text=words)


def _is_quoted(line: str) -> bool:
    return line.lstrip().startswith(">")
