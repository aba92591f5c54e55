"""nginx for tests: in front of a server, with TLS, on loopback; it forgets everything."""

from __future__ import annotations

import shutil
import signal
import socket
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pytest

from tests.ports import free_port

NAME: Final = "hooks.example"
"""The name in its certificate."""
_CONFIG: Final = """
daemon off;
master_process off;
error_log {home}/error.log warn;
pid {home}/pid;
events {{ worker_connections 64; }}
http {{
    access_log off;
    client_body_temp_path {home}/body;
    proxy_temp_path {home}/proxy;
    fastcgi_temp_path {home}/fastcgi;
    uwsgi_temp_path {home}/uwsgi;
    scgi_temp_path {home}/scgi;
    server {{
        listen 127.0.0.1:{port} ssl;
        ssl_certificate {home}/cert.pem;
        ssl_certificate_key {home}/key.pem;
{rules}
    }}
}}
"""


@dataclass(frozen=True)
class Nginx:
    """It runs; `tls` trusts its certificate."""

    port: int
    home: Path

    @property
    def tls(self) -> ssl.SSLContext:
        authority = self.home / "ca.pem"
        return ssl.create_default_context(cafile=authority if authority.exists() else self.home / "cert.pem")

    @property
    def url(self) -> str:
        return f"https://{NAME}:{self.port}"


@contextmanager
def nginx(rules: str, certificate: Path | None = None) -> Iterator[Nginx]:
    """With these rules in its `server`, until the end; skips where it is not installed.

    `certificate`: a directory with `cert.pem`, `key.pem` and the `ca.pem` that signed it; by default one is made.
    """
    program, openssl = shutil.which("nginx") or shutil.which("/usr/sbin/nginx"), shutil.which("openssl")
    if program is None or openssl is None:
        pytest.skip("nginx or openssl is not installed (Debian: nginx-light, openssl)")
    with TemporaryDirectory() as directory:
        home = Path(directory)
        if certificate is None:
            _make_certificate(openssl, home)
        else:
            shutil.copytree(certificate, home, dirs_exist_ok=True)
        port = free_port()
        (home / "conf").write_text(_CONFIG.format(home=home, port=port, rules=rules), encoding="utf-8")
        process = subprocess.Popen([program, "-p", home, "-e", home / "error.log", "-c", home / "conf"])
        try:
            _once_up(process, port, home)
            yield Nginx(port, home)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()


def _make_certificate(openssl: str, home: Path) -> None:
    asked = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    asked += ["-subj", f"/CN={NAME}", "-addext", f"subjectAltName=DNS:{NAME}"]
    subprocess.run(
        [openssl, *asked, "-keyout", home / "key.pem", "-out", home / "cert.pem"], check=True, capture_output=True
    )


def _once_up(process: subprocess.Popen[bytes], port: int, home: Path) -> None:
    while True:
        assert process.poll() is None, (home / "error.log").read_text(encoding="utf-8")
        with socket.socket() as one:
            if one.connect_ex(("127.0.0.1", port)) == 0:
                return
