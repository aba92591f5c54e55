"""Remote butlers: what they announced, where they are, and when they were last heard of.

Called by `journey/rulebook.py` and `journey/candidates.py` (who is unavailable), `app/wiring.py` (that a server
listens) and `app/remote_agents.py` (heartbeats and operators); engines get `StoredRemoteAgents`. The rows are those of
members; seeding from the team files leaves these columns unchanged. Next: `core/policy/liveness.py`.
"""

from __future__ import annotations

import contextlib
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from switchboard.core.policy.liveness import LivenessPolicy, liveness
from switchboard.domain.errors import Unavailable
from switchboard.domain.json_values import JsonMapping, JsonObject
from switchboard.domain.remote_agents import Liveness, RemoteAgent
from switchboard.domain.routing import Member, SystemId
from switchboard.store.database import Database, Row, decode_json, query, seconds
from switchboard.store.rules.teams import member_of
from switchboard.store.rules.versions import RuleConnection

ANNOUNCED_EVERY_S: Final = 5.0
"""Minimum interval of changed announcements: every process that asks models reloads them, and they are audited."""
LISTENING_GAP_S: Final = 30.0
"""If no server recorded that it listens for this long, there was none to receive heartbeats."""


class Announcement(Struct, frozen=True):
    """What a butler announces in a heartbeat; None: as before."""

    description: str | None = None
    capabilities: tuple[str, ...] | None = None
    endpoint: str | None = None
    instance_id: str | None = None
    version: str | None = None


class Registered(Struct, frozen=True):
    """A member and its run-time settings."""

    member: Member
    announced: JsonMapping
    endpoint: str | None
    own_endpoint: bool

    @property
    def in_use(self) -> str | None:
        """The URL that is called."""
        return endpoint_in_use(self.member.options, self.endpoint, own=self.own_endpoint)

    @property
    def public(self) -> tuple[object, ...]:
        """The announcements visible to others, without the instance and its version."""
        return self.announced.get("description"), self.announced.get("capabilities"), self.endpoint


class Beat(Struct, frozen=True):
    """A butler at a heartbeat, and whether it counted as alive. None: it is no longer a remote butler."""

    registered: Registered
    liveness: Liveness | None


class TooSoon(Struct, frozen=True):
    """Another announcement followed too soon, and nothing was stored; it may repeat it after this many seconds."""

    wait: float


def endpoint_in_use(options: JsonMapping, endpoint: str | None, *, own: bool) -> str | None:
    """The run-time endpoint, otherwise the file's. One set by the butler counts only while its file permits it."""
    if endpoint is not None and (not own or options.get("announces_endpoint") is True):
        return endpoint
    url = options.get("url")
    return url if isinstance(url, str) else None


async def list_remote_agents(database: Database, patience: LivenessPolicy) -> list[RemoteAgent]:
    """The current state of every remote butler."""
    return [_remote_agent(row, patience) for row in await database.rows(query("remote_agents.list"), None)]


def _remote_agent(row: Row, patience: LivenessPolicy) -> RemoteAgent:
    told, by, announced = row["told"], row["quarantined_by"], decode_json(row["announced"])
    promised = row["promised"] if told is None else told
    alive = liveness(row["silence"], patience, promised=promised, quarantined=by is not None)
    why = f"no sign of life for {row['silence']:.0f} s" if alive == "quarantined" else ""
    return RemoteAgent(
        system_id=SystemId(row["system_id"]),
        liveness=alive,
        why=why if by is None else f"put there by {by}: {row['quarantine_reason']}",
        last_seen_at=row["last_seen_at"],
        endpoint=row["endpoint"],
        description=announced.get("description", ""),
        capabilities=tuple(announced.get("capabilities", ())),
        own_endpoint=row["own_endpoint"],
        by=by or "",
    )


async def hold(connection: RuleConnection, system_id: SystemId) -> Registered | None:
    """The butler, locked until the end of the transaction; None if there is no such member."""
    row = await connection.fetchrow(query("remote_agents.hold"), system_id)
    if row is None:
        return None
    return Registered(member_of(row), row["announced"], row["endpoint"], row["own_endpoint"])


async def get(database: Database, system_id: SystemId) -> Registered | None:
    """The same without a lock."""
    async with database.connection() as connection, connection.transaction():
        return await hold(connection, system_id)


async def beat(
    database: Database, system_id: SystemId, said: Announcement, patience: LivenessPolicy
) -> tuple[Beat, Beat] | TooSoon | None:
    """Store a heartbeat and its announcements; returns the butler before and after. None: no such member.

    The caller has checked whether it may change its endpoint; one set by an operator meanwhile stays.
    """
    async with database.connection() as connection, connection.transaction():
        before = await hold(connection, system_id)
        if before is None:
            return None
        after = _after(before, said)
        if changes := after.public != before.public:
            wait = await connection.fetchval(query("remote_agents.announced"), system_id, seconds(ANNOUNCED_EVERY_S))
            if wait is not None and wait > 0:
                return TooSoon(wait)
        was = await _liveness(connection, system_id, patience)
        await connection.execute(query("remote_agents.beat"), system_id, after.announced, changes)
        if after.endpoint != before.endpoint:
            await connection.execute(query("remote_agents.move"), system_id, after.endpoint, True)
        return Beat(before, was), Beat(after, await _liveness(connection, system_id, patience))


def _after(before: Registered, said: Announcement) -> Registered:
    after = replace(before, announced={**before.announced, **_announced_fields(said)})
    if said.endpoint is not None and (before.endpoint is None or before.own_endpoint):
        return replace(after, endpoint=said.endpoint, own_endpoint=True)
    return after


async def _liveness(connection: RuleConnection, system_id: SystemId, patience: LivenessPolicy) -> Liveness | None:
    row = await connection.fetchrow(query("remote_agents.list"), system_id)
    return None if row is None else _remote_agent(row, patience).liveness


def _announced_fields(said: Announcement) -> JsonObject:
    told = {
        "description": said.description,
        "capabilities": None if said.capabilities is None else list(said.capabilities),
        "instance_id": said.instance_id,
        "version": said.version,
    }
    return {name: value for name, value in told.items() if value is not None}


async def move(database: Database, system_id: SystemId, endpoint: str | None) -> None:
    """Set the endpoint on behalf of an operator; None restores that of the file."""
    await database.run(query("remote_agents.move"), system_id, endpoint, False)


class StoredRemoteAgents(Struct, frozen=True):
    """Remote butlers as engines see them."""

    database: Database

    async def endpoint_of(self, member: Member) -> str | None:
        """The URL at which this butler is called at present."""
        row = await self.database.row(query("remote_agents.endpoint"), member.system_id)
        endpoint, own = (None, False) if row is None else (row["endpoint"], row["own_endpoint"])
        return endpoint_in_use(member.options, endpoint, own=own)

    async def seen(self, system_id: SystemId) -> None:
        """Record that the butler has just answered; a failure must not lose the answer."""
        with contextlib.suppress(Unavailable):
            await self.database.run(query("remote_agents.seen"), system_id)


async def quarantine(database: Database, system_id: SystemId, by: str | None, reason: str | None) -> bool:
    """Quarantine it in the name of `by`, or (None) release it. False: it is so already, or no remote butler."""
    return await database.change_rows(query("remote_agents.quarantine"), system_id, by, reason) == 1


async def listen(database: Database) -> None:
    """Record that a server is ready to receive heartbeats."""
    await database.run(query("remote_agents.listen"), seconds(LISTENING_GAP_S))
