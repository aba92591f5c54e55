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
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final
from uuid import UUID, uuid4

import structlog
from msgspec import Struct

from switchboard.app.ops.engines import WORKSPACES
from switchboard.app.ops.results import erase_results
from switchboard.core.turns.images import DIGITS
from switchboard.lanes.faults import point
from switchboard.ports.maintenance import MaintenanceTask
from switchboard.store.database import Database
from switchboard.store.memory import history
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
_NEVER: Final = datetime(1970, 1, 1, tzinfo=UTC)


def file_tasks(database: Database, data_dir: Path, keep_days: int) -> tuple[MaintenanceTask, ...]:
    """What every worker does about files of persons on its disk."""
    workspaces = data_dir / WORKSPACES
    return (
        MaintenanceTask(
            "erase_results", 3600.0, lambda: erase_results(database, workspaces / DIRECTORY, keep_days), local=True
        ),
        MaintenanceTask("erase_files", 10.0, lambda: carry_out_orders(database, workspaces, keep_days), local=True),
    )


class _Removal(Struct, frozen=True):
    """What became of orders: how many were carried out, and what stands in the way of the first that was not."""

    done: int
    problem: str | None = None
    up_to: datetime | None = None
    """All orders until then are carried out."""


async def carry_out_orders(database: Database, workspaces: Path, keep_days: int) -> int:
    """Carry out what was ordered and is not done on this disk; returns how many orders.

    One that cannot be carried out does not hold up the others. It is tried again each time, and those after it, too.
    Results of tools that no history has any more go, too.
    """
    if not await asyncio.to_thread(workspaces.is_dir):
        return 0
    disk = await asyncio.to_thread(_find_disk, workspaces)
    await erased_files.show_disk(database, disk, socket.gethostname())
    done, problem, after = 0, None, _NEVER
    while orders := await erased_files.ordered(database, disk, after, _AT_ONCE):
        while await erase_results(database, workspaces / DIRECTORY, keep_days):
            pass
        awaited = await history.awaited_digests(database, _BEGINNING)
        removal = await in_thread(partial(_remove_files, workspaces, orders, awaited))
        point("erased_on_disk")
        if problem is None and removal.up_to is not None:
            await erased_files.carried_out(database, disk, removal.up_to)
        problem = problem or removal.problem
        done += removal.done
        after = orders[-1].ordered_at
    if await erased_files.note_problem(database, disk, problem) and problem is not None:
        log.warning("files of an erased person cannot be removed", directory=str(workspaces), reason=problem)
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


def _remove_files(
    workspaces: Path, orders: Collection[FileOrder], awaited: Collection[str], stop: StopSignal
) -> _Removal:
    done, problem, up_to = 0, None, None
    for order in orders:
        found = _remove_ordered(workspaces, order, awaited, stop)
        problem = problem or found
        done += found is None
        up_to = order.ordered_at if problem is None else up_to
    return _Removal(done, problem, up_to)


def _remove_ordered(workspaces: Path, order: FileOrder, awaited: Collection[str], stop: StopSignal) -> str | None:
    """Remove all that can be; returns what stands in the way of the first place where it cannot."""
    problem, before = None, order.ordered_at.timestamp()
    for place in sorted(workspaces.glob(order.pattern)):
        if _is_awaited(place.relative_to(workspaces).parts, awaited):
            continue
        try:
            remove_older(place.parent, place.name, before, stop)
        except FileNotFoundError:
            continue  # another worker on this machine was faster
        except (ToolRefusal, OSError) as error:
            problem = problem or (meaning(error) if isinstance(error, OSError) else str(error))
    return problem


def _is_awaited(parts: tuple[str, ...], awaited: Collection[str]) -> bool:
    """Whether a turn needs it that has not ended, or may run again."""
    return parts[0] == DIRECTORY and parts[-1][:DIGITS] in awaited
