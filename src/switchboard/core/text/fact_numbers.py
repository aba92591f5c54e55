"""Numbers of facts, by which people and models name them. Pure.

They are made from ids, so that none ever stands for another fact, whatever was added or forgotten since it was shown.
Called for the command `/memory` and by the tools of memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from hashlib import sha256
from typing import Final, TypeVar
from uuid import UUID

from switchboard.ports.facts import Fact

_ALPHABET: Final = "23456789abcdefghjkmnpqrstuvwxyz"
"""Characters that nobody mistakes for each other. The first is a letter: a number is no place in a list."""
_LETTERS: Final = _ALPHABET[8:]
_LENGTH: Final = 5
NUMBER: Final = re.compile(rf"[{_LETTERS}][{_ALPHABET}]{{{_LENGTH - 1}}}")
_F = TypeVar("_F", bound=Fact)


def number_of(fact_id: UUID) -> str:
    """The number of a fact: five characters."""
    left = int.from_bytes(sha256(fact_id.bytes).digest()[:8])
    left, first = divmod(left, len(_LETTERS))
    number = _LETTERS[first]
    for _ in range(_LENGTH - 1):
        left, one = divmod(left, len(_ALPHABET))
        number += _ALPHABET[one]
    return number


def find_numbered(facts: Iterable[_F], number: str) -> _F | None:
    """The fact with this number; None if there is none, or if two have it by chance."""
    found = [one for one in facts if number_of(one.fact_id) == number]
    return found[0] if len(found) == 1 else None
