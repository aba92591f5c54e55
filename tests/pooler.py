"""A real PgBouncer in transaction mode before a PostgreSQL, for the tests of what rides on a session.

`make pgbouncer` builds a release that follows prepared statements (1.21 or newer); Debian's may be older, and is used
to show how one is refused.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs, quote, urlsplit

import pytest

from tests.ports import free_port
from tests.waiting import SOON

BUILT: Final = Path(__file__).parent / "pgbouncer" / "bin" / "pgbouncer"
SYSTEM: Final = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")


def new_pgbouncer() -> Path:
    """The program that `make pgbouncer` built; skips the test where it was not."""
    if not BUILT.exists():
        pytest.skip("there is no PgBouncer 1.21 or newer; `make pgbouncer` builds one")
    return BUILT


def old_pgbouncer() -> Path:
    """Debian's, if it is older than 1.21; skips the test where there is none."""
    if SYSTEM is None:
        pytest.skip("there is no PgBouncer of the system")
    told = subprocess.run([SYSTEM, "--version"], capture_output=True, text=True, check=True).stdout
    if tuple(map(int, told.split()[1].split("."))) >= (1, 21, 0):
        pytest.skip(f"the system's PgBouncer follows prepared statements: {told.splitlines()[0]}")
    return Path(SYSTEM)


@contextmanager
def pooler(program: Path, url: str, place: Path, *, size: int = 4, **settings: str) -> Iterator[str]:
    """Run `program` before the database of `url`; yields the URL of the same database through it."""
    parts, port = urlsplit(url), free_port()
    query = parse_qs(parts.query)
    given = {
        "listen_addr": "127.0.0.1",
        "listen_port": str(port),
        "unix_socket_dir": "",
        "auth_type": "any",
        "pool_mode": "transaction",
        "default_pool_size": str(size),
        "server_login_retry": "1",  # by default all wait for 15 s when the server was away for a moment
        **settings,
    }
    host, server_port = query["host"][0], query.get("port", ["5432"])[0]
    server = f"host={host} port={server_port} user={parts.username}"
    config = place / "pgbouncer.ini"
    lines = ["[databases]", f"* = {server}", "[pgbouncer]", *(f"{key} = {value}" for key, value in given.items())]
    config.write_text("\n".join(lines) + "\n", encoding="utf-8")
    # It refuses to run as root, and reads its settings before it changes to the user: that of the server.
    socket_file = Path(host, f".s.PGSQL.{server_port}")
    as_user = ["-u", socket_file.owner()] if os.geteuid() == 0 else []
    with (place / "pgbouncer.log").open("wb") as log:
        process = subprocess.Popen([program, "-q", *as_user, config], stdout=log, stderr=log)
    try:
        through = f"postgresql://{parts.username}@127.0.0.1:{port}{quote(parts.path)}"
        _wait_for(port, process)
        yield through
    finally:
        process.kill()
        process.wait()


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + SOON
    while not _answers(port):
        assert process.poll() is None, f"{process.args!r} ended with {process.returncode}"
        assert time.monotonic() < deadline, "PgBouncer does not answer"
        time.sleep(0.02)


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
