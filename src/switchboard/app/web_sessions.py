"""Who is signed in on the page: one-time links, sessions, and how each ends.

`server/web` calls it for every request below `/ui/`, `server/http/web_sessions.py` for the command line. In: secrets of
links and cookies, of which only hashes are kept; out: a `WebVisitor`, whose `Principal` is that of the token the
session was opened with, so that `Access` decides what it may do. Next: `store/people/web_sessions.py`.
"""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from secrets import token_urlsafe
from typing import Final
from uuid import UUID

from msgspec import Struct

from switchboard.app.access import OPERATOR, Access, Action, Principal
from switchboard.core.text.words import offer
from switchboard.domain.errors import Conflict, InvalidInput, NotFound, Unavailable
from switchboard.store.database import Database
from switchboard.store.ids import new_uuid7
from switchboard.store.people import audit
from switchboard.store.people import web_sessions as store
from switchboard.store.people.tokens import Token, was_revoked
from switchboard.store.people.web_sessions import NewWebSession, WebSession

__all__ = ["CHANNEL", "PAGES", "WEB_SESSIONS", "WebLink", "WebSession", "WebSessions", "WebVisitor"]

WEB_SESSIONS: Final = Action("web_sessions", OPERATOR)
PAGES: Final = Action("pages", frozenset({"operator", "approver", "connector"}))
"""What everybody may do who can sign in at all."""
CHANNEL: Final = "dashboard"
"""Connectors of it are people who see what they wrote on the page, and nothing else."""
LINK_LASTS: Final = timedelta(minutes=10)
SESSION_LASTS: Final = timedelta(days=30)
MOST_SESSIONS: Final = 20
"""Of one token: with another one, that which was unused for longest ends."""
_TOUCH_AFTER: Final = timedelta(minutes=1)
"""A session is written to at most so often, however many pages are looked at."""
_LABEL: Final = 100
_MOST_KNOWN: Final = 1000


class WebLink(Struct, frozen=True):
    """A new link, of which this is the only record: its path, who it signs in, and until when."""

    path: str
    name: str
    role: str
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class WebVisitor:
    """Somebody who is signed in. `secret` is what the cookie holds: forms are signed with it."""

    session: WebSession
    secret: str = field(repr=False)

    @property
    def principal(self) -> Principal:
        """The caller of use cases; the audit names token and browser."""
        s = self.session
        return Principal(s.role, f"{s.name} (web: {s.label})", s.channel, s.endpoint)


class WebSessions:
    """Makes links, opens and ends sessions."""

    def __init__(self, database: Database, access: Access) -> None:
        self._database = database
        self._access = access

    async def make_link(self, actor: Principal, name: str | None = None, *, new: bool = False) -> WebLink:
        """A link that signs in once, as the token `name`, by default the caller's own.

        `new`: for a new member of the household of that name, who chats and sees only their own messages. Raises
        NotFound without such a token, so that a misspelt name makes nobody; Conflict if it opens no page, or is not
        new.
        """
        if new:
            if name is None:
                raise InvalidInput("a new member needs a name", field="name")
            if await was_revoked(self._database, name):
                raise Conflict(
                    f"{name!r} is the name of a token that was revoked, and a new member would see what was written "
                    "under it; choose another name",
                    field="name",
                )
            token = (await self._access.issue(actor, Principal("connector", name, CHANNEL, name))).token
        else:
            found = await store.token_named(self._database, actor.name if name is None else name)
            token = found or await self._refuse_unknown(actor, name)
        if not opens_pages(token):
            raise Conflict(f"the token {token.name!r} opens no page; choose another name", field="name")
        secret = token_urlsafe(16)
        async with self._database.transaction() as one:
            expires_at = await store.make_link(one, _digest_of(secret), token.name, LINK_LASTS)
            if expires_at is None:
                raise NotFound(f"the token {token.name!r} was revoked meanwhile")
            await audit.append(one, actor.name, "web:link", {"for": token.name})
        return WebLink(f"/ui/enter/{secret}", token.name, token.role, expires_at)

    async def _refuse_unknown(self, actor: Principal, name: str | None) -> Token:
        """Raises NotFound with those who are known."""
        if name is None:
            raise NotFound(f"there is no active token named {actor.name!r}; see `switchboard tokens list`")
        tokens = [one for one in await self._access.tokens(_MOST_KNOWN) if one.revoked_at is None]
        known = [one.name for one in tokens if opens_pages(one)]
        raise NotFound(
            f"nobody is called {name!r} here{offer(name, known)}; for a new member of the household, run: "
            f"switchboard open --for {shlex.quote(name)} --new",
            field="name",
        )

    async def link_owner(self, secret: str) -> Token | None:
        """The token that the link signs in as; None: it was used, is too old, or never existed. It is not used up."""
        return await store.token_of_link(self._database, _digest_of(secret))

    async def enter_by_link(self, secret: str, label: str) -> str | None:
        """Use a link up; returns what the cookie is to hold. None as in `link_owner`."""
        return await self._open_session(lambda new: store.open_by_link(self._database, _digest_of(secret), new), label)

    async def enter_by_token(self, secret: str, label: str) -> str | None:
        """Sign in with a token itself. None: it is unknown, revoked, expired, or opens no page."""
        principal = await self._access.authenticate(f"Bearer {secret}")
        if not opens_pages(principal):
            return None
        return await self._open_session(lambda new: store.open_by_token(self._database, _digest_of(secret), new), label)

    async def _open_session(self, open_session: Callable[[NewWebSession], Awaitable[bool]], label: str) -> str | None:
        secret = token_urlsafe(32)
        new = NewWebSession(new_uuid7(), _digest_of(secret), label[:_LABEL], SESSION_LASTS)
        if not await open_session(new):
            return None
        session = await store.find(self._database, new.digest)
        if session is None:
            return None
        ended = await store.keep_newest(self._database, session.session_id, MOST_SESSIONS - 1)
        detail = {"label": session.label} | ({"ended": ended} if ended else {})
        await audit.append(self._database, session.name, "web:signed_in", detail)
        return secret

    async def find_visitor(self, secret: str) -> WebVisitor | None:
        """Who is signed in with this cookie; looked up every time, so a revoked token shows nothing more."""
        session = await store.find(self._database, _digest_of(secret))
        if session is None:
            return None
        if datetime.now(UTC) - session.used_at > _TOUCH_AFTER:
            with contextlib.suppress(Unavailable):
                await store.touch(self._database, session.session_id)
        return WebVisitor(session, secret)

    async def find_live(self, sessions: Collection[UUID]) -> set[UUID]:
        """Those of these sessions that have not ended."""
        return await store.find_live(self._database, sessions)

    async def sessions(self, *, limit: int, before: UUID | None = None) -> list[WebSession]:
        """A page of all that hold, newest first."""
        return await store.list_sessions(self._database, before=before, limit=limit)

    async def end(self, actor: Principal, session_id: UUID, reason: str | None = None) -> None:
        """End a session at once, in every process. Raises NotFound."""
        detail = {"session_id": str(session_id)} | ({"reason": reason} if reason else {})
        async with self._database.transaction() as one:
            if not await store.end(one, session_id):
                raise NotFound(f"there is no session {session_id}; see `switchboard web-sessions list`")
            await audit.append(one, actor.name, "web:ended", detail)

    async def end_all(self, actor: Principal, reason: str, but: UUID | None = None) -> int:
        """End all sessions at once, but for one, if one is given; returns how many."""
        async with self._database.transaction() as one:
            if ended := await store.end_all(one, but):
                await audit.append(one, actor.name, "web:ended_all", {"sessions": ended, "reason": reason})
        return ended


def opens_pages(token: Token | Principal) -> bool:
    """Whether one can sign in with it at all; which pages it then opens follows from its role."""
    if token.role == "connector":
        return token.channel == CHANNEL
    return token.role in {"operator", "approver"}


def _digest_of(secret: str) -> bytes:
    return sha256(secret.encode()).digest()
