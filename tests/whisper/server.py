"""Starts Whisper's server, and ends it; and speaks. Called by the tests and by `report.py`."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import httpx

from tests.local_model.server import free_port
from tests.whisper.places import MODEL, PYTHON, SAY, SERVER

_LOADING_S: Final = 120.0


@contextmanager
def real_whisper(log: Path) -> Iterator[str]:
    """The address of its API, `http://127.0.0.1:PORT/v1`, until the end of the block; its model is named `MODEL`.

    Raises TimeoutError if the server does not become ready, and says where its log is.
    """
    port = free_port()
    command = [str(SERVER), str(MODEL), "--host", "127.0.0.1", "--port", str(port)]
    env = {**os.environ, "HF_HUB_OFFLINE": "1"}
    with log.open("w") as out, subprocess.Popen(command, stdout=out, stderr=out, env=env) as process:
        try:
            _wait_until_ready(f"http://127.0.0.1:{port}/", process, log)
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()


def speech(voice: str, text: str, directory: Path) -> bytes:
    """The text as a spoken file; empty: five seconds of silence."""
    file = directory / "spoken.oga"
    subprocess.run([str(PYTHON), str(SAY), voice, text, str(file)], check=True)
    return file.read_bytes()


def _wait_until_ready(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    """The server answers when its model is loaded, whatever it is asked."""
    end = time.monotonic() + _LOADING_S
    while time.monotonic() < end and process.poll() is None:
        try:
            httpx.get(url, timeout=5)
        except httpx.TransportError:
            time.sleep(0.2)
        else:
            return
    raise TimeoutError(f"faster-whisper-server did not become ready; see {log}")
