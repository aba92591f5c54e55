"""Reads one mail for a call: its text, who has sent it, its files, and the other mails of its thread.

`opened.py` calls it. In: the id of a mail; out: JSON, all of whose texts were written by others. Nothing is marked as
read, and no picture is loaded. Next: `locating.py`, `contents.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Final
from zoneinfo import ZoneInfo

from msgspec import Struct
from msgspec.structs import replace

from switchboard.core.files.blobs import HEAD_BYTES, PREFIX, sniff
from switchboard.core.files.reply_files import size_text
from switchboard.core.mail.charsets import read_text
from switchboard.core.mail.head import decode_field
from switchboard.core.text.visible import visible, visible_start
from switchboard.core.turns.images import inbox_name
from switchboard.domain.envelope import Attachment
from switchboard.domain.errors import InvalidInput
from switchboard.domain.json_values import JsonObject
from switchboard.modules.email.callers import EmailRefusal
from switchboard.modules.email.connections import Deadline, MailConnections, OpenBox
from switchboard.modules.email.contents import MailContents, ReadMail, is_shown
from switchboard.modules.email.describing import MAILBOX_FAILURES, describe_mail_failure
from switchboard.modules.email.heads import ListedMail, show_listed
from switchboard.modules.email.locating import MailLocator
from switchboard.modules.email.names import MailId, read_mail_id
from switchboard.modules.email.settings import MailAccount
from switchboard.tools.inbox import keep_file
from switchboard.tools.workspace import ToolRefusal

MOST_TEXT: Final = 12_000
"""Characters of a text in one answer: with everything around them, models are shown about 16,000."""
MOST_MAIL: Final = 25_000_000
"""Bytes of a mail that are read."""
_BEGINNING: Final = 500
"""Characters of what the person wrote last in a thread."""
_SMALL_MAIL: Final = 100_000
"""Bytes of that mail that are read."""
_NAMED: Final = 300
_LISTED: Final = 30
_TEXTS: Final = ("text/", "application/json", "application/xml")


class MailReading(Struct, frozen=True):
    """How one call reads: whose mails, over which connections, for what zone, and for how long."""

    accounts: Mapping[str, MailAccount]
    connections: MailConnections
    contents: MailContents
    zone: ZoneInfo
    deadline: Deadline

    async def read(self, text_id: str, start: int, *, quoted: bool) -> JsonObject:
        """A mail, its text from the character `start` on. Raises EmailRefusal, Unavailable."""
        wanted = self._find_id(text_id)
        async with self._open_box(wanted) as (box, locator):
            listed = await _found_mail(locator, wanted)
            mail = await self._read_contents(box, listed, quoted=quoted)
            shown = show_listed(listed, self.zone) | _show_contents(mail, self._servers_of(wanted), start)
            if listed.size > MOST_MAIL:
                shown["cut_off"] = f"the mail has {size_text(listed.size)}; only its beginning was read"
            return shown | await self._show_thread(box, locator, listed)

    async def fetch_attachment(self, text_id: str, number: int, results: Path | None) -> JsonObject:
        """A file of a mail, kept for the readers of the turn; of a text also its beginning. Raises as `read`."""
        wanted = self._find_id(text_id)
        async with self._open_box(wanted) as (box, locator):
            mail = await self._read_contents(box, await _found_mail(locator, wanted))
        if not 1 <= number <= len(mail.attachments):
            raise EmailRefusal(f"the mail has no attachment {number}; it has {len(mail.attachments)}")
        data = await self.contents.file(mail, number - 1)
        if data is None:
            raise EmailRefusal("the attachment cannot be read")
        about = mail.attachments[number - 1]
        return _show_attachment(number, about) | await _keep_data(about, data, results) | _show_text(about, data)

    def _find_id(self, text_id: str) -> MailId:
        """Of others' accounts nobody is told that they exist."""
        wanted = read_mail_id(text_id)
        if wanted is None or wanted.account not in self.accounts:
            raise EmailRefusal(f"no mail has the id {text_id[:100]!r}; ids are in the results of email_search")
        return wanted

    def _servers_of(self, wanted: MailId) -> frozenset[str]:
        return frozenset(one.lower() for one in self.accounts[wanted.account].trusted_servers)

    @asynccontextmanager
    async def _open_box(self, wanted: MailId) -> AsyncIterator[tuple[OpenBox, MailLocator]]:
        account = self.accounts[wanted.account]
        try:
            async with self.connections.open_box(wanted.account, account, self.deadline) as box:
                yield box, MailLocator(wanted.account, box, account.own_addresses)
        except MAILBOX_FAILURES as error:
            raise EmailRefusal(describe_mail_failure(error)) from error

    async def _read_contents(
        self, box: OpenBox, listed: ListedMail, *, quoted: bool = False, most: int = MOST_MAIL
    ) -> ReadMail:
        place = listed.id.place
        await box.open_folder(place.folder)
        fetched = await box.run(box.box.read, place.uid, most=most)
        if fetched is None:
            raise EmailRefusal("the mail was deleted meanwhile")
        try:
            return await self.contents.read(fetched.raw, quoted=quoted)
        except InvalidInput as error:
            raise EmailRefusal(f"the mail cannot be read: {error.message}") from error

    async def _show_thread(self, box: OpenBox, locator: MailLocator, listed: ListedMail) -> JsonObject:
        """Without it the mail is told as well. What the person wrote last is told with it, as that is what is asked."""
        try:
            thread = await locator.thread_of(listed)
            own = next((one for one in reversed(thread) if one.own), None)
            said = {} if own is None else {own.identity: await self._beginning_of(box, own)}
        except MAILBOX_FAILURES as error:
            return {"thread": [], "thread_unknown": describe_mail_failure(error)}
        return {"thread": [show_listed(one, self.zone) | said.get(one.identity, {}) for one in thread[-_LISTED:]]}

    async def _beginning_of(self, box: OpenBox, listed: ListedMail) -> JsonObject:
        """Nothing of a mail that cannot be read."""
        with suppress(EmailRefusal):
            mail = await self._read_contents(box, listed, most=_SMALL_MAIL)
            more = {"more": "read it for the rest"} if len(mail.text) > _BEGINNING else {}
            return {"text": mail.text[:_BEGINNING], **more}
        return {}


async def _found_mail(locator: MailLocator, wanted: MailId) -> ListedMail:
    found = await locator.find(wanted)
    if found is None:
        raise EmailRefusal("the mail is not there any more; search again")
    return found


def _show_contents(mail: ReadMail, trusted: frozenset[str], start: int) -> JsonObject:
    text = mail.text[start : start + MOST_TEXT]
    left = len(mail.text) - start - len(text)
    copies = visible_start(decode_field(mail.header("cc")), _NAMED)
    shown: JsonObject = {
        "sender_authentication": mail.authentication(trusted),
        **({"cc": copies} if copies else {}),
        **({"protection": mail.protection} if mail.protection else {}),
        "text": text,
    }
    if left > 0:
        shown["more"] = f"{left} more characters; go on with start={start + len(text)}"
    if mail.quoted_lines:
        shown["quoted"] = f"{mail.quoted_lines} lines of what it answers are left out; quoted=true shows them"
    attached = enumerate(mail.attachments, 1)
    if files := [_show_attachment(number, one) for number, one in attached if not is_shown(one)]:
        shown["attachments"] = [*files[:_LISTED]]
    return shown


def _show_attachment(number: int, one: Attachment) -> JsonObject:
    name = visible_start(one.filename or "", _NAMED)
    return {"number": number, "name": name, "type": one.media_type, "size": size_text(one.size_bytes)}


def _show_text(about: Attachment, data: bytes) -> JsonObject:
    if not about.media_type.startswith(_TEXTS):
        return {}
    text = visible(read_text(data[: 8 * MOST_TEXT]).text)
    return {"text": text[:MOST_TEXT], **({"more": "the rest is in the file"} if len(text) > MOST_TEXT else {})}


async def _keep_data(about: Attachment, data: bytes, results: Path | None) -> JsonObject:
    """Where other tools find it, as they find the files of messages."""
    kind = sniff(data[:HEAD_BYTES], about.media_type).media_type
    stored = replace(about, media_type=kind, size_bytes=len(data), storage_ref=f"{PREFIX}{sha256(data).hexdigest()}")
    name = inbox_name(stored)
    if results is None:
        return {"file": None, "why": "files cannot be kept here"}
    if name is None:
        return {"file": None, "why": f"it is too large to be kept ({size_text(len(data))})"}
    try:
        await asyncio.to_thread(keep_file, results, name, data)
    except (ToolRefusal, OSError) as error:
        return {"file": None, "why": f"it could not be kept: {error}"}
    return {"file": name}
