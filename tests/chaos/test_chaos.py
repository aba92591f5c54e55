"""A short chaos run, with everything that the long one has: `make chaos` is the long one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp

import pytest

from tests.chaos.run import Plan, run


@pytest.fixture
def directory() -> Iterator[Path]:
    """Not tmp_path: as root the database runs as a plain user, who must get through."""
    place = Path(mkdtemp(prefix="switchboard-chaos-"))
    place.chmod(0o711)
    yield place
    rmtree(place)


@pytest.mark.slow
async def test_kills_a_database_crash_and_a_zombie_lose_double_and_reorder_nothing(directory: Path) -> None:
    report = await run(Plan(messages=500, conversations=40, kills=4, seed=7), directory)
    assert report.clean, report
    assert report.answered == 500
