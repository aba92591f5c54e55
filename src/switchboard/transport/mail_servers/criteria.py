"""What is searched for on a server of mail, as IMAP writes it. Pure.

Whoever searches makes a sequence of `str`, which are keys, and `SearchText`, which people wrote. Out: the pieces of a
command. What is not ASCII, or could end a quoted string, is a literal: quoted, servers refuse it or read something
else. Next: `mailbox.py`, which sends them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import date
from typing import Final, TypeAlias

from msgspec import Struct

_QUOTABLE: Final = re.compile(r"[\x20-\x7e]{0,500}")
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


class SearchText(Struct, frozen=True):
    """Words of a person, which are never syntax."""

    text: str


SearchKey: TypeAlias = str | SearchText
"""A key with its syntax, such as `FROM`, or the text that follows one."""


def command_pieces(keys: Iterable[SearchKey]) -> tuple[bytes, ...]:
    """The arguments of a search. Each piece but the last ends with the size of the literal that begins the next."""
    pieces, line, gap = list[bytes](), b"", b""
    for key in keys:
        line += b"" if key == ")" else gap
        if isinstance(key, str):
            line += key.encode("ascii")
        elif _QUOTABLE.fullmatch(key.text):
            line += b'"' + key.text.replace("\\", "\\\\").replace('"', '\\"').encode("ascii") + b'"'
        else:
            literal = key.text.encode("utf-8", "replace")
            pieces.append(line + b"{%d}" % len(literal))
            line = literal
        gap = b"" if key == "(" else b" "
    return (*pieces, line)


def needs_charset(keys: Iterable[SearchKey]) -> bool:
    """Whether the server must be told that there are characters beyond ASCII."""
    return any(isinstance(key, SearchText) and not key.text.isascii() for key in keys)


def search_day(day: date) -> str:
    """A day as IMAP writes it, whatever the locale is."""
    return f"{day.day}-{_MONTHS[day.month - 1]}-{day.year:04}"


def any_of(alternatives: Sequence[Sequence[SearchKey]]) -> tuple[SearchKey, ...]:
    """Keys for mails to which at least one of several sequences of keys applies."""
    first, *others = (("(", *one, ")") for one in alternatives)
    return ("OR", *first, *any_of([one[1:-1] for one in others])) if others else first


def uid_set(uids: Iterable[int]) -> str:
    """Numbers as IMAP lists them, runs of them as `4:9`."""
    runs = list[list[int]]()
    for uid in sorted(set(uids)):
        if runs and runs[-1][-1] == uid - 1:
            runs[-1][1:] = [uid]
        else:
            runs.append([uid])
    return ",".join(":".join(map(str, run)) for run in runs)
