"""What a mailbox has, looked up before it is connected: the folders that are searched, and who marks its mails.

`wizard.py` calls it. In: where it is, and a sign-in; out: a `MailboxSurvey`, or an error that says what would be right.
It changes nothing.
"""

from __future__ import annotations

import asyncio
from typing import Final

from msgspec import Struct

from switchboard.core.mail.auth import server_of
from switchboard.core.mail.head import field, read_head
from switchboard.domain.errors import InvalidInput
from switchboard.modules.email.folders import folders_to_search
from switchboard.modules.email.settings import ImapPlace
from switchboard.ports.connector import SignInRefused
from switchboard.transport.mail_servers.mailbox import Mailbox, SignIn
from switchboard.transport.mail_servers.server import Server

_NEWEST: Final = 5


class MailboxSurvey(Struct, frozen=True):
    """Names of folders, the number of mails in them, and the name in the marks of the newest mails, if it is one."""

    searched: tuple[str, ...]
    mails: int
    marked_by: str


async def survey_mailbox(place: ImapPlace, sign_in: SignIn) -> MailboxSurvey:
    """Log in and look. Raises InvalidInput, which says what would be right."""
    try:
        return await asyncio.to_thread(_survey_mailbox, place, sign_in)
    except SignInRefused as error:
        raise InvalidInput(f"{error}; many providers want a password that is made for programs") from error
    except OSError as error:
        raise InvalidInput(
            f"the IMAP server {place.host}:{place.port} cannot be used: {error.strerror or error}"[:500]
        ) from error


def _survey_mailbox(place: ImapPlace, sign_in: SignIn) -> MailboxSurvey:
    box = Mailbox(Server(host=place.host, port=place.port, tls=place.tls), sign_in)
    try:
        searched = tuple(one.name for one in folders_to_search("", box.folders()))
        marks, mails = set[str](), 0
        for number, folder in enumerate(searched):
            box.open(folder)
            uids = box.search(("ALL",))
            mails += len(uids)
            marks |= {_marked_by(box, uid) for uid in sorted(uids)[-_NEWEST:]} if not number else set()
        return MailboxSurvey(searched, mails, marks.pop() if len(marks) == 1 else "")
    finally:
        box.abandon()


def _marked_by(box: Mailbox, uid: int) -> str:
    fetched = box.read(uid, head=True)
    return server_of(field(read_head(fetched.raw), "authentication-results")) if fetched is not None else ""
