"""Finds the mail that an id names: where it was, or wherever it is now; and the other mails of its thread.

`reading.py` calls it. In: a `MailId`, and an open connection; out: places of mails. Next: `folders.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Final

from switchboard.modules.email.connections import OpenBox
from switchboard.modules.email.folders import folders_to_search, is_for_all, is_sent
from switchboard.modules.email.heads import FoundFolder, ListedMail, list_mails
from switchboard.modules.email.names import MailId
from switchboard.transport.mail_servers.criteria import SearchKey, SearchText, any_of, search_day
from switchboard.transport.mail_servers.mailbox import MailFolder

_THREAD: Final = timedelta(days=90)
"""Before and after a mail: in all of a mailbox, a search for what answers it takes servers long."""
_MOST_OF_THREAD: Final = 50


class MailLocator:
    """Looks in one mailbox, whose folders it asks for once."""

    def __init__(self, account: str, box: OpenBox, own_addresses: frozenset[str]) -> None:
        self._account = account
        self._box = box
        self._own = own_addresses
        self._listed: Sequence[MailFolder] | None = None

    async def find(self, wanted: MailId) -> ListedMail | None:
        """The mail where its id says that it is, else where its Message-ID is found; None: it is in neither."""
        place = wanted.place
        with suppress(FileNotFoundError):
            if await self._box.open_folder(place.folder) == place.validity:
                [*found] = await self._list_mails(place.folder, [place.uid])
                if found and (found[0].id.message_id == wanted.message_id):
                    return found[0]
        return await self._find_again(wanted) if wanted.message_id else None

    async def _find_again(self, wanted: MailId) -> ListedMail | None:
        for folder in dict.fromkeys((wanted.place.folder, *await self._usual_folders())):
            with suppress(FileNotFoundError):
                keys = ("HEADER", "MESSAGE-ID", SearchText(wanted.message_id))
                for one in await self._search_folder(folder, keys):
                    if one.id.message_id == wanted.message_id:
                        return one
        return None

    async def thread_of(self, mail: ListedMail) -> tuple[ListedMail, ...]:
        """The other mails of its conversation, the oldest first."""
        found = dict[tuple[str, ...], ListedMail]()
        keys = _thread_keys(mail)
        for folder in await self._usual_folders() if keys else ():
            with suppress(FileNotFoundError):
                found |= {one.identity: one for one in await self._search_folder(folder, keys)}
        found.pop(mail.identity, None)
        return tuple(sorted(found.values(), key=lambda one: one.sent))

    async def _usual_folders(self) -> tuple[str, ...]:
        return tuple(one.name for one in folders_to_search("", await self._list_folders()))

    async def _list_folders(self) -> Sequence[MailFolder]:
        if self._listed is None:
            self._listed = await self._box.run(self._box.box.folders)
        return self._listed

    async def _search_folder(self, folder: str, keys: Sequence[SearchKey]) -> list[ListedMail]:
        await self._box.open_folder(folder)
        uids = await self._box.run(self._box.box.search, keys)
        return await self._list_mails(folder, sorted(uids)[-_MOST_OF_THREAD:]) if uids else []

    async def _list_mails(self, folder: str, uids: Sequence[int]) -> list[ListedMail]:
        validity = await self._box.open_folder(folder)
        listed = await self._list_folders()
        marked = next((one for one in listed if one.name == folder), MailFolder(folder, frozenset(), "/"))
        found = FoundFolder(
            self._account, folder, validity, sent=is_sent(marked, listed), everything=is_for_all(marked)
        )
        heads = await self._box.run(self._box.box.heads, uids)
        mails = await asyncio.to_thread(list_mails, heads, found, self._own)
        return [mail for uid, mail in sorted(mails.items()) if uid in uids]


def _thread_keys(mail: ListedMail) -> tuple[SearchKey, ...]:
    """What it answers, and what answers it, around its time. Nothing if no mail refers to another."""
    own, ids = mail.id.message_id, [one for one in (*mail.answers[:1], *mail.answers[-1:]) if one]
    ways: list[Sequence[SearchKey]] = [("HEADER", "MESSAGE-ID", SearchText(one)) for one in dict.fromkeys(ids)]
    ways += [
        ("HEADER", name, SearchText(one))
        for one in dict.fromkeys(filter(None, (own, *ids[:1])))
        for name in ("REFERENCES", "IN-REPLY-TO")
    ]
    if not ways:
        return ()
    first, last = (mail.sent + change for change in (-_THREAD, _THREAD))
    return (f"SINCE {search_day(first.date())}", f"BEFORE {search_day(last.date())}", *any_of(ways))
