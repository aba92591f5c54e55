"""`switchboard modules login imap`, through the command line, against a real server of mail."""

from __future__ import annotations

import asyncio
import stat
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from switchboard.store.database import Database
from switchboard.store.people import people
from tests.commands import Cli
from tests.mail_servers import PASSWORD, Dovecot, running_dovecot
from tests.mailboxes import a_mail, deliver
from tests.ports import free_port
from tests.processes import environment

SETTINGS: Final = 'log_level = "warning"\n'
MARKED: Final = "mx.home.example; dmarc=pass header.from=x.example"


@pytest.fixture(scope="module")
def dovecot() -> Iterator[Dovecot]:
    with running_dovecot() as server:
        marked = a_mail("marked", "Hello", "x")
        marked["Authentication-Results"] = MARKED
        deliver(server, "ann", marked, marked)
        yield server


@dataclass(frozen=True)
class Home:
    """An installation's directory, and the command line in it."""

    place: Path
    cli: Cli
    dovecot: Dovecot

    async def log_in(self, **answers: str) -> tuple[int, str]:
        given = {
            "address": "ann@home.example",
            "user": "ann",
            "host": "127.0.0.1",
            "port": f"{self.dovecot.tls_port}",
            "whose": "person:ann",
            **answers,
        }
        password = given.pop("password", PASSWORD)
        sets = [f"--set={name}={value}" for name, value in given.items()]
        asked = ("modules", "login", "imap", *sets, "--password-file", "-")
        code, out, err = await asyncio.to_thread(self.cli.run, *asked, given=f"{password}\n")
        assert PASSWORD not in out + err
        return code, out + err

    @property
    def accounts(self) -> dict[str, Any]:
        found = tomllib.loads((self.place / "switchboard.toml").read_text())
        return dict(found.get("modules", {}).get("email", {}).get("accounts", {}))


@pytest.fixture
async def home(
    dovecot: Dovecot,
    database: Database,
    database_url: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Home:
    async with database.transaction() as one:
        await people.create(one, "ann", "ann")
    place = tmp_path / "home"
    place.mkdir()
    monkeypatch.chdir(place)
    monkeypatch.setenv("SSL_CERT_FILE", str(dovecot.certificate))
    (place / "switchboard.toml").write_text(SETTINGS)
    return Home(place, Cli(capsys, monkeypatch, environment(tmp_path / "data", DATABASE_URL=database_url)), dovecot)


async def test_a_mailbox_is_checked_and_kept_with_its_password_in_a_file(home: Home) -> None:
    code, out = await home.log_in()
    assert (code, "INBOX, Sent; 2 mails" in out) == (0, True), out
    assert home.accounts == {
        "ann": {
            "imap": {"host": "127.0.0.1", "port": home.dovecot.tls_port, "tls": "tls"},
            "user": "ann",
            "person": "ann",
            "writes_as": ["ann@home.example"],
            "trusted_servers": ["mx.home.example"],
            "password": {"file": "email-ann.password"},
        }
    }
    file = home.place / "email-ann.password"
    assert (file.read_text(), stat.S_IMODE(file.stat().st_mode)) == (f"{PASSWORD}\n", 0o600)
    code, out = await home.log_in()
    assert (code, "in the settings already" in out) == (1, True), out


WRONG: Final = {
    "password": ({"password": "wrong"}, "made for programs"),
    "clear": ({"tls": "none", "host": "mail.example"}, "only to this machine"),
    "tls": ({"port": "{plain}", "tls": "tls"}, "set imap.tls = "),
    "port": ({"port": "imap"}, "a port is a number"),
    "nobody": ({"port": f"{free_port()}"}, "cannot be used: Connection refused"),
    "address": ({"address": "ann"}, "write one address"),
    "who": ({"whose": "person:eve", "password": "wrong"}, "there is no person 'eve'"),
    "question": ({"hosts": "x"}, "did you mean host or"),
}


@pytest.mark.parametrize("case", WRONG)
async def test_what_is_wrong_is_told_and_nothing_is_written(home: Home, case: str) -> None:
    answers, told = WRONG[case]
    given = {name: answer.format(plain=home.dovecot.port) for name, answer in answers.items()}
    code, out = await home.log_in(**given)
    assert (code in (1, 5), told in out) == (True, True), out
    assert [one.name for one in home.place.iterdir()] == ["switchboard.toml"]
    assert home.accounts == {}
