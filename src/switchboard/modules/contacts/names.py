"""Ids of contacts and names of books, as tools show and take them: short, and one for each card. Pure.

`ann/friends/4711.vcf` is the card `4711.vcf` in the book of the account `ann` whose path ends in `friends`. Next:
`books.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import quote, unquote

from msgspec import Struct

_PLAIN: Final = "@:+,=!$'()*~"


class ContactId(Struct, frozen=True):
    """A card: the account, the label of the book, and the card's name in the book."""

    account: str
    label: str
    name: str

    def __str__(self) -> str:
        return f"{self.account}/{self.label}/{quote(self.name, safe=_PLAIN)}"


def read_id(text: str) -> ContactId | None:
    """None: it is no id."""
    parts = text.strip().split("/")
    if len(parts) < 3 or not all(parts):
        return None
    return ContactId(parts[0], "/".join(parts[1:-1]), unquote(parts[-1]))


def label_books(paths: Sequence[str]) -> Mapping[str, str]:
    """Of each book of an account the end of its path that no other one has."""
    return {path: _shortest_end(path, paths) for path in paths}


def _shortest_end(path: str, paths: Sequence[str]) -> str:
    parts = _parts_of(path)
    for size in range(1, len(parts) + 1):
        end = parts[-size:]
        if sum(_parts_of(other)[-size:] == end for other in paths) == 1:
            return "/".join(end)
    return "/".join(parts) or "-"


def _parts_of(path: str) -> list[str]:
    return [quote(part, safe=_PLAIN) for part in path.split("/") if part]
