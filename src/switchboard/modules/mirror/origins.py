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


def origin_of(account: DavAccount) -> MirrorOrigin:
    """What makes an account another one; a new password does not."""
    return MirrorOrigin(account.url.rstrip("/"), account.user, account.owner)


async def claim_mirror(store: ModuleStore, account: DavAccount, keeper: MirrorKeeper) -> None:
    """What is kept is of this account from now on; what was of another one is erased."""
    wanted = origin_of(account)
    async with store.transaction() as one:
        known = await _find_origin(one)
        if known == wanted:
            return
        if known is not None:
            await keeper.on_erased(one)
            await one.run("origins.erase")
        await one.run("origins.note", wanted.url, wanted.login, wanted.owner)


async def own_mirrors_of(
    accounts: Mapping[str, DavAccount], store_of: Callable[[str], ModuleStore]
) -> Mapping[str, DavAccount]:
    """Those of these accounts whose mirror, if there is one, is theirs."""
    found = await asyncio.gather(*(_find_origin(store_of(name)) for name in accounts))
    return {
        name: account
        for (name, account), known in zip(accounts.items(), found, strict=True)
        if known is None or known == origin_of(account)
    }


async def _find_origin(store: ModuleStore) -> MirrorOrigin | None:
    rows = await store.rows("origins.find")
    return convert(dict(rows[0]), MirrorOrigin) if rows else None
