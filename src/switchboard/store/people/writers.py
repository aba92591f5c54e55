"""Who has written lately in the conversations of a person, from stored messages.

`app/people_seen.py` calls it. In: the person's handles; out: `RecentWriter`s. A message counts as the person's by its
handle, so what a stranger writes under another's name gives that other one a conversation, and nobody anything else.
Next: `sql/queries/writers.sql`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Final
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from switchboard.core.people.handle import Handle, handle_behind
from switchboard.core.people.readers import person_named
from switchboard.core.uuid7 import first_uuid7, uuid7_time
from switchboard.ports.recent_writers import RecentWriter
from switchboard.store.database import Database, query, rows_as

_MOST_READ: Final = 5_000
"""Of the newest messages."""


class _Sent(Struct, frozen=True):
    """What somebody has written in a conversation. `last`: the id of the latest message."""

    conversation: UUID
    channel: str
    endpoint: str
    sender: str
    last: UUID
    messages: int

    @property
    def handle(self) -> Handle | None:
        """Whose it is, if the channel vouches for that."""
        return handle_behind(person_named(self.channel, self.endpoint, self.sender))


async def find_recent(
    database: Database, handles: Collection[Handle], since: datetime, limit: int
) -> Sequence[RecentWriter]:
    """Others than these handles, in conversations in which one of them has written; the latest first."""
    channels = sorted({one.channel for one in handles})
    rows = await database.rows(query("writers.recent"), first_uuid7(since), channels, _MOST_READ)
    found = rows_as(_Sent, rows)
    own = {id(one) for one in found if one.handle in handles}
    conversations = {one.conversation for one in found if id(one) in own}
    others = [one for one in found if one.conversation in conversations and id(one) not in own]
    latest = _of_each_sender(others)[:limit]
    named = await database.rows(query("writers.names"), [one.last for one in latest]) if latest else ()
    names = {row["request_id"]: row["name"] for row in named}
    return [
        RecentWriter(one.channel, one.sender, names.get(one.last, ""), uuid7_time(one.last), one.messages)
        for one in latest
    ]


def _of_each_sender(sent: Sequence[_Sent]) -> list[_Sent]:
    """All conversations of a sender together, the latest message first."""
    found: dict[tuple[str, str], _Sent] = {}
    for one in sorted(sent, key=lambda one: one.last, reverse=True):
        latest = found.setdefault((one.channel, one.sender), one)
        if latest is not one:
            found[one.channel, one.sender] = replace(latest, messages=latest.messages + one.messages)
    return [*found.values()]
