"""Running processes: workers and programs, which own lanes, and servers, which do not.

A program claims only the lanes of its own calls, so the queues of others need a worker. `app/processes.py` registers a
server, `lanes.py` the others; the doctor and the metrics list workers and servers. Next: `store/checks/work.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Literal

from msgspec import Struct

from switchboard.domain.errors import ConfigurationError
from switchboard.store.database import Database, query, rows_as, seconds
from switchboard.store.migrate import known_schema

Role = Literal["worker", "server", "program"]


class _Process(Struct, frozen=True):
    """What a process says of itself: where it runs, its release, its kinds of lanes."""

    role: Role
    kinds: Sequence[str]
    host: str
    pid: int
    version: str


class NewProcess(_Process, frozen=True):
    """A process that registers. It beats within `ttl` seconds."""

    ttl: float


class RunningProcess(_Process, frozen=True):
    """A registered process; `alive` while its beat is younger than its ttl."""

    process_id: int
    started_at: datetime
    beat: datetime
    alive: bool


async def register(database: Database, new: NewProcess) -> int:
    """Register a process that takes no lock, alive by its heartbeat; returns its id. Raises as `check_process_id`."""
    return check_process_id(await database.value(query("lanes.register"), *columns(new), False, known_schema()))


def check_process_id(process_id: int | None) -> int:
    """The result of `lanes.register`. Raises ConfigurationError if the database has a newer release's schema."""
    if process_id is None:
        raise ConfigurationError(
            "a newer release has changed the database while this process was cut off from it; install the newer release"
        )
    return process_id


def columns(new: NewProcess) -> tuple[object, ...]:
    """The arguments of `lanes.register`, without the lock."""
    return (new.role, list(new.kinds), new.host, new.pid, new.version, seconds(new.ttl))


async def remove(database: Database, process: int) -> None:
    """Remove a process that owned no lanes and has ended."""
    await database.run(query("processes.remove"), process)


async def list_processes(database: Database, role: Role | None = None) -> list[RunningProcess]:
    """The registered processes, including those with an old heartbeat."""
    return rows_as(RunningProcess, await database.rows(query("processes.list"), role))


async def oldest_snapshot_s(database: Database) -> float:
    """Seconds since the oldest transaction that keeps a snapshot began, behind which nothing is cleaned up."""
    return float(await database.value(query("processes.oldest_snapshot")))


async def count_alive(database: Database, role: Role) -> int:
    """How many processes of this role have a recent beat."""
    return sum(process.alive for process in await list_processes(database, role))
