"""Messages by what a person looks for, newest first: as far as one can look in the time of a page.

`app/messages/searching.py` calls it. In: a filter, and a range of ids, which begin with their time; out: rows. Next:
`store/sql/queries/message_search.sql`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from msgspec import Struct

from switchboard.domain.ledger import MessageOrigin
from switchboard.domain.shown import MessageState
from switchboard.store.database import Database, query, rows_as

_FIRST: Final = UUID(int=0)
_LAST: Final = UUID(int=2**128 - 1)


class MessageFilter(Struct, frozen=True):
    """What is looked for; None: any. `butler` and `team`: to whom it went, or at which team it died."""

    channel: str | None = None
    endpoint: str | None = None
    sender: str | None = None
    butler: str | None = None
    team: str | None = None
    state: MessageState | None = None


class IdRange(Struct, frozen=True):
    """Messages from one id to another, both included."""

    first: UUID = _FIRST
    last: UUID = _LAST

    @property
    def empty(self) -> bool:
        """Whether no id is in it."""
        return self.first > self.last

    def before(self, request_id: UUID) -> IdRange:
        """What of it is older."""
        return IdRange(self.first, min(self.last, UUID(int=max(request_id.int - 1, 0))))

    def after(self, request_id: UUID) -> IdRange:
        """What of it is newer."""
        return IdRange(max(self.first, UUID(int=min(request_id.int + 1, _LAST.int))), self.last)


@dataclass(frozen=True, slots=True)
class FoundMessage(MessageOrigin):
    """A message as a row shows it. `text`: what a row has room for, of so many `characters`.

    `attachments`: as in the envelope, of a message without words.
    """

    received_at: datetime
    text: str
    characters: int
    attachments: Any
    state: MessageState
    went_to: Sequence[str]
    is_code: bool


async def find_messages(
    database: Database, wanted: MessageFilter, ids: IdRange, *, oldest: bool, limit: int
) -> list[FoundMessage]:
    """The newest in a range or, with `oldest`, the oldest; newest first."""
    w = wanted
    rows = await database.rows_with_custom_plan(
        query("message_search.newer" if oldest else "message_search.older"),
        *(ids.first, ids.last, w.channel, w.endpoint, w.sender, w.butler, w.team, w.state, limit),
    )
    return rows_as(FoundMessage, rows)


async def whole_texts(database: Database, request_ids: Sequence[UUID]) -> Mapping[UUID, str]:
    """The texts of these messages, whole."""
    rows = await database.rows(query("message_search.texts"), request_ids)
    return {row["request_id"]: row["text"] for row in rows}


async def end_of_walk(
    database: Database, wanted: MessageFilter, ids: IdRange, *, oldest: bool, walk: int
) -> UUID | None:
    """Where one is after `walk` messages of the channel and account, whatever else is wanted; None: at the end.

    Accounts are found by the index of their channel: if that is not wanted, one walks through those of all.
    """
    endpoint = None if wanted.channel is None else wanted.endpoint
    rows = await database.rows_with_custom_plan(
        query("message_search.newer_until" if oldest else "message_search.older_until"),
        *(ids.first, ids.last, wanted.channel, endpoint, walk),
    )
    return rows[0]["request_id"] if rows else None
