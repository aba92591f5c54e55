"""What a service manager hears of a real `switchboard up`: ready, alive, stopping; with a real socket, as systemd's."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx2
import pytest

from tests.places import passable
from tests.processes import DEADLINE, environment, running, switchboard

pytestmark = pytest.mark.slow


@pytest.fixture
def place() -> Iterator[Path]:
    with passable() as directory:
        yield directory


@pytest.mark.parametrize("abstract", [False, True], ids=["file", "abstract"])
def test_ready_comes_when_messages_are_taken_and_beats_until_the_end(place: Path, abstract: bool) -> None:
    name = f"@switchboard-test-{os.getpid()}" if abstract else str(place / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(name.replace("@", "\0"))
        manager.settimeout(DEADLINE)
        env = environment(place / "data", LOG_LEVEL="error") | {"NOTIFY_SOCKET": name}
        watched = env | {"WATCHDOG_USEC": "1000000"}
        with running(env if abstract else watched, "up", "--workers", "1") as server:
            assert manager.recv(100) == b"READY=1"
            assert httpx2.get(f"{server.said['url']}/health").status_code == 200
            assert switchboard(server.environment, "send", "hello", "--json").returncode == 0
            if not abstract:
                assert {manager.recv(100) for _ in range(3)} == {b"WATCHDOG=1"}
            server.process.terminate()
            heard = [manager.recv(100)]
            while heard[-1] == b"WATCHDOG=1":
                heard.append(manager.recv(100))
            assert heard[-1] == b"STOPPING=1"
            assert server.process.wait(DEADLINE) == 0
        manager.setblocking(False)
        with pytest.raises(BlockingIOError):  # neither the worker nor PostgreSQL has said anything
            manager.recv(100)


@pytest.mark.parametrize("stopped", ["our event loop", "the database"])
def test_no_beat_without_event_loop_or_database(place: Path, stopped: str) -> None:
    """Both are halted, not ended: all connections stay open."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(place / "notify"))
        manager.settimeout(DEADLINE)
        more = {"NOTIFY_SOCKET": str(place / "notify"), "WATCHDOG_USEC": "800000"}
        with running(environment(place / "data", LOG_LEVEL="critical") | more, "up") as server:
            assert manager.recv(100) == b"READY=1"
            assert manager.recv(100) == b"WATCHDOG=1"
            halted = [server.process.pid] if stopped == "our event loop" else _database(place)
            _signal(halted, signal.SIGSTOP)
            try:
                assert _is_silent(manager)
            finally:
                _signal(halted, signal.SIGCONT)
            manager.settimeout(DEADLINE)
            assert manager.recv(100) == b"WATCHDOG=1"


def _database(place: Path) -> list[int]:
    """The processes of the embedded database: the first, then those that it has made."""
    first = int(next(place.rglob("postmaster.pid")).read_text().split()[0])
    return [first, *map(int, Path(f"/proc/{first}/task/{first}/children").read_text().split())]


def _signal(processes: list[int], number: signal.Signals) -> None:
    for process in processes:
        with suppress(ProcessLookupError):
            os.kill(process, number)


def _is_silent(manager: socket.socket) -> bool:
    """Whether there is a time of five beats without one; those that were under way come first."""
    manager.settimeout(1.0)
    for _ in range(20):
        try:
            manager.recv(100)
        except TimeoutError:
            return True
    return False
