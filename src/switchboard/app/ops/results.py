"""Long results of tools are removed when no history needs them any more.

`wiring.py` gives the task to every worker, as the files are on its machine. In: where they are, and days; out: files
removed. Next: `tools/results.py`.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final
from uuid import UUID

import structlog

from switchboard.core.uuid7 import first_uuid7
from switchboard.store import history
from switchboard.store.database import Database
from switchboard.tools.results import remove_results, turns_with_results
from switchboard.tools.threads import Stop, in_thread
from switchboard.tools.workspace import Refused, meaning

log = structlog.get_logger(__name__)

_AT_ONCE: Final = 500
"""Turns of one reader whose results are removed in one run."""


async def erase_results(database: Database, results: Path, keep_days: int) -> int:
    """Remove results of turns that have ended, and are in no history, or longer ago; returns of how many turns.

    `results` has a directory for each butler, and in it one for all who read the same turns.
    """
    below = first_uuid7(datetime.now(UTC) - timedelta(days=keep_days))
    readers = await asyncio.to_thread(lambda: sorted(results.glob("*/*")))
    return sum([await _erase(database, root, below) for root in readers])


async def _erase(database: Database, root: Path, below: UUID) -> int:
    try:
        turns = await in_thread(lambda stop: turns_with_results(root, stop))
        held = await history.held(database, [turn for turn in turns if turn >= below])
        gone = [turn for turn in turns if turn not in held][:_AT_ONCE]
        return await in_thread(lambda stop: sum(_removed(root, turn, stop) for turn in gone))
    except (Refused, OSError) as error:
        why = meaning(error) if isinstance(error, OSError) else str(error)
        log.warning("old results of tools cannot be removed", directory=str(root), reason=why)
        return 0


def _removed(root: Path, turn: UUID, stop: Stop) -> bool:
    try:
        remove_results(root, turn, stop)
    except FileNotFoundError:
        return False  # another worker of this machine was faster
    except OSError as error:
        log.warning("results of a turn cannot be removed", directory=str(root), turn=str(turn), reason=meaning(error))
        return False
    return True
