"""What waits at accounts, when they last had messages, and which channels there are at all.

Called by `app/accounts/service.py` and `app/connectors/used_channels.py`. All of it is read by index, and bounded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from msgspec import Struct

from switchboard.store.database import Database, arrays, query, rows_as

_Key = tuple[str, str]


class WaitingAtAccount(Struct, frozen=True):
    """So many replies, held messages or quarantined events wait at an account; of each kind, 1,001 are counted."""

    channel: str
    endpoint: str
    kind: str
    number: int


class LastTraffic(Struct, frozen=True):
    """When a message last came in, and a reply last went out; None: never, or too long ago to be found quickly.

    `starts`: how often a process began to serve the account; None: none ever did.
    """

    channel: str
    endpoint: str
    last_in: datetime | None
    last_out: datetime | None
    starts: int | None


async def channels_in_use(database: Database) -> list[str]:
    """The channels with an account that has ever reported, or with a message."""
    return [row["channel"] for row in await database.rows(query("connectors.channels_in_use"))]


async def open_work(database: Database) -> list[WaitingAtAccount]:
    """Of all accounts at which something waits."""
    return rows_as(WaitingAtAccount, await database.rows(query("connectors.open_work")))


async def last_traffic(database: Database, accounts: Sequence[_Key]) -> Mapping[_Key, LastTraffic]:
    """Of accounts, by channel and endpoint."""
    found = await database.rows(query("connectors.last_traffic"), *arrays(accounts, 2))
    return {(one.channel, one.endpoint): one for one in rows_as(LastTraffic, found)}
