"""PostgreSQL's own programs are run to their end, also where what they print cannot be kept."""

from __future__ import annotations

import asyncio
import subprocess

import pytest

from switchboard.app.dumps import end_program


async def test_a_program_is_ended_when_what_it_prints_cannot_be_kept() -> None:
    """One that prints on while it is told to end: nobody wants the rest, but it does not end before it is read."""
    process = await asyncio.create_subprocess_exec(
        *(
            "sh",
            "-c",
            "trap 'head -c 1000000 /dev/zero; exit 1' TERM; head -c 100000 /dev/zero; while :; do sleep 0.01; done",
        ),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )

    def fill_the_disk(_: bytes) -> None:
        raise OSError("File too large")

    async with asyncio.timeout(20):
        with pytest.raises(OSError, match="File too large"):
            await end_program(process, "sh", fill_the_disk)
    assert process.returncode == 1
