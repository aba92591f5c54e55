"""The messages of a step to attendees and organizers: noted with its writes, and queued once these are carried out.

`carrying.py` calls it with the store of an account and the desk that sends mails; the statements are in `sql/`. In:
`PlannedMail`s; out: mails at the desk, each once. Next: `ports/mail_desk.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final
from uuid import UUID, uuid5

from msgspec import Struct, convert

from switchboard.domain.errors import Conflict, InvalidInput, NotFound
from switchboard.modules.calendar.looking import CalendarRefusal
from switchboard.modules.calendar.mailing.recipients import PlannedMail
from switchboard.modules.calendar.mailing.words import MailWords
from switchboard.ports.mail_desk import CalendarPart, MailDesk, OutgoingMail
from switchboard.ports.module_store import ModuleStore
from switchboard.ports.tools import ToolScope

_KEYS: Final = UUID("5c1c3c4e-3f0b-5f0e-9a5e-6d9b1f6a2f11")


class NotedMail(PlannedMail, frozen=True):
    """A message as it was noted; `turn`: how often this version was answered before."""

    turn: int
    queued: bool

    @property
    def identity(self) -> tuple[str, str, int, str, str, int]:
        """By which it is one."""
        return self.uid, self.recurrence, self.sequence, self.method, self.recipient, self.turn

    def key_in(self, account: str) -> str:
        """By which the desk knows it."""
        said = "\n".join(map(str, (account, *self.identity)))
        return f"calendar:{uuid5(_KEYS, said)}"

    def as_mail(self, account: str) -> OutgoingMail:
        """As it leaves."""
        return OutgoingMail(
            key=self.key_in(account),
            sender=self.sender,
            to=(self.recipient,),
            subject=self.words.subject,
            text=self.words.text,
            calendar=CalendarPart(self.method, self.ics.decode("utf-8", "replace")),
            automatic=True,
        )


class MailQueue(Struct, frozen=True):
    """Where the messages of a call go: the desk, and for whom the call is made. `account`: its name."""

    desk: MailDesk
    scope: ToolScope
    account: str

    async def queue_step(self, store: ModuleStore, step: UUID) -> tuple[str, ...]:
        """Queue what the step has noted, and is not queued; returns to whom all of it goes. Raises CalendarRefusal."""
        noted = await mails_of_step(store, step)
        for one in noted:
            if not one.queued:
                await self._queue_mail(store, one)
        return tuple(one.recipient for one in noted)

    async def _queue_mail(self, store: ModuleStore, mail: NotedMail) -> None:
        try:
            await self.desk.queue(mail.as_mail(self.account), self.scope)
        except (Conflict, InvalidInput, NotFound) as error:
            raise CalendarRefusal(
                f"it was written, but {mail.recipient} was not told by mail: {error.message}. Tell the person"
            ) from error
        await store.run("mails.queued", *mail.identity)


async def note_mails(store: ModuleStore, step: UUID, mails: Sequence[PlannedMail], made_by: str) -> None:
    """All messages of a step, in the transaction that notes its writes."""
    for place, one in enumerate(mails):
        identity = (one.uid, one.recurrence, one.sequence, one.method, one.recipient)
        texts = (one.sender, one.words.subject, one.words.text, one.ics)
        await store.run("mails.note", *identity, step, place, *texts, made_by)


async def mails_of_step(store: ModuleStore, step: UUID) -> tuple[NotedMail, ...]:
    """What a step has noted, in order."""
    return tuple(map(_mail_from, await store.rows("mails.of_step", step)))


def _mail_from(row: Mapping[str, Any]) -> NotedMail:
    return convert({**row, "words": MailWords(row["subject"], row["words"])}, NotedMail)


async def latest_version(store: ModuleStore, uid: str) -> int:
    """The latest version of an event that others may have been told; -1: none."""
    sequence: int = (await store.rows("mails.latest", uid))[0]["sequence"]
    return sequence
