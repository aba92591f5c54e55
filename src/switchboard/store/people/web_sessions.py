"""Sessions of the page and links that sign in once: only the sha256 of their secrets is kept.

Called by `app/web_sessions.py`, which makes and hashes them. A session ends with its token, after 7 days in which it
was not used, and at `expires_at`; then it is as if it did not exist.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from msgspec import Struct

from switchboard.store.database import Database, query, row_as, rows_as
from switchboard.store.people.tokens import Role, Token


@dataclass(frozen=True, slots=True)
class WebSession:
    """A browser that is signed in: `name` and what follows are those of the token it stands for."""

    session_id: UUID
    name: str
    role: Role
    channel: str | None
    endpoint: str | None
    label: str
    """The browser, as it names itself."""
    created_at: datetime
    used_at: datetime
    expires_at: datetime


async def make_link(database: Database, digest: bytes, name: str, lasts: timedelta) -> datetime | None:
    """Store a link for the live token of this name; returns until when it is good. None: there is no such token."""
    expires_at: datetime | None = await database.value(query("web_sessions.make_link"), digest, name, lasts)
    return expires_at


async def token_named(database: Database, name: str) -> Token | None:
    """The live token of this name."""
    return row_as(Token, await database.row(query("web_sessions.token_named"), name))


async def token_of_link(database: Database, digest: bytes) -> Token | None:
    """The token that the link with this sha256 signs in as. None: it was used, is too old, or never existed."""
    return row_as(Token, await database.row(query("web_sessions.token_of_link"), digest))


class NewWebSession(Struct, frozen=True):
    """A session to be opened: the sha256 of its secret, the browser, and how long it lasts at most."""

    session_id: UUID
    digest: bytes
    label: str
    lasts: timedelta


async def open_by_link(database: Database, link: bytes, new: NewWebSession) -> bool:
    """Use the link up, and open a session for its token. False: the link is good no more."""
    return await _open_session(database, "web_sessions.open_by_link", link, new)


async def open_by_token(database: Database, token: bytes, new: NewWebSession) -> bool:
    """Open a session for the live token with this sha256. False: there is none."""
    return await _open_session(database, "web_sessions.open_by_token", token, new)


async def _open_session(database: Database, name: str, by: bytes, new: NewWebSession) -> bool:
    given = new.session_id, new.digest, new.label, new.lasts
    return await database.change_rows(query(name), by, *given) == 1


async def find(database: Database, digest: bytes) -> WebSession | None:
    """The session with this sha256, if it holds."""
    return row_as(WebSession, await database.row(query("web_sessions.find"), digest))


async def find_live(database: Database, sessions: Collection[UUID]) -> set[UUID]:
    """Those of these sessions that hold."""
    return {row["session_id"] for row in await database.rows(query("web_sessions.live"), list(sessions))}


async def keep_newest(database: Database, session_id: UUID, others: int) -> int:
    """End what its token has beyond this one and `others` that were used last; returns how many."""
    return await database.change_rows(query("web_sessions.keep_newest"), session_id, others)


async def touch(database: Database, session_id: UUID) -> None:
    """Note that it is used now."""
    await database.run(query("web_sessions.touch"), session_id)


async def list_sessions(database: Database, *, before: UUID | None, limit: int) -> list[WebSession]:
    """A page of those that hold, newest first."""
    return rows_as(WebSession, await database.rows(query("web_sessions.list"), before, limit))


async def end(database: Database, session_id: UUID) -> bool:
    """End it. False: it had ended."""
    return await database.change_rows(query("web_sessions.end"), session_id) == 1


async def end_all(database: Database, but: UUID | None) -> int:
    """End all of them but one, if one is given; returns how many."""
    return await database.change_rows(query("web_sessions.end_all"), but)
