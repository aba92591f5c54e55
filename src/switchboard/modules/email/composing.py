"""What a call means to write: from whom, to whom, in answer to what, with which files. Nothing is written here.

`writing.py` calls it when a call is prepared, and again when it is carried out, so that what was approved is what is
sent. In: a `MailWish`; out: a `ProposedMail`. Next: `answering.py`, `enclosing.py`, `modules/accounts/addressees.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Final, Protocol

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from switchboard.core.mail.reply import answered_subject
from switchboard.core.mail.written import checked_address, checked_mail
from switchboard.core.text.visible import visible, visible_start
from switchboard.modules.accounts.addressees import Addressee, UnresolvedAddressee, resolve_addressees
from switchboard.modules.email.answering import AnsweredByMail, find_answered
from switchboard.modules.email.callers import EmailRefusal, MailAccounts
from switchboard.modules.email.connections import MailConnections
from switchboard.modules.email.enclosing import Enclosure, find_files
from switchboard.modules.email.settings import EmailGrants, MailAccount
from switchboard.modules.email.write_tools import MailWish
from switchboard.ports.contact_resolver import ContactResolver
from switchboard.ports.mail_desk import MailDesk, OutgoingMail
from switchboard.ports.tools import ToolScope

_VARIANTS: Final = re.compile("[\ufe00-\ufe0d\U000e0100-\U000e01ef]")
"""Forms of a letter, of which nothing is seen after another one; those of emojis are the two beyond."""


class WritesMails(Protocol):
    """What is needed of the opened module."""

    @property
    def held(self) -> MailAccounts: ...

    @property
    def connections(self) -> MailConnections: ...

    @property
    def contacts(self) -> ContactResolver | None: ...

    @property
    def desk(self) -> MailDesk | None: ...


class ProposedMail(Struct, frozen=True):
    """The mail, still without its files, and what there is to see of it. `account`: by its name, whose mail it is."""

    mail: OutgoingMail
    people: Mapping[str, str]
    """By address, the names that the contacts have."""
    files: tuple[Enclosure, ...]
    account: str
    answered: AnsweredByMail | None

    @property
    def digest(self) -> str:
        """Of everything that is approved."""
        said = msgspec.to_builtins(replace(self.mail, key="-"))
        return sha256(msgspec.json.encode([said, self.files], order="sorted")).hexdigest()

    @property
    def shown(self) -> str:
        """For whoever approves it: all that is sent."""
        mail = self.mail
        fields = {
            "From": mail.sender,
            "To": self._show_people(mail.to),
            "Cc": self._show_people(mail.cc),
            "Bcc": self._show_people(mail.bcc),
            "Subject": mail.subject,
            "Answers": self.answered.shown if self.answered else "",
            "Files": ", ".join(one.shown for one in self.files),
        }
        return "\n".join((*(f"{name}: {value}" for name, value in fields.items() if value), "", mail.text))

    @property
    def recipients(self) -> str:
        """All of them, with their names."""
        return self._show_people((*self.mail.to, *self.mail.cc, *self.mail.bcc))

    def _show_people(self, addresses: Sequence[str]) -> str:
        return ", ".join(f"{self.people[one]} <{one}>" if self.people.get(one) else one for one in addresses)


async def propose_mail(email: WritesMails, scope: ToolScope, wish: MailWish) -> ProposedMail:
    """What the call would write. Raises EmailRefusal, InvalidInput, Unavailable."""
    if not (wish.text.strip() or wish.files):
        raise EmailRefusal("a mail has a text")
    for what, said in (("text", wish.text), ("subject", wish.subject)):
        if _hides_something(said):
            raise EmailRefusal(f"the {what} has characters that cannot be seen; write it without them")
    accounts = await email.held.seen_by(scope)
    answered = await find_answered(email.connections, accounts, wish.answers) if wish.answers.strip() else None
    usable = await _usable_senders(email, scope, accounts, draft=wish.draft)
    account, sender = _choose_sender(accounts, usable, wish.sender.strip().lower(), answered)
    to, cc, bcc = [await _find_people(email.contacts, scope, named) for named in (wish.to, wish.cc, wish.bcc)]
    if answered is not None and not to:
        own = accounts[account].own_addresses
        to, others = (_as_sent(found) for found in answered.addressees(own))
        cc = (*cc, *others) if wish.everybody else cc
    elif wish.everybody:
        raise EmailRefusal("everybody is for answers without `to`: name the recipients, or leave it out")
    people = {one.address: one.name for one in (*to, *cc, *bcc)}
    mail = OutgoingMail(
        key=f"email:{scope.key}",
        sender=sender,
        to=tuple(one.address for one in to),
        cc=_others_than(to, cc),
        bcc=_others_than((*to, *cc), bcc),
        subject=_subject_of(wish, answered),
        text=wish.text,
        in_reply_to=answered.message_id if answered else "",
        references=answered.references if answered else (),
    )
    checked_mail(mail, "<checked@switchboard.invalid>", draft=wish.draft)
    return ProposedMail(mail, people, await find_files(scope, wish.files), account, answered)


def _hides_something(text: str) -> bool:
    """Whether whoever approves a mail would read something else than whoever gets it."""
    said = text.replace("\r\n", "\n").replace("\r", "\n")
    return visible(said) != said or _VARIANTS.search(said) is not None


async def _find_people(
    resolver: ContactResolver | None, scope: ToolScope, named: Sequence[str]
) -> tuple[Addressee, ...]:
    try:
        return _as_sent(await resolve_addressees(resolver, scope, named))
    except UnresolvedAddressee as error:
        raise EmailRefusal(f"nothing was written: {error}") from error


def _as_sent(found: Sequence[Addressee]) -> tuple[Addressee, ...]:
    """With the addresses that SMTP takes: a letter of another script looks like one of ours. Raises InvalidInput."""
    return tuple(Addressee(checked_address(one.address, "to"), one.name) for one in found)


def _others_than(named: Sequence[Addressee], others: Sequence[Addressee]) -> tuple[str, ...]:
    known = {one.address.lower() for one in named}
    return tuple(dict.fromkeys(one.address for one in others if one.address.lower() not in known))


def _subject_of(wish: MailWish, answered: AnsweredByMail | None) -> str:
    if wish.subject.strip() or answered is None:
        return wish.subject
    return answered_subject(visible(answered.subject))


# From whom ------------------------------------------------------------------------------------------------------------


async def _usable_senders(
    email: WritesMails, scope: ToolScope, accounts: Mapping[str, MailAccount], *, draft: bool
) -> Mapping[str, str]:
    """The addresses from which this call may write, with the accounts that they are of; those of the caller first."""
    own = dict[str, str]()
    for name, account in accounts.items():
        own = dict.fromkeys(account.sends_as, name) | own
    own = {address: own[address] for account in accounts.values() for address in account.sends_as}
    granted = scope.grant.send_as if isinstance(scope.grant, EmailGrants) else None
    if granted is not None:
        allowed = {one.lower() for one in granted}
        own = {address: name for address, name in own.items() if address in allowed}
    if not own:
        raise EmailRefusal("this butler may not write from any address of the caller; an operator grants `send_as`")
    if draft:
        return own
    able = frozenset(await email.desk.senders()) if email.desk is not None else frozenset[str]()
    usable = {address: name for address, name in own.items() if address in able}
    if not usable:
        names = visible_start(", ".join(own), 300)
        raise EmailRefusal(
            f"nothing sends from {names} here: an operator adds the account with `switchboard channels add email` "
            "(`receive=false` for one that only sends)"
        )
    return usable


def _choose_sender(
    accounts: Mapping[str, MailAccount],
    usable: Mapping[str, str],
    wanted: str,
    answered: AnsweredByMail | None,
) -> tuple[str, str]:
    """The name of the account, and the address. Raises EmailRefusal for one from which the call may not write."""
    if wanted:
        if wanted not in usable:
            raise EmailRefusal(f"mails cannot be written from {wanted[:100]!r} here; there is: {', '.join(usable)}")
        return usable[wanted], wanted
    if answered is not None:
        own = [one for one, name in usable.items() if name == answered.account]
        written_to = [one for one in own if one in answered.written_to]
        if not own:
            names = ", ".join(accounts[answered.account].sends_as)
            raise EmailRefusal(f"the mail is in an account from which nothing is sent ({names}); name a `sender`")
        return answered.account, (written_to or own)[0]
    address = next(iter(usable))
    return usable[address], address
