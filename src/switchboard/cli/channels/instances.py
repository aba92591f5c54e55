"""The identity of a connector at the server: the same instance as its previous process, once that is dead.

`account.py` holds it while it serves an account. A lock of the file dies with its process, however that ends; so the
process that gets the lock need not wait until its predecessor's lease expires. Next: `store/connectors/accounts.py`.
"""

from __future__ import annotations

import fcntl
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from msgspec import Struct


class Instance(Struct, frozen=True):
    """An id that no other running process has; `restarted`: its previous owner is dead."""

    instance_id: str
    restarted: bool = False


@contextmanager
def instance_of(file: Path) -> Iterator[Instance]:
    """The id in the file, or a new one if a running process has it. Raises OSError."""
    file.parent.mkdir(mode=0o700, exist_ok=True)
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        yield _read_instance(descriptor) if _try_lock(descriptor) else Instance(str(uuid4()))
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    with suppress(BlockingIOError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


def _read_instance(descriptor: int) -> Instance:
    """Only for this machine: locks of a shared file system may be invisible to other machines."""
    instance_id, _, machine = os.pread(descriptor, 1000, 0).decode(errors="replace").strip().partition(" ")
    if instance_id and machine == platform.node():
        return Instance(instance_id, restarted=True)
    made = Instance(str(uuid4()))
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{made.instance_id} {platform.node()}\n".encode(), 0)
    return made
