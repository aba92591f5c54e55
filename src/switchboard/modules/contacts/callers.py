"""Whose accounts a call of a tool sees: asked for each call, in one place. It imports no library.

`looking.py` and `writing.py` begin with it. In: the scope of a call; out: accounts, or why there are none. Next:
`modules/accounts/walls.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec import Struct

from switchboard.modules.accounts.settings import DavAccount
from switchboard.modules.accounts.walls import accounts_seen, why_nothing
from switchboard.modules.mirror.origins import NOT_READ_YET, own_mirrors_of
from switchboard.ports.module_store import ModuleStore
from switchboard.ports.people_seen import PeopleSeen
from switchboard.ports.tools import ToolScope


class ContactsRefusal(LookupError):
    """The sentence that the model is told: why nothing was found or done, and what would be right."""


class ContactAccounts(Struct, frozen=True):
    """The accounts of the settings, their stores, and who knows people."""

    accounts: Mapping[str, DavAccount]
    store_of: Callable[[str], ModuleStore]
    people: PeopleSeen

    async def seen_by(self, scope: ToolScope) -> Mapping[str, DavAccount]:
        """Those whose contacts are told in answer to this call. Raises ContactsRefusal if there are none."""
        seen = await self.people.seen_in(scope)
        sights = accounts_seen(seen, self.accounts)
        if not sights:
            raise ContactsRefusal(why_nothing(seen, self.accounts))
        theirs = await own_mirrors_of({name: self.accounts[name] for name in sights}, self.store_of)
        if not theirs:
            raise ContactsRefusal(NOT_READ_YET)
        return {name: self.accounts[name] for name in theirs}
