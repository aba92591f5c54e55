"""Starts llama.cpp's server with the local model, and ends it. Called by the tests and by `report.py`."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import httpx

from tests.local_model.places import MODEL, SERVER

CONTEXT: Final = 8192
_LOADING: Final = 120.0


@contextmanager
def local_model(log: Path) -> Iterator[str]:
    """The address of the model's API, `http://127.0.0.1:PORT/v1`, until the end of the block.

    Raises TimeoutError if the server does not become ready, and says where its log is.
    """
    port = free_port()
    command = [str(SERVER), "-m", str(MODEL), "--host", "127.0.0.1", "--port", str(port)]
    command += ["-c", str(CONTEXT), "-np", "1", "--jinja", "-t", str(min(os.cpu_count() or 1, 2))]
    with log.open("w") as out, subprocess.Popen(command, stdout=out, stderr=out) as process:
        try:
            _wait_until_ready(f"http://127.0.0.1:{port}/health", process, log)
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def _wait_until_ready(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    """The server answers while it loads the model, with 503; before that, not at all."""
    end = time.monotonic() + _LOADING
    while time.monotonic() < end and process.poll() is None:
        try:
            if httpx.get(url, timeout=5).status_code == httpx.codes.OK:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.2)
    raise TimeoutError(f"llama-server did not become ready; see {log}")
