"""Removes long results of tools that no history needs any more, and images that no turn needs.

`erased_files.py` gives the task to every worker, as the files are on its machine. In: their directories, and days; out:
removed files. Next: `tools/results.py` and `tools/inbox.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final
from uuid import UUID

import structlog

from switchboard.core.uuid7 import first_uuid7
from switchboard.store.database import Database
from switchboard.store.memory import history
from switchboard.tools.inbox import KeptFiles, remove_images
from switchboard.tools.results import remove_if_empty, remove_results, turns_with_results
from switchboard.tools.threads import StopSignal, in_thread
from switchboard.tools.workspace import ToolRefusal, meaning

log = structlog.get_logger(__name__)

_AT_ONCE: Final = 500
"""Turns of one reader whose results are removed in one run."""
_SURELY_STORED: Final = timedelta(hours=1)
"""An image is written before its message is stored."""


async def erase_results(database: Database, results: Path, keep_days: int) -> int:
    """Remove results of ended turns that are in no history, or are too old; returns of how many turns.

    `results` has a directory for each butler, and in it one for all who read the same turns. Their images go with the
    turns that show them.
    """
    now = datetime.now(UTC)
    oldest = now - timedelta(days=keep_days)
    below, recent = first_uuid7(oldest), now - _SURELY_STORED
    readers = await asyncio.to_thread(lambda: sorted(results.glob("*/*")))
    names = await history.awaited_files(database, below) if readers else set()
    wanted = KeptFiles(names, oldest.timestamp(), recent.timestamp())
    return sum([await _erase_results(database, root, below, wanted) for root in readers])


async def _erase_results(database: Database, root: Path, below: UUID, wanted: KeptFiles) -> int:
    try:
        turns = await in_thread(lambda stop: turns_with_results(root, stop))
        held = await history.held(database, [turn for turn in turns if turn >= below]) if turns else set()
        gone = [turn for turn in turns if turn not in held][:_AT_ONCE]
        return await in_thread(lambda stop: _clean_directory(root, gone, wanted, stop))
    except (ToolRefusal, OSError) as error:
        why = meaning(error) if isinstance(error, OSError) else str(error)
        log.warning("old results of tools cannot be removed", directory=str(root), reason=why)
        return 0


def _clean_directory(root: Path, gone: Sequence[UUID], wanted: KeptFiles, stop: StopSignal) -> int:
    removed = sum(_remove_turn(root, turn, stop) for turn in gone)
    with suppress(FileNotFoundError):  # another worker on this machine was faster
        remove_images(root, wanted, stop)
    remove_if_empty(root)
    return removed


def _remove_turn(root: Path, turn: UUID, stop: StopSignal) -> bool:
    try:
        remove_results(root, turn, stop)
    except FileNotFoundError:
        return False  # another worker on this machine was faster
    except OSError as error:
        log.warning("results of a turn cannot be removed", directory=str(root), turn=str(turn), reason=meaning(error))
        return False
    return True
