"""Random programs against the walls of memory, of a few hundred steps; `python -m tests.memory_walls` runs more."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.memory_walls.world import run_program
from tests.width import wide

SEEN = ("asked", "read", "searched", "in turns", "compaction", "consolidation", "learned", "probed", "called", "erased")
"""Where canaries must have been, or a program has shown nothing."""


@pytest.mark.parametrize("seed", range(wide(4, 1)))
async def test_nobody_is_told_what_they_may_not_hear(database_url: str, tmp_path: Path, seed: int) -> None:
    world = await run_program(database_url, tmp_path, seed, wide(1500, 350))
    assert [place for place in SEEN if not world.sightings[place]] == []
