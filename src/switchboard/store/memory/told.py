"""What a person may be told of all butlers' memory, and where nothing is learned: for the command `/memory`.

`journey/memory_commands.py` calls it, and `journey/accept.py` switches learning off and on as such a command is stored.
Next: `sql/queries/told.sql`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from uuid import UUID

from msgspec.structs import replace

from switchboard.core.turns.memory_command import ToldFact
from switchboard.domain.message import Conversation
from switchboard.ports.facts import Reader
from switchboard.store.database import Database, query, rows_as
from switchboard.store.ids import new_uuid7
from switchboard.store.memory.readers import handle_columns
from switchboard.store.memory.standing import SettledFact, hold_at, settle


async def list_told(database: Database, reader: Reader, limit: int) -> list[ToldFact]:
    """The facts that butlers of this conversation may tell here, and the reader's own of all; the newest first.

    At most so many are looked at; those that hold no more are left out.
    """
    found = await list_all_told(database, reader, limit)
    settled = dict[UUID, SettledFact]()
    for system_id in {one.system_id for one in found}:
        same = [one.fact_id for one in found if one.system_id == system_id]
        settled |= await settle(database, replace(reader, system_id=system_id), same)
    return hold_at(found, settled, datetime.now(UTC))


async def list_all_told(database: Database, reader: Reader, limit: int) -> list[ToldFact]:
    """The same, with those that hold no more, or that another one says again: they are kept, too."""
    who = reader.conversation, reader.person, reader.private, reader.authentic
    return rows_as(ToldFact, await database.rows(query("told.facts"), *who, *handle_columns(reader), limit))


async def may_change(
    database: Database, reader: Reader, fact_ids: Collection[UUID], *, as_owner: bool
) -> Collection[UUID]:
    """Those of these facts that the reader may see, and said or is the subject of; of an owner, all that they see."""
    who = reader.system_id, reader.conversation, reader.person, reader.private, reader.authentic
    given = (*who, *handle_columns(reader), list(fact_ids), as_owner)
    return [row["fact_id"] for row in await database.rows(query("told.may_change"), *given)]


async def switch_learning(database: Database, commands: Sequence[tuple[UUID, bool]]) -> None:
    """From each of these messages on, its conversation is learned from, or not."""
    await database.run(query("told.switch"), [one for one, _ in commands], [learns for _, learns in commands])


async def is_learning_in(database: Database, conversation: Conversation) -> bool:
    """Whether what is said in a conversation from now on may be learned."""
    return bool(await database.value(query("told.is_learning_in"), conversation, new_uuid7()))
