"""Of which account a mirror is: the name of an account in the settings may be given to another one.

A sync begins with `claim_mirror`, which erases what is kept under the name of something else. Tools ask
`own_mirrors_of` before they look at anything. Next: `kept.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from msgspec import Struct, convert

from switchboard.modules.accounts.settings import DavAccount
from switchboard.modules.mirror.keeper import MirrorKeeper
from switchboard.ports.module_store import ModuleStore

NOT_READ_YET = "This account was changed in the settings, and has not been read since; try again in a few minutes."


class MirrorOrigin(Struct, frozen=True):
    """The account on a server that is mirrored, and whose it is."""

    url: str
    login: str
    owner: str


class MirroredAccount(Struct, frozen=True):
    """An account whose mirror is its own; `shared` are collections in it that are somebody else's on the server."""

    account: DavAccount
    shared: frozenset[str] = frozenset()


def origin_of(account: DavAccount) -> MirrorOrigin:
    """What makes an account another one; a new password does not."""
    return MirrorOrigin(account.url.rstrip("/"), account.user, account.owner)


async def claim_mirror(store: ModuleStore, account: DavAccount, keeper: MirrorKeeper) -> None:
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
    accounts: Mapping[str, DavAccount], store_of: Callable[[str], ModuleStore]
) -> Mapping[str, MirroredAccount]:
    """Those of these accounts whose mirror, if there is one, is theirs."""
    found = await asyncio.gather(*(_own_mirror_of(account, store_of(name)) for name, account in accounts.items()))
    return {name: one for name, one in zip(accounts, found, strict=True) if one is not None}


async def _own_mirror_of(account: DavAccount, store: ModuleStore) -> MirroredAccount | None:
    rows = await store.rows("origins.find")
    if not rows:
        return MirroredAccount(account)
    if convert(dict(rows[0]), MirrorOrigin) != origin_of(account):
        return None
    return MirroredAccount(account, frozenset(rows[0]["shared"]))
