"""The chore `sync`: brings the mirror of an account up to date, every 5 minutes.

`opened.py` names it. An error is a sentence for operators, which `switchboard modules list` and `doctor` show. Next:
`modules/mirror/sync.py`, and `occurrences.py`, which it calls for each object.
"""

from __future__ import annotations

from typing import Final

from switchboard.domain.errors import Unavailable
from switchboard.modules.accounts.failures import describe_for_operators
from switchboard.modules.accounts.servers import open_listed_calendars
from switchboard.modules.accounts.settings import DavAccount
from switchboard.modules.calendar.occurrences import CalendarKeeper
from switchboard.modules.mirror.origins import claim_mirror
from switchboard.modules.mirror.sync import sync_account
from switchboard.ports.collection_server import ServerError
from switchboard.ports.module_store import ModuleStore
from switchboard.transport.dav.kinds import CALDAV

SYNC_EVERY_S: Final = 300.0


async def sync_calendars(name: str, account: DavAccount, store: ModuleStore) -> None:
    """One run. Raises ConfigurationError without a password, and Unavailable with what is wrong with the server."""
    opening, keeper = open_listed_calendars(name, account), CalendarKeeper(account)
    await claim_mirror(store, account, keeper)
    try:
        async with opening as server:
            await sync_account(store, server, keeper)
    except ServerError as error:
        raise Unavailable(
            f"the account {name!r}: {describe_for_operators(error, CALDAV if account.provider == 'dav' else None)}"
        ) from error
