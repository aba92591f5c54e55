"""Real servers of mail for tests: pymap and Dovecot for IMAP, aiosmtpd and Postfix for SMTP.

All listen on loopback and forget everything.
"""

from __future__ import annotations

import imaplib
import json
import os
import shutil
import signal
import smtplib
import socket
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from email import message_from_bytes
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingTCPServer
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult

from tests.forked import ForkedCommand
from tests.ports import free_port

OWN = "bot@home.example"
PASSWORD = "pw-very-secret"
MAIL = (
    "From: Ada <ada@x.example>\r\nTo: bot@home.example\r\nMessage-ID: <{name}@x.example>\r\n"
    "Subject: {name}\r\n\r\nhello\r\n"
)


@dataclass(frozen=True)
class Imap:
    """A server that runs; `user` and PASSWORD open the mailbox of OWN."""

    port: int
    user: str
    announces: bool = True
    """Whether it announces what came between a search and IDLE; if not, the poll finds it."""

    def login(self, user: str = "") -> imaplib.IMAP4:
        client = imaplib.IMAP4("127.0.0.1", self.port)
        client.login(user or self.user, PASSWORD)
        return client

    def deliver(self, *mails: bytes, folder: str = "INBOX") -> None:
        client = self.login()
        for mail in mails:
            status, said = client.append(folder, "", "", mail)
            assert status == "OK", said
        client.logout()


@dataclass(frozen=True)
class Dovecot(Imap):
    """The same with TLS, for any user; `tokens` are those that open a mailbox, with its user."""

    tls_port: int = 0
    auth: int = 0
    """Where Postfix asks whether somebody may send."""
    home: Path = Path()
    tokens: dict[str, str] = field(default_factory=dict)

    @property
    def certificate(self) -> Path:
        return self.home / "cert.pem"

    def mails(self, user: str, folder: str = "INBOX") -> list[Message]:
        """What is in a folder, the oldest first."""
        client = self.login(user)
        client.select(folder, readonly=True)
        numbers = client.search(None, "ALL")[1][0].split()
        found = [client.fetch(number.decode(), "(BODY.PEEK[])")[1][0] for number in numbers]
        client.logout()
        return [message_from_bytes(one[1]) for one in found if isinstance(one, tuple)]


@dataclass(frozen=True)
class Postfix:
    """It takes mails at `port` with STARTTLS, at `tls_port` with TLS, and they wait in `queue`."""

    port: int
    queue: Path
    tls_port: int

    @property
    def is_busy(self) -> bool:
        """Whether it has mails to deliver."""
        waiting = ("maildrop", "incoming", "active", "deferred")
        return any(one.is_file() for name in waiting for one in self.queue.glob(f"{name}/**/*"))


def write(dovecot: Dovecot, postfix: int, *names: str) -> None:
    """Ada writes to us: a mail of each name."""
    with smtplib.SMTP("127.0.0.1", postfix) as client:
        client.starttls(context=ssl.create_default_context(cafile=dovecot.certificate))
        client.login("ada", PASSWORD)
        for name in names:
            client.sendmail("ada@x.example", [OWN], MAIL.format(name=name).encode())


def once_up(process: subprocess.Popen[Any], port: int) -> None:
    """Wait until it listens."""
    while True:
        assert process.poll() is None, "the IMAP server has ended"
        with socket.socket() as one:
            if one.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.02)


DOVECOT: Final = """
base_dir = {home}/run
state_dir = {home}/state
log_path = {home}/log
protocols = imap
listen = 127.0.0.1
ssl = yes
ssl_cert = <{home}/cert.pem
ssl_key = <{home}/key.pem
disable_plaintext_auth = no
auth_mechanisms = plain login xoauth2
auth_failure_delay = 0
mail_location = {location}
mail_uid = nobody
mail_gid = nogroup
first_valid_uid = 0
first_valid_gid = 0
default_internal_user = nobody
default_internal_group = nogroup
default_login_user = nobody
passdb {{
  driver = oauth2
  mechanisms = xoauth2
  args = {home}/oauth2
}}
passdb {{
  driver = static
  mechanisms = plain login
  args = password={password}
}}
userdb {{
  driver = static
  args = uid=nobody gid=nogroup home={home}/mail/%u
}}
service auth {{
  inet_listener {{
    address = 127.0.0.1
    port = {auth}
  }}
}}
service imap-login {{
  chroot =
  inet_listener imap {{
    address = 127.0.0.1
    port = {imap}
  }}
  inet_listener imaps {{
    address = 127.0.0.1
    port = {imaps}
  }}
}}
service anvil {{
  chroot =
  unix_listener anvil-auth-penalty {{
    mode = 0
  }}
}}
service stats {{
  chroot =
}}
namespace inbox {{
  inbox = yes
  mailbox Sent {{
    auto = create
    special_use = \\Sent
  }}
  mailbox Work {{
    auto = create
  }}
  mailbox Unsent {{
    special_use = \\Drafts
  }}
}}
"""
OAUTH2: Final = """
introspection_mode = get
introspection_url = {asks}
username_attribute = user
active_attribute = active
active_value = yes
"""
POSTFIX: Final = """
compatibility_level = 3.6
queue_directory = {home}/queue
data_directory = {home}/data
maillog_file = {home}/log
maillog_file_prefixes = {home}
inet_interfaces = 127.0.0.1
inet_protocols = ipv4
myhostname = mx.home.example
mydestination =
alias_maps =
virtual_mailbox_domains = home.example, x.example, example.org
virtual_mailbox_base = {mail}
virtual_mailbox_maps = inline:{{ {{bot@home.example=bot/}}, {{ada@x.example=ada/}},
  {{desk@example.org=desk@example.org/}}, {{you@example.org=you@example.org/}} }}
virtual_uid_maps = static:65534
virtual_gid_maps = static:65534
recipient_delimiter = +
smtpd_sasl_type = dovecot
smtpd_sasl_path = inet:127.0.0.1:{auth}
smtpd_sasl_auth_enable = yes
smtpd_tls_security_level = may
smtpd_tls_auth_only = yes
smtpd_tls_cert_file = {certificate}
smtpd_tls_key_file = {key}
smtpd_relay_restrictions = permit_sasl_authenticated, reject
header_checks = regexp:{home}/conf/header_checks
always_add_missing_headers = yes
message_size_limit = 33554432
"""
SERVICES: Final = """
127.0.0.1:{submission} inet n - n - - smtpd
127.0.0.1:{submissions} inet n - n - - smtpd
  -o smtpd_tls_wrappermode=yes
cleanup unix n - n - 0 cleanup
qmgr unix n - n 300 1 qmgr
tlsmgr unix - - n 1000? 1 tlsmgr
rewrite unix - - n - - trivial-rewrite
bounce unix - - n - 0 bounce
defer unix - - n - 0 bounce
error unix - - n - - error
retry unix - - n - - error
proxymap unix - - n - - proxymap
anvil unix - - n - 1 anvil
smtp unix - - n - - smtp
virtual unix - n n - - virtual
postlog unix-dgram n - n - 1 postlogd
"""


def program(name: str, package: str) -> str:
    """Where a server is; the test is skipped if it cannot be started."""
    found = shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin")
    if found is None:
        pytest.skip(f"{name} is not installed: apt-get install {package}")
    if os.getuid() != 0:
        pytest.skip(f"this test starts {name} as root")
    return found


@contextmanager
def running(command: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    """A server of several processes, all of which end with it."""
    with subprocess.Popen(command, start_new_session=True) as process:
        try:
            yield process
        finally:
            process.terminate()
            process.wait()
            with suppress(ProcessLookupError):
                while True:
                    os.killpg(process.pid, signal.SIGKILL)
                    time.sleep(0.01)


MAILDIR: Final = "maildir:{home}/mail/%u"
MBOX: Final = "mbox:{home}/mail/%u:INBOX={home}/mail/%u/inbox"
"""A file for each folder: a hundred thousand mails are written and removed at once."""


@contextmanager
def running_dovecot(location: str = MAILDIR, *, introspection: str = "") -> Iterator[Dovecot]:
    """Dovecot, with a mailbox for each user at the location. Of access tokens it asks `tokens`, or another server."""
    started = program("dovecot", "dovecot-imapd")
    # A directory of pytest is closed to the user that Dovecot becomes.
    with TemporaryDirectory(dir="/tmp") as made, running_tokens() as (tokens, asked):
        home = Path(made)
        home.chmod(0o755)
        certify(home)
        (home / "mail").mkdir()
        shutil.chown(home / "mail", "nobody", "nogroup")
        ports = {name: free_port() for name in ("imap", "imaps", "auth")}
        (home / "oauth2").write_text(OAUTH2.format(asks=introspection or f"http://127.0.0.1:{asked}/?token="))
        place = location.format(home=home)
        (home / "conf").write_text(DOVECOT.format(home=home, password=PASSWORD, location=place, **ports))
        with running([started, "-F", "-c", str(home / "conf")]) as process:
            once_up(process, ports["imap"])
            yield Dovecot(ports["imap"], "bot", tls_port=ports["imaps"], auth=ports["auth"], home=home, tokens=tokens)


@contextmanager
def running_postfix(dovecot: Dovecot, *, header_checks: str = "") -> Iterator[int]:
    """The port of `queueing_postfix`."""
    with queueing_postfix(dovecot, header_checks=header_checks) as postfix:
        yield postfix.port


@contextmanager
def queueing_postfix(dovecot: Dovecot, *, header_checks: str = "") -> Iterator[Postfix]:
    """Postfix, which lets users of this Dovecot send and delivers to its mailboxes.

    `header_checks`: what it changes in the header fields of each mail, see header_checks(5).
    """
    started = program("postfix", "postfix")
    with TemporaryDirectory(dir="/tmp") as made:
        home = Path(made)
        home.chmod(0o755)
        (home / "conf").mkdir()
        for name, owner in (("queue", "root"), ("data", "postfix")):
            (home / name).mkdir()
            shutil.chown(home / name, owner)
        (home / "conf/header_checks").write_text(header_checks)
        (port, tls_port), mine = (free_port(), free_port()), dovecot.home
        (home / "conf/main.cf").write_text(
            POSTFIX.format(
                home=home, mail=mine / "mail", auth=dovecot.auth, certificate=mine / "cert.pem", key=mine / "key.pem"
            )
        )
        (home / "conf/master.cf").write_text(SERVICES.format(submission=port, submissions=tls_port))
        subprocess.run([started, "-c", str(home / "conf"), "check"], check=True, capture_output=True)
        with running(["/usr/lib/postfix/sbin/master", "-s", "-c", str(home / "conf")]) as process:
            once_up(process, port)
            yield Postfix(port, home / "queue", tls_port)


def certify(home: Path) -> None:
    """A certificate for this machine that signs itself, as `cert.pem` and `key.pem`."""
    names = "subjectAltName=DNS:localhost,IP:127.0.0.1"
    files = ["-keyout", str(home / "key.pem"), "-out", str(home / "cert.pem")]
    kind = ["-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    about = ["-subj", "/CN=localhost", "-addext", names]
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl is not installed")
    subprocess.run([openssl, "req", *kind, *files, *about], check=True, capture_output=True)


@contextmanager
def running_tokens() -> Iterator[tuple[dict[str, str], int]]:
    """Says whose an access token is; its tokens with their users, and its port."""
    tokens: dict[str, str] = {}

    class Introspection(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            user = tokens.get(parse_qs(urlsplit(self.path).query).get("token", [""])[0])
            told = json.dumps({"active": "yes", "user": user} if user else {"active": "no"}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(told)))
            self.end_headers()
            self.wfile.write(told)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Introspection) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield tokens, server.server_port
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def running_pymap() -> Iterator[Imap]:
    """An IMAP server with one mailbox."""
    port = free_port()
    where = ("--no-tls", "--host", "127.0.0.1", "--port", str(port), "--no-service", "admin")
    user = ("dict", "--demo-data", "--demo-user", "bot", "--demo-password", PASSWORD)
    command = ["python", "-m", "tests.pymap_server", *where, *user]
    with ForkedCommand(command, env=dict(os.environ), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            once_up(process, port)
            yield Imap(port, "bot", announces=False)
        finally:
            process.kill()


AnswerLine = Callable[[bytes], bytes | None]
"""What a proxy answers to a line of a client, `{tag}` being that of its command; None: the server is given the line."""


@contextmanager
def imap_proxy(
    imap: Imap,
    answer: AnswerLine = lambda _: None,
    *,
    asked: Callable[[bytes], bytes] = bytes,
    told: Callable[[bytes], bytes] = bytes,
) -> Iterator[int]:
    """The port of a proxy before a server, which answers some lines itself, or with nothing at all.

    `asked` and `told` are how it changes what the server is asked, and what it answers.
    """

    class Client(StreamRequestHandler):
        def handle(self) -> None:
            with socket.create_connection(("127.0.0.1", imap.port)) as server:
                back = Thread(target=self.pass_back, args=(server,))
                back.start()
                while line := self.rfile.readline():
                    instead = answer(line)
                    if instead is None:
                        server.sendall(asked(line))
                    else:
                        self.wfile.write(instead.replace(b"{tag}", line.split(b" ")[0]))
                server.shutdown(socket.SHUT_RDWR)
                back.join()

        def pass_back(self, server: socket.socket) -> None:
            with suppress(OSError):
                while data := server.recv(65536):
                    self.wfile.write(told(data))

    class Proxy(ThreadingTCPServer):
        allow_reuse_address = True
        daemon_threads = True

    with Proxy(("127.0.0.1", 0), Client) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


@dataclass
class Postbox:
    """What the SMTP server does with a mail."""

    mails: list[bytes] = field(default_factory=list)
    senders: list[str] = field(default_factory=list)
    recipients: list[list[str]] = field(default_factory=list)
    refused: str = ""
    """A recipient that does not exist."""
    rcpt: str = "250 OK"
    data: str = "250 OK"

    async def handle_RCPT(self, _server: Any, _session: Any, envelope: Any, to: str, _options: Any) -> str:  # noqa: N802
        if to == self.refused:
            return "550 no such user"
        envelope.rcpt_tos.append(to)
        return self.rcpt

    async def handle_DATA(self, server: Any, _session: Any, envelope: Any) -> str:  # noqa: N802
        self.mails.append(envelope.content)
        self.senders.append(envelope.mail_from)
        self.recipients.append([*envelope.rcpt_tos])
        if self.data == "close":
            server.transport.abort()
        return self.data


@contextmanager
def running_smtp(password: str = "", *, size: int = 33_554_432) -> Iterator[tuple[Postbox, int]]:
    """An SMTP server that takes mails of this size, and its port; one with a password asks for it."""
    postbox = Postbox()
    port = free_port()

    def checked(_server: Any, _session: Any, _envelope: Any, _mechanism: str, given: Any) -> AuthResult:
        return AuthResult(success=given.password.decode() == password, handled=False)

    asks: dict[str, Any] = {"authenticator": checked, "auth_require_tls": False} if password else {}
    controller = Controller(postbox, hostname="127.0.0.1", port=port, data_size_limit=size, **asks)
    controller.start()
    yield postbox, port
    controller.stop()
