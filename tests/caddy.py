"""Caddy for tests: in front of a server, with TLS, on loopback; it forgets everything."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pytest

from tests.nginx import Nginx
from tests.ports import free_port

_CONFIG: Final = """
{{
    admin off
    auto_https disable_redirects
    storage file_system {home}/storage
}}
{site}
"""


@contextmanager
def caddy(site: str, name: str, certificate: Path) -> Iterator[Nginx]:
    """With this site, called `name`, on a free port, until the end; skips where it is not installed."""
    program = shutil.which("caddy")
    if program is None:
        pytest.skip("caddy is not installed (Debian: caddy)")
    with TemporaryDirectory() as directory:
        home, port = Path(directory), free_port()
        shutil.copytree(certificate, home, dirs_exist_ok=True)
        moved = site.replace(f"{name} {{", f"https://{name}:{port} {{\n    bind 127.0.0.1")
        moved = moved.replace("/etc/ssl/switchboard", str(home))
        (home / "Caddyfile").write_text(_CONFIG.format(home=home, site=moved), encoding="utf-8")
        with (home / "log").open("wb") as log:
            process = subprocess.Popen(
                [program, "run", "--config", home / "Caddyfile", "--adapter", "caddyfile"],
                env={**os.environ, "HOME": directory},
                stderr=log,
            )
        try:
            _wait_until_up(process, port, home)
            yield Nginx(port, home)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()


def _wait_until_up(process: subprocess.Popen[bytes], port: int, home: Path) -> None:
    """Until its handshake succeeds: it listens before it has its certificate."""
    while True:
        assert process.poll() is None, (home / "log").read_text(encoding="utf-8")
        try:
            with socket.create_connection(("127.0.0.1", port)) as plain:
                context = ssl.create_default_context(cafile=home / "ca.pem")
                context.wrap_socket(plain, server_hostname="switchboard.example.org").close()
                return
        except OSError:
            continue
