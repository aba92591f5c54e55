"""Cyrus for tests: the server of calendars and address books that itself sends invitations (RFC 6638).

It listens on loopback, keeps its files in a temporary directory, and becomes the user `cyrus` of its Debian package.
What it sends goes to an SMTP server of the test. Tests of DAV start it; out: a `SendingServer`. Next: `dav_servers.py`.
"""

from __future__ import annotations

import imaplib
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from tests.dav_servers import PASSWORD, USER, SendingServer
from tests.mail_servers import once_up, program, running, running_smtp
from tests.ports import free_port

NEIGHBOUR: Final = "bob@home.example"
"""Another user of the same server."""
PROGRAMS: Final = "/usr/lib/cyrus/bin"
NEEDED: Final = ("cyrmaster", f"{PROGRAMS}/httpd", f"{PROGRAMS}/imapd", "saslpasswd2")
SETTINGS: Final = """
configdirectory: {home}/state
proc_path: {home}/proc
mboxname_lockpath: {home}/lock
defaultpartition: default
partition-default: {home}/spool
sievedir: {home}/sieve
syslog_prefix: cyrus
servername: localhost
skiplist_unsafe: yes
defaultdomain: localhost
virtdomains: userid
unixhierarchysep: yes
autocreate_users: anyone
autocreate_quota: 0
allowplaintext: yes
sasl_pwcheck_method: auxprop
sasl_auxprop_plugin: sasldb
sasl_sasldb_path: {home}/passwords
sasl_mech_list: PLAIN
httpmodules: caldav carddav
caldav_allowscheduling: on
calendar_user_address_set: home.example
smtp_backend: host
smtp_host: 127.0.0.1:{smtp}/noauth
"""
# A service does not inherit the settings of the master.
SERVICES: Final = """
START {{
  recover cmd="{programs}/ctl_cyrusdb -C {home}/settings -r"
}}
SERVICES {{
  imap cmd="imapd -C {home}/settings" listen="127.0.0.1:{imap}" prefork=0
  http cmd="httpd -C {home}/settings" listen="127.0.0.1:{http}" prefork=0
}}
EVENTS {{
}}
"""


@contextmanager
def cyrus() -> Iterator[SendingServer]:
    """It asks for a password, and has an address book and a calendar for every user."""
    started, *_ = (program(one, "cyrus-caldav cyrus-imapd sasl2-bin") for one in NEEDED)
    with TemporaryDirectory(dir="/tmp") as made, running_smtp() as (postbox, smtp):
        home = Path(made)
        home.chmod(0o755)
        ports = {"imap": free_port(), "http": free_port()}
        (home / "settings").write_text(SETTINGS.format(home=home, smtp=smtp))
        (home / "services").write_text(SERVICES.format(home=home, programs=PROGRAMS, **ports))
        _give_directories(home)
        for user in (USER, NEIGHBOUR):
            _give_password(home / "passwords", user)
        options = ["-C", str(home / "settings"), "-M", str(home / "services"), "-p", str(home / "pid"), "-D"]
        with running([started, *options]) as process:
            once_up(process, ports["http"])
            for user in (USER, NEIGHBOUR):
                _make_home(ports["imap"], user)
            book, calendar = (f"/dav/{kind}/user/{USER}/Default/" for kind in ("addressbooks", "calendars"))
            yield SendingServer("cyrus", ports["http"], book, calendar, f"{home}/spool", postbox=postbox)


def _give_directories(home: Path) -> None:
    for name in ("state", "state/socket", "proc", "lock", "spool", "sieve"):
        (home / name).mkdir()
        shutil.chown(home / name, "cyrus", "mail")


def _give_password(file: Path, user: str) -> None:
    name, _, domain = user.partition("@")
    command = ["saslpasswd2", "-c", "-p", "-f", str(file), "-u", domain, name]
    subprocess.run(command, input=PASSWORD.encode(), check=True, capture_output=True)
    shutil.chown(file, "cyrus", "mail")


def _make_home(port: int, user: str) -> None:
    """A user is made by the first login over IMAP, and has no calendars before."""
    with imaplib.IMAP4("127.0.0.1", port) as client:
        client.login(user, PASSWORD)
