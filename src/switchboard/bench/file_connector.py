"""A connector in a separate process, on whose platform somebody sends a file of each given size.

`bench/files.py` starts it as `python -m switchboard.bench.file_connector URL SIZE…`, with the token in the environment.
Each line on stdin triggers the next file; when its message is accepted, the peak memory of this process is printed, in
10^6 bytes.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Sequence

import httpx2
from msgspec.structs import replace

from switchboard.app.logs import set_up_logs
from switchboard.bench import lab
from switchboard.connectors.kernel.runner import Runner
from switchboard.ports.connector import Identity
from switchboard.testing.connectors.platform import CAPABILITIES, ScriptedPlatform

TOKEN = "BENCH_TOKEN"  # noqa: S105  the name of a variable
ENDPOINT = "scripted:1"
PIECE_BYTES = 65_536


def pieces(size: int) -> AsyncIterator[bytes]:
    """A file of `size` bytes, piece by piece; each file is different."""

    async def generate() -> AsyncIterator[bytes]:
        for start in range(0, size, PIECE_BYTES):
            yield (b"%015d\n" % start * (PIECE_BYTES // 16))[: size - start]

    return generate()


async def serve(url: str, token: str, sizes: Sequence[int]) -> None:
    """Run until all files are sent."""
    platform = ScriptedPlatform(replace(CAPABILITIES, max_file_in=max(sizes)))
    platform.fetching = lambda number: pieces(sizes[number // 100 - 1])
    headers = {"authorization": f"Bearer {token}"}
    async with httpx2.AsyncClient(base_url=url, headers=headers, trust_env=False) as http:

        async def connect(_: Identity) -> httpx2.AsyncClient:
            return http

        stop = asyncio.Event()
        task = asyncio.create_task(Runner(platform.configured, connect, asyncio.get_running_loop().time).run(stop))
        for number in range(1, len(sizes) + 1):
            await asyncio.to_thread(sys.stdin.readline)
            platform.add("t", f"file {number}", files=[b""])
            while platform.confirmed < number:
                await asyncio.sleep(0.02)
            sys.stdout.write(f"{lab.peak_mb(os.getpid()) or 0}\n")
            sys.stdout.flush()
        stop.set()
        await task


if __name__ == "__main__":
    set_up_logs("error")
    asyncio.run(serve(sys.argv[1], os.environ[TOKEN], [int(size) for size in sys.argv[2:]]))
