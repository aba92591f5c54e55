"""Authentication and authorisation: bearer tokens, scopes, recorded refusals.

Every interface calls `authenticate` first and a `check_…` before it acts. In: the Authorization header; out: a
`Principal`. Next: `app/messages/intake.py` for input, `app/messages/views.py` for what may be seen.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from pathlib import Path
from secrets import token_urlsafe
from typing import Final, Literal
from uuid import UUID

import structlog
from msgspec import Struct

from switchboard.app.ownership import read_ours, require_ours, write_private
from switchboard.app.whereabouts import ADDRESS_FILE, OPERATOR_FILE
from switchboard.domain.errors import (
    ConfigurationError,
    Conflict,
    Forbidden,
    InvalidInput,
    NotFound,
    Unauthenticated,
    Unavailable,
)
from switchboard.domain.json_values import JsonMapping
from switchboard.domain.shown import AuditEntry
from switchboard.store.database import Database
from switchboard.store.ids import new_uuid7
from switchboard.store.models import classification
from switchboard.store.models.classification import SESSION_PREFIX, ClassificationSession
from switchboard.store.people import audit, people
from switchboard.store.people import tokens as store
from switchboard.store.people.tokens import Role, Token

__all__ = ["Access", "Action", "AnyRole", "Issued", "Principal", "Role", "Token", "ensure_operator_token"]

log = structlog.get_logger(__name__)

CACHE_S: Final = 2.0
"""Seconds within which a revoked token stops to work in every process."""
_CACHED: Final = 10_000
_OPERATOR_FORM = re.compile(r"sb_o_[A-Za-z0-9_-]{43}")

AnyRole = Literal[Role, "session"]
"""`session`: one run of a model for one message. Nobody can be given such a token; the pipeline makes it."""

# Who may use an action at all: operators, and the role that the set is named after.
OPERATOR: Final[frozenset[AnyRole]] = frozenset({"operator"})
CONNECTOR: Final[frozenset[AnyRole]] = frozenset({"operator", "connector"})
AGENT: Final[frozenset[AnyRole]] = frozenset({"operator", "agent"})
METRICS: Final[frozenset[AnyRole]] = frozenset({"operator", "metrics"})
APPROVER: Final[frozenset[AnyRole]] = frozenset({"operator", "approver"})
SESSION: Final[frozenset[AnyRole]] = frozenset({"session"})


class Action(Struct, frozen=True):
    """A permission: its name in errors and in the audit trail, and the roles that may use it at all.

    Connectors and agents may act only on what is theirs; of agents, only a System3 may edit.
    """

    name: str
    roles: frozenset[AnyRole]


TOKENS: Final = Action("tokens", OPERATOR)
AUDIT: Final = Action("audit", OPERATOR)


class Principal(Struct, frozen=True):
    """The caller: a connector is bound to channel and endpoint, an agent to its system_id, a session to a message.

    `person`: whom an agent calls tools for, by id; None: nobody in particular.
    """

    role: AnyRole
    name: str
    channel: str | None = None
    endpoint: str | None = None
    system_id: str | None = None
    session: ClassificationSession | None = None
    person: str | None = None


class _Known(Struct, frozen=True):
    """A recently found token: until when (monotonic s) the answer may be reused, and when it expires."""

    principal: Principal
    until: float
    expires_at: datetime | None


@dataclass(frozen=True, slots=True)
class Issued:
    """A new token and, only now, its secret."""

    token: Token
    secret: str = field(repr=False)


class Access:
    """Checks tokens and scopes; every refusal of a scope is audited. `clock` returns monotonic seconds."""

    def __init__(self, database: Database, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._database = database
        self._clock = clock
        self._known: dict[bytes, _Known] = {}
        self._looking_up: dict[bytes, asyncio.Task[_Known | None]] = {}

    async def authenticate(self, header: str | None) -> Principal:
        """The bearer of this Authorization header. Raises Unauthenticated, Unavailable.

        Only the hash of the secret is compared, by an index or a dict, so that time reveals nothing about it.
        """
        scheme, _, secret = (header or "").partition(" ")
        secret = secret.strip()
        if scheme.lower() != "bearer" or not secret:
            raise Unauthenticated("a token is required: send the header Authorization: Bearer sb_…")
        digest = _digest_of(secret)
        if secret.startswith(SESSION_PREFIX):
            return await self._authenticate_session(digest)
        known = self._find_cached(digest) or await self._looked_up(digest)
        if known is None or _has_expired(known.expires_at):
            raise Unauthenticated("this token is unknown, revoked or expired")
        return known.principal

    def _find_cached(self, digest: bytes) -> _Known | None:
        known = self._known.get(digest)
        return known if known is not None and known.until > self._clock() else None

    async def _authenticate_session(self, digest: bytes) -> Principal:
        """Looked up every time: a session's token is invalid as soon as the session ends."""
        session = await classification.find_session(self._database, digest)
        if session is None:
            raise Unauthenticated("this session has ended, or never existed")
        return Principal("session", f"session {session.session_id}", session=session)

    async def _looked_up(self, digest: bytes) -> _Known | None:
        """When a cached answer expires, all connections with this token ask at once: one look-up serves them all.

        They also share its failure, and it continues without callers that disconnect.
        """
        looking_up = self._looking_up.get(digest)
        if looking_up is None:
            looking_up = self._looking_up[digest] = asyncio.create_task(self._look_up(digest))
            looking_up.add_done_callback(partial(self._note_looked_up, digest))
        return await asyncio.shield(looking_up)

    def _note_looked_up(self, digest: bytes, looking_up: asyncio.Task[_Known | None]) -> None:
        del self._looking_up[digest]
        if not looking_up.cancelled():
            looking_up.exception()  # nobody may be left to receive it

    async def _look_up(self, digest: bytes) -> _Known | None:
        asked = self._clock()
        token = await store.find(self._database, digest)
        self._known.pop(digest, None)
        if token is None or token.revoked_at is not None:
            return None
        if len(self._known) >= _CACHED:
            self._known.clear()
        known = _Known(_principal_of(token), asked + CACHE_S, token.expires_at)
        self._known[digest] = known
        return known

    async def check(self, principal: Principal, action: Action) -> None:
        """Raise Forbidden unless the role may do this at all."""
        if principal.role not in action.roles:
            await self.record_refusal(principal, action, {})
            raise Forbidden(f"a token with the role {principal.role} may not use {action.name}")

    async def check_endpoint(self, principal: Principal, action: Action, channel: str, endpoint: str) -> None:
        """Raise Forbidden if a connector acts for an endpoint other than its own."""
        if not owns_endpoint(principal, channel, endpoint):
            await self.record_refusal(principal, action, {"channel": channel, "endpoint": endpoint})
            raise foreign_endpoint(principal)

    async def check_system(self, principal: Principal, action: Action, system_id: str) -> None:
        """Raise Forbidden if an agent asks for data of another."""
        if principal.role == "agent" and system_id != principal.system_id:
            await self.record_refusal(principal, action, {"system_id": system_id})
            raise Forbidden(f"this token is for {principal.system_id} only")

    async def hide(self, principal: Principal, action: Action, what: str) -> NotFound:
        """Audit a request for something out of scope, and return an error that does not reveal whether it exists."""
        await self.record_refusal(principal, action, {"asked_for": what})
        return NotFound(f"there is no {what}")

    async def record_refusal(self, principal: Principal, action: Action, detail: JsonMapping) -> None:
        """Write a refusal to the audit trail. The refusal takes effect even if the trail cannot be written."""
        log.warning("refused", actor=principal.name, action=action.name)
        with contextlib.suppress(Unavailable):
            said = {"role": principal.role, **detail}
            await audit.append(self._database, principal.name, f"refused:{action.name}", said)

    async def entries(self, limit: int, action: str | None = None, before: UUID | None = None) -> list[AuditEntry]:
        """A page of the audit trail, newest first."""
        return await audit.list_entries(self._database, limit, action=action, before=before)

    async def tokens(self, limit: int, after: UUID | None = None) -> list[Token]:
        """A page of all tokens ever issued, oldest first, without their secrets."""
        return await store.list_tokens(self._database, after=after, limit=limit)

    async def issue(self, actor: Principal, wanted: Principal, expires_at: datetime | None = None) -> Issued:
        """Make a token for `wanted`. Raises Conflict when a live token has its name, NotFound without its person."""
        detail = {"name": wanted.name, "role": wanted.role} | ({"person": wanted.person} if wanted.person else {})
        async with self._database.transaction() as one:
            issued = await _issue_token(one, wanted, expires_at)
            await audit.append(one, actor.name, "token:issued", detail)
        return issued

    async def revoke(self, actor: Principal, name: str) -> None:
        """End a token: here at once, elsewhere within CACHE_S. Raises NotFound."""
        async with self._database.transaction() as one:
            if not await store.revoke(one, name):
                raise NotFound(f"there is no active token named {name!r}; see `switchboard tokens list`")
            await audit.append(one, actor.name, "token:revoked", {"name": name})
        self._known.clear()


def owns_endpoint(principal: Principal, channel: str, endpoint: str) -> bool:
    """Whether the caller may submit and see messages of this endpoint; an operator may for all."""
    return principal.role == "operator" or (principal.channel, principal.endpoint) == (channel, endpoint)


def foreign_endpoint(principal: Principal) -> Forbidden:
    """The error for a connector that reaches beyond its endpoint."""
    return Forbidden(
        f"this token is for the endpoint {principal.endpoint!r} of channel {principal.channel!r} only",
        field="source.endpoint_identity",
    )


def _has_expired(expires_at: datetime | None) -> bool:
    return expires_at is not None and expires_at <= datetime.now(UTC)


def _principal_of(token: Token) -> Principal:
    return Principal(token.role, token.name, token.channel, token.endpoint, token.system_id, person=token.person)


async def _issue_token(database: Database, wanted: Principal, expires_at: datetime | None = None) -> Issued:
    secret = f"sb_{wanted.role[0]}_{token_urlsafe(32)}"
    token = _row_of(wanted, expires_at)
    if not await store.create(database, token, _digest_of(secret)):
        if wanted.person is not None and not await people.list_people(database, only=wanted.person):
            raise NotFound(f"there is no person {wanted.person!r}; see `switchboard people list`")
        raise Conflict(
            f"there is an active token named {wanted.name!r}; revoke it or choose another name", field="name"
        )
    return Issued(token, secret)


def _row_of(wanted: Principal, expires_at: datetime | None = None) -> Token:
    w = wanted
    if w.role == "session":
        raise InvalidInput("a session token cannot be issued: it is created when a model is called", field="role")
    bound = w.channel, w.endpoint, w.system_id, w.person
    return Token(new_uuid7(), w.name, w.role, *bound, datetime.now(UTC), expires_at, revoked_at=None)


def _digest_of(secret: str) -> bytes:
    return sha256(secret.encode()).digest()


async def ensure_operator_token(database: Database, data_dir: Path) -> None:
    """Ensure that `<data_dir>/operator.token` holds a valid token; called at every start of the server.

    The file is new (mode 0600) when there was none, or when what it holds was revoked or has expired. A token unknown
    to this database (which may be newer than the directory) is registered: anyone who can read the file is in control.
    So directory and file must be ours or root's. Raises ConfigurationError.
    """
    file = data_dir / OPERATOR_FILE
    try:
        secret = _read_operator_token(file)
        if secret is not None and await _still_good(database, secret):
            return
        issued = await _issue_operator(database)
        write_private(file, f"{issued.secret}\n")
    except OSError as error:
        raise ConfigurationError(
            f"the operator's token cannot be stored in {file}: {error}; make the directory writable, or set data_dir"
        ) from error
    log.info("new operator token", file=str(file), name=issued.token.name)


async def _issue_operator(database: Database) -> Issued:
    number = await store.next_operator(database)
    while True:
        try:
            return await _issue_token(database, Principal("operator", f"operator-{number}"))
        except Conflict:  # another process starts at the same moment
            number += 1


async def _still_good(database: Database, secret: str) -> bool:
    token = await store.find(database, _digest_of(secret))
    if token is None:
        number = await store.next_operator(database)
        return await store.create(database, _row_of(Principal("operator", f"operator-{number}")), _digest_of(secret))
    return token.role == "operator" and token.revoked_at is None and not _has_expired(token.expires_at)


def _read_operator_token(file: Path) -> str | None:
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    require_ours(file.parent)
    try:
        secret = read_ours(file).strip()
    except (FileNotFoundError, ValueError):
        return None
    file.chmod(0o600)
    return secret if _OPERATOR_FORM.fullmatch(secret) else None


def remember_address(data_dir: Path, url: str) -> None:
    """Record for the command line that the operator's token may be sent to this address."""
    write_private(data_dir / ADDRESS_FILE, f"{url}\n")
