"""A running PostgreSQL server: finding it, its address, and stopping it.

Called by `supervisor.py` and `launch.py`. In: a data directory; out: an `EmbeddedServer` or None. Next: asyncpg.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import quote

import asyncpg
from msgspec import Struct

from switchboard.domain.errors import ConfigurationError, Unavailable
from switchboard.embedded.binaries import UnprivilegedUser

LOG: Final = "server.log"
PATIENCE: Final = 600.0
"""Seconds: a recovery may take minutes, but a server that hangs must not block us forever."""
POLL: Final = 0.02
_FACTS = """
select split_part(current_setting('server_version'), ' ', 1), current_setting('data_directory'),
       current_setting('listen_addresses'), exists (select from pg_database where datname = $1)
"""
_NOT_NOW = (
    OSError,
    TimeoutError,
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,  # starting up, recovering, shutting down
    asyncpg.TooManyConnectionsError,
)


class EmbeddedServer(Struct, frozen=True):
    """A server that answers. `url` is for asyncpg and libpq; `port` also names the socket file in `socket_dir`."""

    data_dir: Path
    url: str
    socket_dir: Path
    port: int
    version: str


class ClusterPlan(Struct, frozen=True):
    """What the caller asked for, and the user of the server. Without TCP the port only names the socket file."""

    data_dir: Path
    binaries: Path | None
    settings: Mapping[str, str]
    addresses: str
    port: int
    database: str
    account: UnprivilegedUser | None


class Postmaster(Struct, frozen=True):
    """The contents of postmaster.pid; the server adds `port` and `socket_dir` a moment after `pid`."""

    pid: int
    port: int
    socket_dir: Path | None


async def stop(data_dir: Path, *, immediate: bool = False) -> None:
    """End the server of `data_dir`, if one runs, and wait until its process is gone; `immediate` crashes it (tests).

    Clients are cut off. By signal and not by pg_ctl, which would wait ten minutes for a zombie.
    """
    if (pid := live_postmaster(data_dir)) is None:
        return
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGQUIT if immediate else signal.SIGINT)
    deadline = time.monotonic() + PATIENCE
    while is_running(pid, data_dir):
        if time.monotonic() > deadline:
            raise Unavailable(f"the PostgreSQL server of {data_dir} (process {pid}) does not stop")
        await asyncio.sleep(POLL)


async def probe(plan: ClusterPlan) -> tuple[EmbeddedServer | None, str]:
    """The server that answers now and its listen addresses. Connects as postmaster.pid says, not as planned."""
    master = postmaster(plan.data_dir)
    if master is None or master.socket_dir is None:
        return None, ""
    try:
        connection = await asyncpg.connect(_url_of(master.socket_dir, master.port, "postgres"), timeout=5)
        try:
            [(version, its_data_dir, addresses, exists)] = await connection.fetch(_FACTS, plan.database)
            if not plan.data_dir.samefile(its_data_dir):  # postmaster.pid came along when the directory was copied
                return None, ""
            if not exists:
                name = plan.database.replace('"', '""')
                await connection.execute(f'create database "{name}"')
        finally:
            await connection.close()
    except _NOT_NOW:
        return None, ""
    except asyncpg.PostgresError as error:
        raise ConfigurationError(f"the PostgreSQL server of {plan.data_dir} refused the connection: {error}") from error
    url = _url_of(master.socket_dir, master.port, plan.database)
    return EmbeddedServer(plan.data_dir, url, master.socket_dir, master.port, version), addresses


def _url_of(socket_dir: Path, port: int, database: str) -> str:
    return f"postgresql://postgres@/{quote(database, safe='')}?host={quote(str(socket_dir))}&port={port}"


def postmaster(data_dir: Path) -> Postmaster | None:
    """The contents of postmaster.pid, or None. Lines: pid, directory, start time, port, socket directory, ..."""
    try:
        lines = (data_dir / "postmaster.pid").read_text().splitlines()
        socket_dir = Path(lines[4]) if len(lines) > 4 and lines[4] else None
        return Postmaster(int(lines[0]), int(lines[3]) if socket_dir else 0, socket_dir)
    except (FileNotFoundError, IndexError, ValueError):
        return None


def live_postmaster(data_dir: Path) -> int | None:
    """The pid of the server of `data_dir`, if its process lives."""
    master = postmaster(data_dir)
    return master.pid if master and is_running(master.pid, data_dir) else None


def is_running(pid: int, data_dir: Path) -> bool:
    """Whether `pid` is a live postmaster of `data_dir`: neither a zombie nor another process with a reused pid.

    A zombie remains if process 1 does not reap it, such as Python in a container, and to signals it looks alive.
    """
    state, name = _read_process(pid)
    if "postgres" not in name or state[:1] in {"Z", "X"}:
        return False
    with contextlib.suppress(OSError):  # root in a container may not be allowed to look; then the name must suffice
        return data_dir.samefile(f"/proc/{pid}/cwd")
    return True


def _read_process(pid: int) -> tuple[str, str]:
    """(state, name) of a process, ('', '') if there is none. States: see ps(1)."""
    if sys.platform != "linux":
        listed = subprocess.run(["/bin/ps", "-o", "stat=,comm=", "-p", str(pid)], capture_output=True, check=False)
        state, _, name = listed.stdout.decode().strip().partition(" ")
        return state, name
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return "", ""
    name, _, rest = text.partition("(")[2].rpartition(")")
    return rest.split()[0], name
