"""Remote butlers: what they announced, where they are, and when they last gave a sign of life.

Called by `journey/rulebook.py` (who is away), `agents/mcp.py` (where to call, and that somebody answered) and
`app/registry.py` (heartbeats and operators). The rows are those of members; a start, which brings members up to the
team files, leaves these columns as they are. Next: `core/policy/liveness.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from switchboard.core.policy.liveness import Patience, liveness
from switchboard.domain.remote import Liveness, Presence
from switchboard.domain.routing import Member, SystemId
from switchboard.store.database import Database, Row, query, seconds
from switchboard.store.rules import Session
from switchboard.store.teams import member_of

ANNOUNCED_EVERY_S: Final = 5.0
"""What a butler announces may change so often: everybody who asks models reads it anew, and it is audited."""
LISTENING_GAP_S: Final = 30.0
"""Nobody was there to hear heartbeats if nobody wrote for so long that he was."""


@dataclass(frozen=True, slots=True)
class Announcement:
    """What a butler says of himself in a heartbeat; None: as before."""

    description: str | None = None
    capabilities: tuple[str, ...] | None = None
    endpoint: str | None = None
    instance_id: str | None = None
    version: str | None = None


@dataclass(frozen=True, slots=True)
class Registered:
    """A member and what was set for him at run time."""

    member: Member
    announced: Mapping[str, Any]
    endpoint: str | None
    own_endpoint: bool
    quarantined_by: str | None

    @property
    def in_use(self) -> str | None:
        """The URL that is called."""
        return endpoint_in_use(self.member.options, self.endpoint, own=self.own_endpoint)

    @property
    def public(self) -> tuple[object, ...]:
        """What others read of his announcements; not which instance of which version he is."""
        return self.announced.get("description"), self.announced.get("capabilities"), self.endpoint


@dataclass(frozen=True, slots=True)
class Beat:
    """A butler at a heartbeat, and whether he counted as alive. None: he is no remote butler any more."""

    registered: Registered
    liveness: Liveness | None


@dataclass(frozen=True, slots=True)
class TooSoon:
    """He announced something else a moment ago, and nothing was kept; after so many seconds he may again."""

    wait: float


def endpoint_in_use(options: Mapping[str, Any], endpoint: str | None, *, own: bool) -> str | None:
    """The one set at run time, else the file's. One that the butler set himself counts only while his file lets him."""
    if endpoint is not None and (not own or options.get("announces_endpoint") is True):
        return endpoint
    url = options.get("url")
    return url if isinstance(url, str) else None


async def list_presences(database: Database, patience: Patience) -> list[Presence]:
    """Every remote butler as he is at this moment."""
    return [_presence(row, patience) for row in await database.rows(query("presence.list"), None)]


def _presence(row: Row, patience: Patience) -> Presence:
    told = row["told"]
    promised = told if isinstance(told, bool) else row["promised"]
    by = row["quarantined_by"]
    alive = liveness(row["silence"], patience, promised=promised, quarantined=by is not None)
    shown = Presence(
        system_id=SystemId(row["system_id"]),
        liveness=alive,
        last_seen_at=row["last_seen_at"],
        description=row["announced"].get("description", ""),
        capabilities=tuple(row["announced"].get("capabilities", ())),
        endpoint=row["endpoint"],
        own_endpoint=row["own_endpoint"],
    )
    if by is not None:
        return replace(shown, by=by, why=f"put there by {by}: {row['quarantine_reason']}")
    return replace(shown, why=f"no sign of life for {row['silence']:.0f} s") if shown.away else shown


async def hold(connection: Session, system_id: SystemId) -> Registered | None:
    """The butler, locked until the end of the transaction; None if there is no such member."""
    row = await connection.fetchrow(query("presence.hold"), system_id)
    if row is None:
        return None
    return Registered(member_of(row), row["announced"], row["endpoint"], row["own_endpoint"], row["quarantined_by"])


async def get(database: Database, system_id: SystemId) -> Registered | None:
    """The same, for a look."""
    async with database.connection() as connection, connection.transaction():
        return await hold(connection, system_id)


async def beat(
    database: Database, system_id: SystemId, said: Announcement, patience: Patience
) -> tuple[Beat, Beat] | TooSoon | None:
    """Keep a heartbeat and what it announces; the butler before and after it. None: there is no such member.

    Whether he may change his endpoint the caller has looked at; one that an operator has set meanwhile stays.
    """
    async with database.connection() as connection, connection.transaction():
        before = await hold(connection, system_id)
        if before is None:
            return None
        after = _after(before, said)
        if changes := after.public != before.public:
            wait = await connection.fetchval(query("presence.announced"), system_id, seconds(ANNOUNCED_EVERY_S))
            if wait is not None and wait > 0:
                return TooSoon(wait)
        was = await _liveness(connection, system_id, patience)
        await connection.execute(query("presence.beat"), system_id, after.announced, changes)
        if after.endpoint != before.endpoint:
            await connection.execute(query("presence.move"), system_id, after.endpoint, True)
        return Beat(before, was), Beat(after, await _liveness(connection, system_id, patience))


def _after(before: Registered, said: Announcement) -> Registered:
    after = replace(before, announced={**before.announced, **_given(said)})
    if said.endpoint is not None and (before.endpoint is None or before.own_endpoint):
        return replace(after, endpoint=said.endpoint, own_endpoint=True)
    return after


async def _liveness(connection: Session, system_id: SystemId, patience: Patience) -> Liveness | None:
    row = await connection.fetchrow(query("presence.list"), system_id)
    return None if row is None else _presence(row, patience).liveness


def _given(said: Announcement) -> dict[str, Any]:
    told = {
        "description": said.description,
        "capabilities": None if said.capabilities is None else list(said.capabilities),
        "instance_id": said.instance_id,
        "version": said.version,
    }
    return {name: value for name, value in told.items() if value is not None}


async def move(database: Database, system_id: SystemId, endpoint: str | None) -> None:
    """Set the endpoint in an operator's name; None: that of the file again."""
    await database.run(query("presence.move"), system_id, endpoint, False)


async def endpoint_of(database: Database, member: Member) -> str | None:
    """The URL that is called for this butler at this moment."""
    row = await database.row(query("presence.endpoint"), member.system_id)
    set_for_him, own = (None, False) if row is None else (row["endpoint"], row["own_endpoint"])
    return endpoint_in_use(member.options, set_for_him, own=own)


async def seen(database: Database, system_id: SystemId) -> None:
    """Keep that he has just answered."""
    await database.run(query("presence.seen"), system_id)


async def quarantine(database: Database, system_id: SystemId, by: str | None, reason: str | None) -> bool:
    """Put him in quarantine in the name of `by`, or (None) take him out. False: there is no such remote butler."""
    return await database.run(query("presence.quarantine"), system_id, by, reason) == "UPDATE 1"


async def listen(database: Database) -> None:
    """Keep that somebody is there to hear heartbeats."""
    await database.run(query("presence.listen"), seconds(LISTENING_GAP_S))
