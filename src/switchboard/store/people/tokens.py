"""Bearer tokens: only their sha256 is kept, with the rights that they give.

Called by `app/access.py`, which makes, hashes and checks them. Next: `store/people/audit.py`, where refusals are
written.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal
from uuid import UUID

from switchboard.store.database import Database, query, row_as, rows_as

Role = Literal["operator", "connector", "agent", "metrics", "approver"]


@dataclass(frozen=True, slots=True)
class Token:
    """A token without its secret. A connector's has `channel` and `endpoint`, an agent's has `system_id`.

    `person`: the id of whom an agent calls tools for; null: nobody in particular.
    """

    token_id: UUID
    name: str
    role: Role
    channel: str | None
    endpoint: str | None
    system_id: str | None
    person: str | None
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None


async def create(database: Database, token: Token, digest: bytes) -> bool:
    """Store a token under the sha256 of its secret. False: a live token of this name exists, or its person does not."""
    t = token
    created = await database.change_rows(
        query("tokens.create"),
        *(t.token_id, t.name, digest, t.role, t.channel, t.endpoint, t.system_id, t.person, t.created_at, t.expires_at),
    )
    return created == 1


async def find(database: Database, digest: bytes) -> Token | None:
    """The token with this sha256, even if it is revoked or expired."""
    return row_as(Token, await database.row(query("tokens.find"), digest))


async def list_tokens(database: Database, *, after: UUID | None = None, limit: int | None = None) -> list[Token]:
    """Tokens including revoked ones, oldest first; `after` is the last one of the previous page."""
    return rows_as(Token, await database.rows(query("tokens.list"), after, limit))


async def revoke(database: Database, name: str) -> bool:
    """Revoke the live token of this name. False: there is none."""
    return await database.change_rows(query("tokens.revoke"), name) == 1


async def revoke_of(database: Database, person: str) -> int:
    """Revoke the live tokens that act for a person; returns how many."""
    return await database.change_rows(query("tokens.revoke_of"), person)


async def was_revoked(database: Database, name: str) -> bool:
    """Whether a token of this name was revoked."""
    return bool(await database.value(query("tokens.was_revoked"), name))


async def next_operator(database: Database) -> int:
    """The number for the next operator token, from 1."""
    return int(await database.value(query("tokens.next_operator")))
