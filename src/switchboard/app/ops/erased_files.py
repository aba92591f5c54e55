"""Removes from the disk of this worker the files of persons who were erased.

`periodic.py` gives the tasks to every worker, as orders are for all disks: a worker that was down carries out what was
ordered meanwhile. In: the directory of workspaces; out: removed files, and a record that this disk is up to date.
Next: `store/people/erased_files.py`, `results.py`.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Collection
from functools import partial
from pathlib import Path
from typing import Final
from uuid import UUID, uuid4

import structlog

from switchboard.app.ops.engines import WORKSPACES
from switchboard.app.ops.results import erase_results
from switchboard.core.turns.images import DIGITS
from switchboard.lanes.faults import point
from switchboard.ports.maintenance import MaintenanceTask
from switchboard.store.database import Database
from switchboard.store.models import history
from switchboard.store.people import erased_files
from switchboard.store.people.erased_files import FileOrder
from switchboard.tools.results import DIRECTORY
from switchboard.tools.threads import StopSignal, in_thread
from switchboard.tools.workspace import ToolRefusal, meaning, remove_older

log = structlog.get_logger(__name__)

_DISK: Final = ".disk"
"""The file with the id of the disk, which no workspace can be called."""
_AT_ONCE: Final = 500
_BEGINNING: Final = UUID(int=0)


def file_tasks(database: Database, data_dir: Path, keep_days: int) -> tuple[MaintenanceTask, ...]:
    """What every worker does about files of persons on its disk."""
    workspaces = data_dir / WORKSPACES
    return (
        MaintenanceTask(
            "erase_results", 3600.0, lambda: erase_results(database, workspaces / DIRECTORY, keep_days), local=True
        ),
        MaintenanceTask("erase_files", 10.0, lambda: carry_out_orders(database, workspaces, keep_days), local=True),
    )


async def carry_out_orders(database: Database, workspaces: Path, keep_days: int) -> int:
    """Carry out what was ordered and is not done on this disk; returns how many orders.

    Results of tools that no history has any more go, too.
    """
    if not await asyncio.to_thread(workspaces.is_dir):
        return 0
    disk = await asyncio.to_thread(_find_disk, workspaces)
    await erased_files.show_disk(database, disk, socket.gethostname())
    done = 0
    while orders := await erased_files.ordered(database, disk, _AT_ONCE):
        while await erase_results(database, workspaces / DIRECTORY, keep_days):
            pass
        awaited = await history.awaited_digests(database, _BEGINNING)
        if problem := await in_thread(partial(_remove_files, workspaces, orders, awaited)):
            log.warning("files of an erased person cannot be removed", directory=str(workspaces), reason=problem)
            await erased_files.note_failure(database, disk, problem)
            break
        point("erased_on_disk")
        await erased_files.carried_out(database, disk, orders[-1].ordered_at)
        done += len(orders)
    return done


def _find_disk(workspaces: Path) -> UUID:
    """The id of the disk, made when it is needed for the first time."""
    file = workspaces / _DISK
    if (known := _read_disk(file)) is not None:
        return known
    made = workspaces / f"{_DISK}-{uuid4()}"
    made.write_text(f"{(disk := uuid4())}\n", encoding="ascii")
    made.chmod(0o600)
    try:
        os.link(made, file)
    except FileExistsError:
        if (known := _read_disk(file)) is not None:  # another worker on this machine was faster
            return known
        made.replace(file)  # it was being written when the power failed
    finally:
        made.unlink(missing_ok=True)
    return disk


def _read_disk(file: Path) -> UUID | None:
    try:
        return UUID(file.read_text(encoding="ascii").strip())
    except (FileNotFoundError, ValueError):
        return None


def _remove_files(workspaces: Path, orders: Collection[FileOrder], awaited: Collection[str], stop: StopSignal) -> str:
    """Remove them; returns what stands in the way, or nothing."""
    for order in orders:
        before = order.ordered_at.timestamp()
        for place in sorted(workspaces.glob(order.pattern)):
            if _is_awaited(place.relative_to(workspaces).parts, awaited):
                continue
            try:
                remove_older(place.parent, place.name, before, stop)
            except FileNotFoundError:
                continue  # another worker on this machine was faster
            except (ToolRefusal, OSError) as error:
                return meaning(error) if isinstance(error, OSError) else str(error)
    return ""


def _is_awaited(parts: tuple[str, ...], awaited: Collection[str]) -> bool:
    """Whether a turn needs it that has not ended, or may run again."""
    return parts[0] == DIRECTORY and parts[-1][:DIGITS] in awaited
