"""Cursors of lists: the key of the last row of a page, in a form that is opaque to clients.

The services that page through lists call it. In: keys, or what a client sends back; out: the other. A page begins after
a key, not at a position in the list, so nothing is shown twice when rows are added meanwhile.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Annotated, Final, Generic, TypeVar
from uuid import UUID

import msgspec
from msgspec import Struct

from switchboard.domain.errors import InvalidInput

CursorText = Annotated[str, msgspec.Meta(pattern=r"^[^\x00]*$")]
"""PostgreSQL has no NUL in text."""
Number = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
_Key = TypeVar("_Key")
_Row = TypeVar("_Row")

PAGE_CHARACTERS: Final = 8_000_000
"""A page ends once its texts have that many: each may have 262,144, and a page 500 of them."""
_AT_ONCE: Final = 100
"""Rows that are read before that is looked at."""


def cursor_after(*key: object) -> str:
    """The cursor of the page that begins after the row with this key."""
    return base64.urlsafe_b64encode(msgspec.json.encode(key)).decode()


def key_of(cursor: str | None, kind: type[_Key]) -> _Key | None:
    """The key in a cursor, a tuple of this type; None: from the beginning. Raises InvalidInput."""
    if cursor is None:
        return None
    try:
        key = msgspec.json.decode(base64.urlsafe_b64decode(cursor), type=kind)
        for part in key if isinstance(key, tuple) else ():
            if isinstance(part, datetime):
                part.astimezone(UTC)  # as PostgreSQL takes it: at both ends of time, there is no such moment
    except (ValueError, OverflowError, binascii.Error, msgspec.DecodeError):
        raise bad_cursor() from None
    return key


def uuid_cursor(cursor: str | None) -> UUID | None:
    """The id at which a list stopped; None: from the beginning. Raises InvalidInput."""
    try:
        return None if cursor is None else UUID(cursor)
    except ValueError:
        raise bad_cursor() from None


class LongRows(Struct, Generic[_Row], frozen=True):
    """A list whose rows may be long. `read` returns at most this many rows before an id, newest first."""

    read: Callable[[UUID | None, int], Awaitable[Sequence[_Row]]]
    key: Callable[[_Row], UUID]
    characters: Callable[[_Row], int]

    async def page(self, cursor: str | None, limit: int) -> tuple[list[_Row], str | None]:
        """At most `limit` rows, fewer if they are long, and the cursor of the next page. Raises InvalidInput."""
        before, room = uuid_cursor(cursor), PAGE_CHARACTERS
        page: list[_Row] = []
        while len(page) < limit and room > 0:
            wanted = min(limit - len(page), _AT_ONCE)
            rows = await self.read(before, wanted)
            page += rows
            if len(rows) < wanted:
                return page, None
            before = self.key(rows[-1])
            room -= sum(map(self.characters, rows))
        return page, None if before is None else str(before)


def bad_cursor() -> InvalidInput:
    """The error for a cursor that this server did not issue."""
    return InvalidInput(
        "this cursor was not issued by this server; start without one", code="invalid_cursor", field="cursor"
    )
