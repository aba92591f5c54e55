"""Measures the memory for a large file on its way from a platform through a connector and the server to a butler.

Called by `switchboard bench files`. Server and connector are separate processes; their peaks are compared with those
after a small file. Next: `file_connector.py`.
"""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import PIPE, Process
from hashlib import sha256
from time import perf_counter
from typing import Final

import httpx2
from msgspec import Struct

from switchboard.bench import lab
from switchboard.bench.file_connector import ENDPOINT, TOKEN, pieces
from switchboard.domain.errors import SwitchboardError
from switchboard.domain.json_values import JsonObject

_SMALL: Final = 1_000_000
_WITHIN_S: Final = 120.0


class FileTransferResult(Struct, frozen=True):
    """For a file of `size_mb`: growth of peak memory in 10^6 bytes; None if the system does not report it."""

    size_mb: float
    in_s: float
    out_s: float
    connector_mb: float
    server_in_mb: float | None
    server_out_mb: float | None


async def measure(size_mb: float) -> FileTransferResult:
    """Send one file in and out, after a small one. Raises SwitchboardError if it does not arrive as it was sent."""
    size = round(size_mb * 1e6)
    limit = {"SWITCHBOARD_BLOBS__FILE_BYTES": str(2 * size)}
    with lab.home() as place:
        async with lab.switchboard(place, "up", more=limit) as server, _client(server.url, server.token) as operator:
            connector = {"name": "in", "role": "connector", "channel": "api", "endpoint": ENDPOINT}
            tokens = [
                await _token(operator, about)
                for about in (connector, {"name": "out", "role": "agent", "system_id": "System1/echo"})
            ]
            process = await _connector(server.url, tokens[0], size)
            try:
                async with _client(server.url, tokens[1]) as butler:
                    before = await _send_next_file(process)
                    await _check_received_file(operator, butler, _SMALL, 1)
                    server_before, began = lab.peak_mb(server.pid), perf_counter()
                    after = await _send_next_file(process)
                    in_s, server_in, began = perf_counter() - began, lab.peak_mb(server.pid), perf_counter()
                    await _check_received_file(operator, butler, size, 2)
                    out_s, server_out = perf_counter() - began, lab.peak_mb(server.pid)
            finally:
                if process.returncode is None:
                    process.kill()
                await process.wait()
    return FileTransferResult(
        size_mb, in_s, out_s, after - before, lab.growth(server_before, server_in), lab.growth(server_in, server_out)
    )


def _client(url: str, token: str) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(
        base_url=url, headers={"authorization": f"Bearer {token}"}, timeout=_WITHIN_S, trust_env=False
    )


async def _token(operator: httpx2.AsyncClient, about: JsonObject) -> str:
    answer = await operator.post("/v1/tokens", json=about)
    answer.raise_for_status()
    return str(answer.json()["token"])


async def _connector(url: str, token: str, size: int) -> Process:
    arguments = ("-m", "switchboard.bench.file_connector", url, str(_SMALL), str(size))
    return await asyncio.create_subprocess_exec(
        sys.executable, *arguments, env={**os.environ, TOKEN: token}, stdin=PIPE, stdout=PIPE
    )


async def _send_next_file(process: Process) -> float:
    """Send the next file; returns the connector's peak memory after that."""
    if process.stdin is None or process.stdout is None:
        raise TypeError("the connector has pipes")
    process.stdin.write(b"\n")
    line = await asyncio.wait_for(process.stdout.readline(), _WITHIN_S)
    if not line:
        raise SwitchboardError("the connector has ended")
    return float(line)


async def _check_received_file(operator: httpx2.AsyncClient, butler: httpx2.AsyncClient, size: int, count: int) -> None:
    """Let the butler read the file of the newest message, and check that it is what was sent."""
    found = (await operator.get("/v1/messages")).json()["messages"]
    message = (await operator.get(f"/v1/messages/{found[0]['request_id']}")).json()
    [attachment] = message["envelope"]["payload"]["attachments"]
    name = str(attachment.get("storage_ref", "")).removeprefix("blob:")
    digest = sha256()
    async with butler.stream("GET", f"/v1/blobs/{name}") as answer:
        async for piece in answer.aiter_bytes():
            digest.update(piece)
    expected = sha256()
    async for piece in pieces(size):
        expected.update(piece)
    if len(found) != count or digest.digest() != expected.digest():
        raise SwitchboardError(f"the file arrived otherwise than it was sent: {attachment}")
