"""The module of mailboxes over a real server, the mails in them, and the calls that persons make of its tools."""

from __future__ import annotations

import json
import shutil
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from email.message import EmailMessage
from email.utils import format_datetime
from pathlib import Path
from typing import Any, Final
from uuid import UUID, uuid4

from switchboard.modules.email.manifest import MANIFEST
from switchboard.modules.email.opened import OpenEmail, open_email
from switchboard.modules.kernel.tables import read_table
from switchboard.ports.module import ModuleContext
from switchboard.ports.module_store import ModuleStore
from switchboard.ports.people_seen import PEOPLE, SeenPerson
from switchboard.ports.tools import ToolOutcome, ToolScope
from switchboard.testing.modules import FixedPeople, ModuleSubject
from tests.mail_servers import Dovecot, Imap

ANN: Final = SeenPerson("ann", frozenset({"family"}), private=True)
SECRET: Final = "MAILBOX_PASSWORD"
"""The variable in which the password of every account is."""
TOOLS: Final = {tool.spec.name: tool for tool in MANIFEST.tools}


def account_at(port: int, user: str = "bot", **more: Any) -> dict[str, Any]:
    """The table of a mailbox on a server on this machine, Ann's if nothing else is said."""
    whose = {} if {"person", "group"} & more.keys() else {"person": "ann"}
    imap = {"host": "127.0.0.1", "port": port, "tls": "none"}
    return {"imap": imap, "user": user, "password": {"env": SECRET}, **whose, **more}


def a_mail(
    name: str, subject: str, text: str, sent: datetime | None = None, *, answers: Iterable[str] = (), **fields: str
) -> EmailMessage:
    """A mail to the mailbox of the tests; `name` is that in its Message-ID, and `answers` has those of others."""
    mail = EmailMessage()
    known = {"From": "Ben <ben@x.example>", "To": "ann@home.example", **{one.title(): fields[one] for one in fields}}
    for field, value in known.items():
        mail[field] = value
    mail["Subject"], mail["Message-ID"] = subject, f"<{name}@x.example>"
    if sent is not None:
        mail["Date"] = format_datetime(sent)
    if ids := [f"<{one}@x.example>" for one in answers]:
        mail["In-Reply-To"], mail["References"] = ids[-1], " ".join(ids)
    mail.set_content(text)
    return mail


def deliver(imap: Imap, user: str, *mails: EmailMessage | bytes, folder: str = "INBOX") -> None:
    """File mails in a folder of a user; each arrives at its date."""
    client = imap.login(user)
    for mail in mails:
        data = mail if isinstance(mail, bytes) else mail.as_bytes()
        date = "" if isinstance(mail, bytes) or not mail["Date"] else mail["Date"].datetime
        status, said = client.append(folder, "", date, data)
        assert status == "OK", said
    client.logout()


@dataclass
class Mailboxes:
    """The opened module, and who calls it."""

    module: OpenEmail
    people: FixedPeople
    subject: ModuleSubject
    results: Path

    async def call(self, tool: str, *, key: UUID | None = None, **arguments: Any) -> ToolOutcome:
        """`key`: that of the step, the same whenever a call is repeated."""
        scope = ToolScope(
            *(self.results, frozenset(), frozenset(), key or uuid4(), uuid4()),
            zone="Europe/Berlin",
            results=self.results,
        )
        return await TOOLS[f"email_{tool}"].run(self.module, arguments, scope)

    async def told(self, tool: str, **arguments: Any) -> dict[str, Any]:
        outcome = await self.call(tool, **arguments)
        assert outcome.ok, outcome.text
        return dict(json.loads(outcome.text))

    async def refused(self, tool: str, **arguments: Any) -> str:
        outcome = await self.call(tool, **arguments)
        assert not outcome.ok, outcome.text
        return outcome.text

    async def subjects(self, **wanted: Any) -> list[str]:
        """Those of the mails that a search finds, the newest first."""
        return [one["subject"] for one in (await self.told("search", **wanted))["mails"]]

    async def id_of(self, **wanted: Any) -> str:
        """That of the one mail that a search finds."""
        [found] = (await self.told("search", **wanted))["mails"]
        return str(found["id"])


@asynccontextmanager
async def open_mailboxes(accounts: dict[str, Any], results: Path) -> AsyncIterator[Mailboxes]:
    """The module with these accounts; Ann calls it."""
    people = FixedPeople(ANN)
    subject = ModuleSubject(
        "switchboard.modules.email.manifest:MANIFEST", {"accounts": accounts}, needs={PEOPLE: people}
    )
    settings = read_table(MANIFEST, {"email": subject.settings})
    module = await open_email(ModuleContext(settings, no_store, {}, subject.needs))
    yield Mailboxes(module, people, subject, results)
    await module.aclose()


def no_store(_: str) -> ModuleStore:
    raise AssertionError("the module keeps nothing")


def fill_inbox(dovecot: Dovecot, user: str, mails: Iterable[tuple[datetime, bytes]]) -> None:
    """Put mails where a Dovecot with `MBOX` keeps them, which is far faster than by IMAP; each arrived at its time."""
    place = dovecot.home / "mail" / user
    place.mkdir()
    with (place / "inbox").open("wb") as file:
        for arrived, mail in mails:
            file.write(b"From ben@x.example " + arrived.astimezone(UTC).ctime().encode() + b"\n" + mail + b"\n")
    for made in (place / "inbox", place):
        shutil.chown(made, "nobody", "nogroup")


def names_in(mails: Sequence[dict[str, Any]]) -> list[str]:
    """What stands before the @ in the Message-IDs of mails that were told."""
    return [one["id"].rpartition("/")[2].partition("@")[0] for one in mails]
