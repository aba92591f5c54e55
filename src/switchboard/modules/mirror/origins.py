"""Of which account a mirror is: the name of an account in the settings may be given to another one.

A sync begins with `claim_mirror`, which erases what is kept under the name of something else. Tools ask
`own_mirrors_of` before they look at anything. Next: `kept.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Protocol

from msgspec import Struct, convert

from switchboard.modules.mirror.keeper import MirrorKeeper
from switchboard.ports.module_store import ModuleStore

NOT_READ_YET = "This account was changed in the settings, and has not been read since; try again in a few minutes."


class MirrorOrigin(Struct, frozen=True):
    """The account on a server that is mirrored, and whose it is."""

    url: str
    login: str
    owner: str


class MirroredAccount(Protocol):
    """An account of the settings; `owner` is `person:ann` or `group:family`."""

    @property
    def url(self) -> str: ...

    @property
    def user(self) -> str: ...

    @property
    def owner(self) -> str: ...


def origin_of(account: MirroredAccount) -> MirrorOrigin:
    """What makes an account another one; a new password does not."""
    return MirrorOrigin(account.url.rstrip("/"), account.user, account.owner)


async def claim_mirror(store: ModuleStore, account: MirroredAccount, keeper: MirrorKeeper) -> None:
    """What is kept is of this account from now on; what was of another one is erased."""
    wanted = origin_of(account)
    async with store.transaction() as one:
        rows = await one.rows("origins.find")
        if rows and convert(dict(rows[0]), MirrorOrigin) == wanted:
            return
        if rows:
            await keeper.on_erased(one)
            await one.run("origins.erase")
        await one.run("origins.note", wanted.url, wanted.login, wanted.owner)


async def own_mirrors_of(
    accounts: Mapping[str, MirroredAccount], store_of: Callable[[str], ModuleStore]
) -> Mapping[str, frozenset[str]]:
    """Those of these accounts whose mirror, if there is one, is theirs: with the collections that others share."""
    found = await asyncio.gather(*(_shared_in(account, store_of(name)) for name, account in accounts.items()))
    return {name: shared for name, shared in zip(accounts, found, strict=True) if shared is not None}


async def _shared_in(account: MirroredAccount, store: ModuleStore) -> frozenset[str] | None:
    """None: the mirror is of another account."""
    rows = await store.rows("origins.find")
    if rows and convert(dict(rows[0]), MirrorOrigin) != origin_of(account):
        return None
    return frozenset(rows[0]["shared"] if rows else ())
