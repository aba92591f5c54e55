"""What a person may be told of all butlers' memory, and where nothing is learned: for the command `/memory`.

`journey/memory_commands.py` calls it, and `journey/accept.py` switches learning off and on as such a command is stored.
Next: `sql/queries/told.sql`.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from switchboard.core.turns.memory_command import ToldFact
from switchboard.ports.facts import Reader
from switchboard.store.database import Database, query, rows_as
from switchboard.store.memory.readers import handle_columns


async def list_told(database: Database, reader: Reader, limit: int) -> list[ToldFact]:
    """The facts that butlers of this conversation may tell here, and the reader's own of all; the newest first."""
    who = reader.conversation, reader.person, reader.private, reader.authentic
    return rows_as(ToldFact, await database.rows(query("told.facts"), *who, *handle_columns(reader), limit))


async def switch_learning(database: Database, commands: Sequence[tuple[UUID, bool]]) -> None:
    """From each of these messages on, its conversation is learned from, or not."""
    await database.run(query("told.switch"), [one for one, _ in commands], [learns for _, learns in commands])
