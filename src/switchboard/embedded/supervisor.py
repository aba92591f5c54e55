"""The embedded PostgreSQL: from an empty directory to a server that answers, stopped again by its last user.

Called by the composition root when no SWITCHBOARD_DATABASE_URL is set, and by tests. In: a data directory (it *is* the
PGDATA, so every PostgreSQL tool works on it); out: an `EmbeddedServer` with a URL. Next: `store/database.py`.

Two lock files in the data directory, both `flock`, so that the kernel tidies up after a `kill -9`: `switchboard.lock`
is held by a process that initialises, starts or stops; `switchboard.users` is held shared by each user as long as it
uses the server. The postmaster runs in its own session and survives us; the next process attaches to it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from switchboard.domain.errors import ConfigurationError
from switchboard.embedded.binaries import account_for, require_open
from switchboard.embedded.files import hold_lock, is_last_user, is_new, lock_files
from switchboard.embedded.launch import create_and_launch, remove_socket_dir
from switchboard.embedded.postmaster import POLL, ClusterPlan, EmbeddedServer, live_postmaster, probe, stop


@dataclass(slots=True)
class _Use:
    """A data directory that this process uses, by its lock files; `started` once its server answers."""

    data_dir: Path
    mutex: int
    users: int
    started: bool = False


_USES: list[_Use] = []
"""The servers that this process uses now; needed by a process that exits immediately."""


@contextmanager
def _register_use(use: _Use) -> Iterator[_Use]:
    _USES.append(use)
    try:
        yield use
    finally:
        _USES.remove(use)


@asynccontextmanager
async def embedded_postgres(
    data_dir: Path,
    *,
    binaries: Path | None = None,
    settings: Mapping[str, str] = {},
    listen: tuple[str, int] | None = None,
    database: str = "switchboard",
) -> AsyncIterator[EmbeddedServer]:
    """Use the server of `data_dir`: create, start, recover or attach to it; on leaving, the last user stops it.

    `settings` are PostgreSQL settings as text; they count when this call starts the server, not when it attaches.
    `listen` = (address, port) opens TCP, by password (scram) only. `database` is created if it does not exist.
    A server that crashed meanwhile is restarted by entering again, even during the first use.
    Raises ConfigurationError with the problem and the fix, Unavailable if there is no answer in 600 s.
    """
    place = _absolute_path(data_dir)
    addresses, port = listen or ("", 5432)
    plan = ClusterPlan(place, binaries, settings, addresses, port, database, account_for(place))
    if is_new(place):
        await require_open(place, plan.account, "choose another data directory, such as /var/lib/switchboard")
    with lock_files(plan) as (mutex, users), _register_use(_Use(place, mutex, users)) as use:
        async with hold_lock(mutex):
            alone = is_last_user(users)
            fcntl.flock(users, fcntl.LOCK_SH)
            server = await _attach_to_server(plan, alone=alone) or await create_and_launch(plan, mutex)
        use.started = True
        try:
            yield server
        finally:
            async with hold_lock(mutex):
                if is_last_user(users):
                    await stop(place)
                    remove_socket_dir(server)


def starting() -> bool:
    """Whether this process is starting a server: only a cancelled start also stops the server it has begun."""
    return any(not use.started for use in _USES)


def tell_to_stop() -> None:
    """For a process that exits immediately: tell the servers that only it uses to stop, without waiting."""
    for use in _USES:
        if _take_lock(use.mutex) and is_last_user(use.users) and (pid := live_postmaster(use.data_dir)) is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGINT)


def _take_lock(mutex: int) -> bool:
    """Whether we got the lock; a process that holds it longer is starting or stopping, and takes care of the server."""
    for _ in range(50):
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(mutex, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        time.sleep(POLL)
    return False


def _absolute_path(data_dir: Path) -> Path:
    return data_dir.resolve()


async def _attach_to_server(plan: ClusterPlan, *, alone: bool) -> EmbeddedServer | None:
    """The running server, if it listens as asked; if not and unused, it is stopped, to be started again."""
    server, addresses = await probe(plan)
    if server is None or (addresses, server.port) == (plan.addresses, plan.port):
        return server
    if alone:
        await stop(plan.data_dir)
        return None
    if not plan.addresses:
        return server
    raise ConfigurationError(
        f"the PostgreSQL server of {plan.data_dir} is in use and does not listen on {plan.addresses}:{plan.port}; "
        "use the same address everywhere, or stop the others first"
    )
