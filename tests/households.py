"""The household of docs/household.md as a newcomer copies it, running with other accounts than the page has.

In: the accounts and models that the settings of the copy get; out: a `Household`, to which commands are given.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx2

from switchboard.cli.examples import examples
from switchboard.testing.bot_api import ANN, TOKEN
from tests.dav_servers import PASSWORD, USER, DavServer
from tests.mail_servers import PASSWORD as MAIL_PASSWORD
from tests.mail_servers import Imap
from tests.mailboxes import SECRET, account_at
from tests.processes import environment, running, switchboard, told

NOOR: Final[dict[str, Any]] = {"id": 1007, "is_bot": False, "first_name": "Noor"}
NO_CHANNELS: Final[Mapping[str, str]] = {}
_TELEGRAM: Final = (
    'channel = "telegram"\nsecrets = {{token = {{env = "BOT_TOKEN"}}}}\n[settings]\napi_url = "{url}"\npoll_s = 1\n'
)
_SENDER: Final = (
    'channel = "email"\nsecrets = {{password = {{env = "MAILBOX_PASSWORD"}}}}\n'
    '[settings]\naddress = "{own}"\nuser = "{user}"\nreceive = false\n'
    'imap = {{host = "127.0.0.1", port = {imap}, tls = "none"}}\n'
    'smtp = {{host = "127.0.0.1", port = {smtp}, tls = "none"}}\n'
)


@dataclass(frozen=True)
class Household:
    """The copy, which runs."""

    settings: Mapping[str, str]
    place: Path

    def run(self, *arguments: str) -> str:
        """What a command in its directory says."""
        done = switchboard(self.settings, *arguments, cwd=self.place)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def told(self, *arguments: str) -> dict[str, Any]:
        """The same as JSON."""
        return told(self.settings, *arguments)

    def introduce(self) -> None:
        """Say who Ann and Noor are, as the page does."""
        for person, account in (("ann", ANN["id"]), ("noor", NOOR["id"])):
            self.run("people", "add", person, "--name", person.title())
            self.run("people", "group", person, "family")
            self.run("people", "link", person, "telegram", str(account))

    def is_read(self) -> bool:
        """Whether the modules have read calendars and address books."""
        token = (self.place / "data" / "operator.token").read_text().strip()
        url = f"{self.settings['SWITCHBOARD_URL']}/v1/modules"
        modules = httpx2.get(url, headers={"authorization": f"Bearer {token}"}).raise_for_status().json()["modules"]
        syncs = [one for module in modules for one in module["chores"] if one["account"] and one["name"] == "sync"]
        return len(syncs) == 2 and all(one["last_at"] and not one["error"] for one in syncs)


def bot_at(url: str) -> str:
    """The file of a bot at a Bot API."""
    return _TELEGRAM.format(url=url)


def sender_at(imap: Imap, smtp: int) -> str:
    """The file of an account that sends what butlers write in Ann's name, and receives nothing."""
    return _SENDER.format(own=USER, user=imap.user, imap=imap.port, smtp=smtp)


def accounts_of_ann(diary: DavServer, imap: Imap, sends: str) -> dict[str, Any]:
    """The tables of the modules; passwords are in the environment of a household."""
    account = {
        "url": f"http://127.0.0.1:{diary.port}/",
        "user": USER,
        "password": {"env": "DIARY_PASSWORD"},
        "person": "ann",
    }
    mailbox = account_at(imap.port, imap.user, writes_as=["ann@home.example"])
    return {
        "calendar": {"accounts": {"ann": {**account, "sends": sends}}},
        "contacts": {"accounts": {"ann": account}},
        "email": {"accounts": {"ann": mailbox}},
    }


@contextmanager
def opened_household(
    place: Path, modules: Mapping[str, Any], models: list[Mapping[str, Any]], channels: Mapping[str, str] = NO_CHANNELS
) -> Iterator[Household]:
    """`switchboard up` in a copy of the example, until the end of the block; `channels`: files of accounts."""
    copy = place / "household"
    shutil.copytree(examples() / "household", copy)
    (copy / "channels.d").mkdir()
    for name, text in channels.items():
        (copy / "channels.d" / f"{name}.toml").write_text(text)
    ours = {"MODULES": json.dumps(modules), "MODELS": json.dumps(models)}
    secrets = {"BOT_TOKEN": TOKEN, "DIARY_PASSWORD": PASSWORD, SECRET: MAIL_PASSWORD}
    with running(environment(copy / "data", **ours) | secrets, "up", cwd=copy) as server:
        household = Household(server.environment, copy)
        household.introduce()
        yield household
