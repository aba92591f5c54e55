"""The processes that run: workers and programs, which own lanes, and servers, which do not.

A program claims only the lanes of its own calls, so the queues of others need a worker. `app/processes.py` registers a
server, `lanes.py` the others; the doctor and the metrics list workers and servers. Next:
`app/ops/doctor.py`.
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


class NewProcess(Struct, frozen=True):
    """Who registers: where it runs, its release, the kinds of lanes that it knows. It beats within `ttl` seconds."""

    role: Role
    kinds: Sequence[str]
    host: str
    pid: int
    version: str
    ttl: float


class RunningProcess(Struct, frozen=True):
    """A registered process; `alive` while its beat is younger than its ttl."""

    process_id: int
    role: Role
    kinds: Sequence[str]
    host: str
    pid: int
    version: str
    started_at: datetime
    beat: datetime
    alive: bool


async def register(database: Database, new: NewProcess) -> int:
    """Enter a process that takes no lock, and lives by its heartbeat alone; returns its id. Raises as `registered`."""
    return registered(await database.value(query("lanes.register"), *columns(new), False, known_schema()))


def registered(process_id: int | None) -> int:
    """What `lanes.register` returned. Raises ConfigurationError if the database has the schema of a newer release."""
    if process_id is None:
        raise ConfigurationError(
            "a newer release has changed the database while this process was cut off from it; install the newer release"
        )
    return process_id


def columns(new: NewProcess) -> tuple[object, ...]:
    """What `lanes.register` enters, but for the lock."""
    return (new.role, list(new.kinds), new.host, new.pid, new.version, seconds(new.ttl))


async def remove(database: Database, process: int) -> None:
    """A process that owns no lanes has ended."""
    await database.run(query("processes.remove"), process)


async def list_processes(database: Database, role: Role | None = None) -> list[RunningProcess]:
    """The processes that are registered now, those with an old beat included."""
    return rows_as(RunningProcess, await database.rows(query("processes.list"), role))


async def count_alive(database: Database, role: Role) -> int:
    """How many processes of this role have a recent beat."""
    return sum(process.alive for process in await list_processes(database, role))
