"""Searches mailboxes: which mails there are in the folders that matter, joined, the newest first.

`opened.py` calls it. In: the accounts that a call sees, and `WantedMails`; out: JSON with a page of mails. What is
found are numbers first, then the header fields of those on the page alone. Next: `wanted.py`, `folders.py`, `heads.py`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import groupby
from typing import Final
from zoneinfo import ZoneInfo

from msgspec import Struct
from msgspec.structs import replace

from switchboard.core.text.visible import visible_start
from switchboard.domain.json_values import JsonObject
from switchboard.modules.email.callers import EmailRefusal
from switchboard.modules.email.connections import Deadline, MailConnections, OpenBox
from switchboard.modules.email.contents import MailContents
from switchboard.modules.email.describing import MAILBOX_FAILURES, describe_mail_failure
from switchboard.modules.email.folders import folders_to_search, is_for_all, is_sent
from switchboard.modules.email.heads import FoundFolder, ListedMail, list_mails, show_listed
from switchboard.modules.email.settings import MailAccount
from switchboard.modules.email.wanted import WantedMails, has_wanted_words, is_in_days, search_keys
from switchboard.transport.mail_servers.mailbox import CharsetRefused, MailFolder

PAGE: Final = 50
"""Mails of an answer."""
MOST_LISTED: Final = 10_000
"""If more are found, they are counted by month instead."""
_MONTHS: Final = 36
_LOOKED_AT: Final = 1_000
"""Mails whose header fields are read for a page, and those whose whole text is."""
_COMPARED: Final = 200
_COMPARED_BYTES: Final = 262_144
_ROUND: Final = 100
_UNKNOWN_TIME: Final = datetime.fromtimestamp(0, UTC)


class MailHit(Struct, frozen=True):
    """A mail that a server has found."""

    arrived: datetime
    folder: FoundFolder
    uid: int


@dataclass
class SearchedAccount:
    """What a server has found, over a connection that is still open. `problems`: what could not be searched.

    `folders`: those that were.
    """

    name: str
    own_addresses: frozenset[str]
    box: OpenBox | None = None
    hits: list[MailHit] = field(default_factory=list)
    folders: list[str] = field(default_factory=list)
    approximate: bool = False
    problems: list[str] = field(default_factory=list)


class MailPage(Struct, frozen=True):
    """Mails that are told. `looked_at`: how many hits were looked at for them, and before."""

    mails: tuple[ListedMail, ...]
    looked_at: int
    complete: bool


class MailSearch(Struct, frozen=True):
    """How one call searches: over which connections, for what, and for how long."""

    connections: MailConnections
    contents: MailContents
    wanted: WantedMails
    zone: ZoneInfo
    deadline: Deadline

    async def search(self, accounts: Mapping[str, MailAccount], start: int) -> JsonObject:
        """The page that begins with the hit `start`. Raises EmailRefusal if no account could be searched."""
        async with AsyncExitStack() as stack:
            searched = await asyncio.gather(*(self._search_account(stack, *one) for one in accounts.items()))
            problems = {one.name: one.problems for one in searched if one.problems}
            hits = [hit for one in searched for hit in one.hits]
            if not hits and len(problems) == len(searched):
                raise EmailRefusal("; ".join(f"the account {name}: {', '.join(why)}" for name, why in problems.items()))
            told: JsonObject = {"found": len(hits)}
            if len(hits) > MOST_LISTED:
                counted = await asyncio.to_thread(_count_months, hits, self.zone)
                told |= {"per_month": counted, "advice": "too many to list: ask for fewer days"}
            else:
                page = await self._list_page({one.name: one for one in searched}, _newest_first(hits), start)
                told |= _show_page(page, len(hits), self.zone)
            if not hits:
                told["searched"] = {one.name: [visible_start(name, 100) for name in one.folders] for one in searched}
        if any(one.approximate for one in searched):
            told["approximate"] = "the server searches for ASCII only, so some of it was compared here"
        return told | ({"problems": {name: [*why] for name, why in problems.items()}} if problems else {})

    # What there is ----------------------------------------------------------------------------------------------------

    async def _search_account(self, stack: AsyncExitStack, name: str, account: MailAccount) -> SearchedAccount:
        searched = SearchedAccount(name, account.own_addresses)
        try:
            box = await stack.enter_async_context(self.connections.open_box(name, account, self.deadline))
            listed = await box.run(box.box.folders)
            folders = folders_to_search(self.wanted.folder, listed)
            if not folders:
                names = visible_start(", ".join(one.name for one in listed), 500)
                searched.problems.append(f"there is no folder {self.wanted.folder!r}; there are: {names}")
            searched.box = box
            if not await self._search_folders(searched, listed, folders):
                searched.box = await stack.enter_async_context(self.connections.open_box(name, account, self.deadline))
        except MAILBOX_FAILURES as error:
            searched.problems.append(describe_mail_failure(error))
        return searched

    async def _search_folders(
        self, searched: SearchedAccount, listed: Sequence[MailFolder], folders: Sequence[MailFolder]
    ) -> bool:
        """Whether the connection can still be used: if a folder takes too long, those behind it are not searched."""
        for at, one in enumerate(folders):
            found = FoundFolder(searched.name, one.name, 0, sent=is_sent(one, listed), everything=is_for_all(one))
            try:
                searched.hits += await self._search_folder(searched, found)
                searched.folders.append(one.name)
            except TimeoutError as error:
                names = ", ".join(each.name for each in folders[at:])
                searched.problems.append(f"not searched: {names}: {describe_mail_failure(error)}")
                return False
            except MAILBOX_FAILURES as error:
                searched.problems.append(f"not searched: {one.name}: {describe_mail_failure(error)}")
        return True

    async def _search_folder(self, searched: SearchedAccount, folder: FoundFolder) -> list[MailHit]:
        box = searched.box
        if box is None:
            return []
        opened = replace(folder, validity=await box.open_folder(folder.name))
        try:
            uids = await box.run(box.box.search, search_keys(self.wanted, ascii_only=searched.approximate))
        except CharsetRefused:
            searched.approximate = True
            uids = await box.run(box.box.search, search_keys(self.wanted, ascii_only=True))
        arrivals = await box.run(box.box.arrivals, uids)
        return await asyncio.to_thread(_hits_of, uids, arrivals, opened)

    # What is told -----------------------------------------------------------------------------------------------------

    async def _list_page(
        self, searched: Mapping[str, SearchedAccount], hits: Sequence[MailHit], start: int
    ) -> MailPage:
        """Hits are looked at one after the other, until there is a page of mails, or time is over."""
        mails = dict[tuple[str, ...], ListedMail]()
        approximate = any(one.approximate for one in searched.values())
        at, end = start, start + (_COMPARED if approximate else _LOOKED_AT)
        try:
            while at < min(len(hits), end) and len(mails) < PAGE:
                some = hits[at : min(at + _ROUND, end)]
                listed = await self._read_heads(searched, some)
                for hit in some:
                    if len(mails) == PAGE:
                        break
                    one = listed.get(hit)
                    if one and one.identity not in mails and await self._is_wanted(searched[hit.folder.account], one):
                        mails[one.identity] = one
                    at += 1
        except MAILBOX_FAILURES:
            return MailPage(tuple(mails.values()), at, complete=False)
        return MailPage(tuple(mails.values()), at, complete=True)

    async def _read_heads(
        self, searched: Mapping[str, SearchedAccount], hits: Sequence[MailHit]
    ) -> dict[MailHit, ListedMail]:
        """Without those that are gone."""
        listed = dict[MailHit, ListedMail]()
        for folder, of_folder in groupby(sorted(hits, key=_folder_of), key=lambda one: one.folder):
            account, some = searched[folder.account], {one.uid: one for one in of_folder}
            if account.box is None or await account.box.open_folder(folder.name) != folder.validity:
                continue
            heads = await account.box.run(account.box.box.heads, [*some])
            mails = await asyncio.to_thread(list_mails, heads, folder, account.own_addresses)
            listed |= {some[uid]: mail for uid, mail in mails.items() if uid in some}
        return listed

    async def _is_wanted(self, searched: SearchedAccount, one: ListedMail) -> bool:
        """What servers do not know: the days of the person, and what they could not search for."""
        if not is_in_days(self.wanted, one.sent, self.zone) or (self.wanted.attached and not one.attached):
            return False
        if not searched.approximate or has_wanted_words(self.wanted, one.texts):
            return True
        if searched.box is None or not has_wanted_words(replace(self.wanted, words=()), one.texts):
            return False
        await searched.box.open_folder(one.id.place.folder)
        raw = await searched.box.run(searched.box.box.read, one.id.place.uid, most=_COMPARED_BYTES)
        whole = await self.contents.text_of(raw.raw) if raw is not None else ""
        return has_wanted_words(self.wanted, replace(one.texts, whole=whole))


def _hits_of(uids: Sequence[int], arrivals: Mapping[int, datetime], folder: FoundFolder) -> list[MailHit]:
    return [MailHit(arrivals.get(uid, _UNKNOWN_TIME), folder, uid) for uid in uids]


def _newest_first(hits: Sequence[MailHit]) -> list[MailHit]:
    return sorted(hits, key=lambda one: (one.arrived, one.folder.account, one.folder.name, one.uid), reverse=True)


def _folder_of(hit: MailHit) -> tuple[str, str]:
    return hit.folder.account, hit.folder.name


def _count_months(hits: Sequence[MailHit], zone: ZoneInfo) -> JsonObject:
    counted = Counter(f"{one.arrived.astimezone(zone):%Y-%m}" for one in hits)
    return dict(sorted(counted.items(), reverse=True)[:_MONTHS])


def _show_page(page: MailPage, found: int, zone: ZoneInfo) -> JsonObject:
    mails = sorted(page.mails, key=lambda one: one.sent, reverse=True)
    shown: JsonObject = {"mails": [show_listed(one, zone) for one in mails]}
    if page.looked_at < found:
        shown["next"] = page.looked_at
    if not page.complete:
        shown["incomplete"] = "the mail server took too long, or broke off; go on with `next`"
    return shown
