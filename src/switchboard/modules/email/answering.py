"""The mail that a call answers: who wrote it, to whom, and in which thread.

`composing.py` asks for it. In: an id as tools tell it, or a Message-ID in angle brackets; out: an `AnsweredByMail`,
whose fields strangers wrote. Next: `locating.py`, `core/mail/reply.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

from switchboard.core.mail.head import decode_field, field, read_head
from switchboard.core.mail.headers import address, mailboxes
from switchboard.core.mail.reply import reply_address
from switchboard.core.text.visible import visible_start
from switchboard.domain.json_values import JsonObject
from switchboard.modules.accounts.addressees import Addressee
from switchboard.modules.email.callers import EmailRefusal
from switchboard.modules.email.connections import Deadline, MailConnections, OpenBox
from switchboard.modules.email.describing import MAILBOX_FAILURES, describe_mail_failure
from switchboard.modules.email.folders import INBOX
from switchboard.modules.email.heads import ListedMail
from switchboard.modules.email.locating import MailLocator
from switchboard.modules.email.names import MailId, MailPlace, message_ids_in, read_mail_id
from switchboard.modules.email.settings import MailAccount

_FIELDS: Final = ("from", "reply-to", "to", "cc", "subject", "message-id", "references", "in-reply-to")
_SHOWN: Final = 150
_MOST_NAMED: Final = 100


class AnsweredByMail(Struct, frozen=True):
    """A mail that is answered. `account`: the name of the one that has it; addresses are in lower case."""

    account: str
    message_id: str
    references: tuple[str, ...]
    subject: str
    sender: str
    """As its From says."""
    answer_to: str
    """Where answers go: its Reply-To, else its From; empty: nowhere."""
    to: tuple[str, ...]
    cc: tuple[str, ...]

    @property
    def shown(self) -> str:
        """For whoever approves an answer."""
        return f"“{visible_start(self.subject, _SHOWN)}” of {visible_start(self.sender, _SHOWN)}"

    @property
    def written_to(self) -> frozenset[str]:
        """All whom it names as recipients."""
        return frozenset((*self.to, *self.cc))

    def addressees(self, own: frozenset[str]) -> tuple[tuple[Addressee, ...], tuple[Addressee, ...]]:
        """To whom an answer goes, and the others whom it goes to if it is for everybody; never to the account itself.

        What its person has sent is answered to whom it was sent. Raises EmailRefusal if that is nobody.
        """
        by_person = address(self.sender) in own
        first = self.to if by_person else (self.answer_to,)
        to = tuple(dict.fromkeys(one for one in first if one and one not in own))
        if not to:
            raise EmailRefusal("the mail says nobody whom an answer could go to; name somebody in `to`")
        others = dict.fromkeys(one for one in (*self.to, *self.cc) if one not in own and one not in to)
        return tuple(map(Addressee, to)), tuple(map(Addressee, others))


async def find_answered(
    connections: MailConnections, accounts: Mapping[str, MailAccount], named: str
) -> AnsweredByMail:
    """Raises EmailRefusal if it is in none of the accounts that the call sees."""
    deadline = Deadline()
    for wanted in _possible_ids(accounts, named.strip()):
        account = accounts[wanted.account]
        try:
            async with connections.open_box(wanted.account, account, deadline) as box:
                found = await MailLocator(wanted.account, box, account.own_addresses).find(wanted)
                if found is not None:
                    return await _read_answered(box, found)
        except MAILBOX_FAILURES as error:
            raise EmailRefusal(describe_mail_failure(error)) from error
    raise EmailRefusal("the mail to answer is not there; search for it with email_search")


def _possible_ids(accounts: Mapping[str, MailAccount], named: str) -> Sequence[MailId]:
    """Where it may be. Of others' accounts nobody is told that they exist."""
    if (ids := message_ids_in(named)) and named == f"<{ids[0]}>":
        return [MailId(account, MailPlace(INBOX, 0, 0), ids[0]) for account in accounts]
    wanted = read_mail_id(named)
    return [wanted] if wanted is not None and wanted.account in accounts else []


async def _read_answered(box: OpenBox, listed: ListedMail) -> AnsweredByMail:
    place = listed.id.place
    await box.open_folder(place.folder)
    fetched = await box.run(box.box.read, place.uid, head=True)
    if fetched is None:
        raise EmailRefusal("the mail to answer was deleted meanwhile")
    return await asyncio.to_thread(_answered_from, listed.id.account, fetched.raw)


def _answered_from(account: str, raw: bytes) -> AnsweredByMail:
    head = read_head(raw)
    said = {name: field(head, name) for name in _FIELDS}
    answers: JsonObject = reply_address(said)
    references = answers["references"]
    return AnsweredByMail(
        account=account,
        message_id=str(answers["message_id"] or ""),
        references=tuple(map(str, references)) if isinstance(references, list) else (),
        subject=decode_field(said["subject"]),
        sender=decode_field(said["from"]),
        answer_to=str(answers["to"] or "").lower(),
        to=_addresses_in(said["to"]),
        cc=_addresses_in(said["cc"]),
    )


def _addresses_in(line: str) -> tuple[str, ...]:
    found = (address(one) for one in mailboxes(line)[:_MOST_NAMED])
    return tuple(dict.fromkeys(one.lower() for one in found if one))
