"""Keeps a draft in the mailbox of whoever will send it, once, and in place of an older one.

`write_tools.py` calls it. In: a `ProposedMail`; out: where the draft is. A draft has a Message-ID that follows from the
step which writes it, so that a repeated step finds it. The older one is removed only when the new one is there, by its
UID, so that nothing else is expunged with it. Next: `transport/mail_servers/mailbox.py`.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from hashlib import sha256
from typing import Final

from msgspec import Struct

from switchboard.core.mail.headers import domain_of
from switchboard.core.mail.writing import File
from switchboard.core.mail.written import checked_mail, compose_written
from switchboard.domain.json_values import JsonObject
from switchboard.modules.email.callers import EmailRefusal
from switchboard.modules.email.composing import ProposedMail
from switchboard.modules.email.connections import Deadline, MailConnections, OpenBox
from switchboard.modules.email.describing import MAILBOX_FAILURES, describe_mail_failure
from switchboard.modules.email.folders import drafts_folder
from switchboard.modules.email.names import MailId, MailPlace, read_mail_id
from switchboard.modules.email.settings import MailAccount
from switchboard.ports.tools import ToolScope

_OURS: Final = re.compile(r"[0-9a-f]{40}@[A-Za-z0-9.-]*")
"""The Message-IDs of drafts that this module has written. Programs of people make others."""
_STAYS: Final = "its server removes no single mail (no UIDPLUS): delete the older draft yourself"


class DraftDesk(Struct, frozen=True):
    """Where drafts are kept: in the accounts that the call sees."""

    accounts: Mapping[str, MailAccount]
    connections: MailConnections

    async def keep(self, scope: ToolScope, mail: ProposedMail, files: tuple[File, ...], replaces: str) -> JsonObject:
        """Keep a draft in place of `replaces`, if that is given. Raises EmailRefusal."""
        message_id = f"<{sha256(f'draft {scope.key}'.encode()).hexdigest()[:40]}@{domain_of(mail.mail.sender) or ''}>"
        try:
            async with self.connections.open_box(mail.account, self.accounts[mail.account], Deadline()) as box:
                folder = drafts_folder(await box.run(box.box.folders))
                if folder is None:
                    raise EmailRefusal("the mailbox has no folder for drafts")
                older = await self._find_older(box, mail.account, folder, replaces) if replaces.strip() else ()
                if not await _find_drafts(box, folder, message_id):
                    if older is None:
                        raise EmailRefusal("the draft to replace is not there any more; nothing was written")
                    written = checked_mail(mail.mail, message_id, draft=True)
                    now = datetime.now(UTC)
                    composed = await asyncio.to_thread(
                        compose_written, written, mail.mail.text, files, now=now, draft=True
                    )
                    await box.run(box.box.append, folder, composed, draft=True)
                return await _told_draft(box, mail.account, folder, message_id, older or ())
        except MAILBOX_FAILURES as error:
            raise EmailRefusal(describe_mail_failure(error)) from error

    async def _find_older(self, box: OpenBox, account: str, folder: str, replaces: str) -> tuple[int, ...] | None:
        """The UIDs of the older draft; None if it is not there. Raises EmailRefusal for what is no draft."""
        wanted = read_mail_id(replaces)
        if wanted is None or wanted.account != account or wanted.place.folder != folder:
            raise EmailRefusal("`replaces` is the id of a draft of the same account, as email_draft has told it")
        if not _OURS.fullmatch(wanted.message_id):
            raise EmailRefusal("that draft is the person's own, and only they replace it; leave `replaces` out")
        return tuple(await _find_drafts(box, folder, f"<{wanted.message_id}>")) or None


async def _find_drafts(box: OpenBox, folder: str, message_id: str) -> list[int]:
    await box.open_folder(folder)
    return await box.run(box.box.with_message_id, message_id)


async def _told_draft(box: OpenBox, account: str, folder: str, message_id: str, older: tuple[int, ...]) -> JsonObject:
    """What the model is told, once the older draft is removed."""
    validity, uids = await box.open_folder(folder), await _find_drafts(box, folder, message_id)
    place = MailPlace(folder, validity, max(uids, default=0))
    told: JsonObject = {"draft": MailId(account, place, message_id.strip("<>")).text, "folder": folder}
    if older and not await box.run(box.box.remove, folder, older):
        told["older_draft"] = _STAYS
    return told
