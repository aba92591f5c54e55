"""The chore `sync`: brings the mirror of an account up to date, every 15 minutes.

`opened.py` names it. An error is a sentence for operators, which `switchboard modules list` and `doctor` show. Next:
`modules/mirror/sync.py`.
"""

from __future__ import annotations

from switchboard.domain.errors import Unavailable
from switchboard.modules.accounts.failures import describe_for_operators
from switchboard.modules.accounts.servers import open_listed_books
from switchboard.modules.accounts.settings import DavAccount
from switchboard.modules.contacts.mirror import CardKeeper
from switchboard.modules.mirror.origins import claim_mirror
from switchboard.modules.mirror.sync import sync_account
from switchboard.ports.collection_server import ServerError
from switchboard.ports.module_store import ModuleStore
from switchboard.transport.dav.kinds import CARDDAV


async def sync_contacts(name: str, account: DavAccount, store: ModuleStore) -> None:
    """One run. Raises ConfigurationError without a password, and Unavailable with what is wrong with the server."""
    opening, keeper = open_listed_books(name, account), CardKeeper(account.region)
    await claim_mirror(store, account, keeper)
    try:
        async with opening as server:
            await sync_account(store, server, keeper)
    except ServerError as error:
        raise Unavailable(
            f"the account {name!r}: {describe_for_operators(error, CARDDAV if account.provider == 'dav' else None)}"
        ) from error
