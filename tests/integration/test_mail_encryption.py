"""A mail server that cannot be reached over TLS is named, with the setting that is to change."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread

import pytest

from switchboard.connectors.email.submission import try_sign_in
from switchboard.transport.mail_servers.mailbox import Mailbox, SignIn
from switchboard.transport.mail_servers.server import Server
from tests.mail_servers import certify

SIGN_IN = SignIn("me@example.org", "secret")


def by_imap(server: Server) -> None:
    Mailbox(server, SIGN_IN)


def by_smtp(server: Server) -> None:
    try_sign_in(server, SIGN_IN, 20)


@contextmanager
def listening(talk: Callable[[socket.socket], None]) -> Iterator[int]:
    """A server that talks to one client after the other; its port."""

    def run() -> None:
        with suppress(OSError):  # the test has ended
            while True:
                client, _ = server.accept()
                with client, suppress(OSError):
                    talk(client)

    with socket.create_server(("127.0.0.2", 0)) as server:
        thread = Thread(target=run, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
    thread.join()


@pytest.mark.parametrize(("table", "connect"), [("imap", by_imap), ("smtp", by_smtp)])
def test_what_is_wrong_with_tls_is_said(
    table: str, connect: Callable[[Server], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certify(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    with listening(lambda client: context.wrap_socket(client, server_side=True).close()) as port:
        server = Server(host="127.0.0.2", port=port)
        with pytest.raises(OSError, match=r"certificate verify failed: self.signed certificate") as told:
            connect(server)
        assert (f"127.0.0.2:{port}" in str(told.value), f"{table}.host must" in str(told.value)) == (True, True)
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "cert.pem"))
        with pytest.raises(OSError, match=rf"127.0.0.2.*{table}.host must be a name in the certificate"):
            connect(Server(host="127.0.0.2", port=port))
    with (
        listening(lambda client: client.sendall(b"220 ready in the clear\r\n" * 20)) as port,
        pytest.raises(OSError, match=rf'127.0.0.2:{port}.*set {table}.tls = "starttls", or {table}.port'),
    ):
        connect(Server(host="127.0.0.2", port=port))
