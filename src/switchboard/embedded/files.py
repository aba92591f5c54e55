"""The data directory and its two lock files.

Called by `supervisor.py`. In: a `ClusterPlan`; out: a directory that is ours, and open lock files.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import stat
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final

from switchboard.domain.errors import ConfigurationError
from switchboard.embedded.binaries import UnprivilegedUser, explain
from switchboard.embedded.postmaster import POLL, ClusterPlan

MUTEX: Final = "switchboard.lock"
USERS: Final = "switchboard.users"


def is_new(data_dir: Path) -> bool:
    """Whether there is no database in it yet. Raises ConfigurationError if it cannot be inspected."""
    with disk_errors(data_dir):
        return not (data_dir / "PG_VERSION").exists()


@contextmanager
def disk_errors(data_dir: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise explain(f"cannot use the data directory {data_dir}", str(error), data_dir) from error


@contextmanager
def lock_files(plan: ClusterPlan) -> Iterator[tuple[int, int]]:
    """Prepare the data directory and open its two lock files: (mutex, users). Closing releases both locks."""
    with contextlib.ExitStack() as stack:
        with disk_errors(plan.data_dir):
            _prepare_directory(plan)
            mutex, users = _lock_file(plan, MUTEX), _lock_file(plan, USERS)
        stack.callback(os.close, mutex)
        stack.callback(os.close, users)
        yield mutex, users


def _prepare_directory(plan: ClusterPlan) -> None:
    """Create the data directory, owned by the account; parents are created if missing, never changed."""
    plan.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    names = {entry.name for entry in plan.data_dir.iterdir()}
    if not names & {MUTEX, "PG_VERSION"} and names - {"lost+found"}:
        raise ConfigurationError(
            f"{plan.data_dir} is neither empty nor a PostgreSQL data directory (it holds {min(names)!r}); "
            "use an empty or a new directory"
        )
    if "PG_VERSION" in names:
        return
    status = plan.data_dir.stat()
    if plan.account and status.st_uid != plan.account.uid:
        os.chown(plan.data_dir, plan.account.uid, plan.account.gid)
    if stat.S_IMODE(status.st_mode) != 0o700:
        plan.data_dir.chmod(0o700)


def _lock_file(plan: ClusterPlan, name: str) -> int:
    with contextlib.suppress(FileExistsError):
        return new_file(plan.data_dir / name, plan.account)
    return os.open(plan.data_dir / name, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)


def new_file(path: Path, account: UnprivilegedUser | None) -> int:
    # O_EXCL: root must not, through a planted link, give away a file that it did not create itself.
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    if account:
        os.fchown(descriptor, account.uid, account.gid)
    return descriptor


def is_last_user(users: int) -> bool:
    """Whether we are the only user. In either case our own shared lock is released."""
    try:
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@asynccontextmanager
async def hold_lock(mutex: int) -> AsyncIterator[None]:
    while True:  # polled, because a thread that blocks in flock could not be cancelled
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(mutex, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        await asyncio.sleep(POLL)
    try:
        yield
    finally:
        fcntl.flock(mutex, fcntl.LOCK_UN)
