"""The module of calendars over the strict Google, as settings open it: with a token file, by real requests.

As a process, `main(DATABASE_URL, ACCOUNT, KEY, TOOL, ARGUMENTS)` makes one call that was approved, and is killed by
whoever started it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from switchboard.modules.accounts.settings import DavAccount
from switchboard.store.database import Database
from switchboard.testing.google import GOOGLE_TOKEN, OWN
from switchboard.transport.oauth.token_file import KeptTokens, OAuthClient, write_tokens
from tests.calendar_house import CalendarHouse, open_house, scope_of
from tests.dav_servers import DavServer

_NO_DAV: Final = DavServer("google", 0, "", "", "")


def google_account(url: str, place: Path, **more: Any) -> DavAccount:
    """Ann's account at the server with this address, whose token file is in `place`."""
    file = place / "google.json"
    client = OAuthClient(provider="google", client_id="nobody", authorization_endpoint=url, token_endpoint=url)
    now = datetime.now(UTC)
    tokens = KeptTokens(
        client=client,
        user=OWN,
        scopes=(),
        sign_in="switchboard modules login google",
        refresh_token="of-nobody",
        access_token=GOOGLE_TOKEN,
        expires_at=now + timedelta(days=1),
        consented_at=now,
    )
    write_tokens(file, tokens)
    return DavAccount(url, OWN, person="ann", sends="server", provider="google", token_file=file, **more)


async def open_google_house(database: Database, account: DavAccount) -> CalendarHouse:
    """The module with this account."""
    return await open_house(database, _NO_DAV, {"home": account})


def main(arguments: Sequence[str]) -> None:
    """One call."""
    database_url, url, file, key, tool, given = arguments
    account = DavAccount(url, OWN, person="ann", sends="server", provider="google", token_file=Path(file))
    asyncio.run(_call_once(database_url, account, UUID(key), tool, json.loads(given)))


async def _call_once(database_url: str, account: DavAccount, key: UUID, tool: str, given: Mapping[str, Any]) -> None:
    database = await Database.connect(database_url, size=2)
    try:
        house = await open_google_house(database, account)
        await house.done(tool, await house.approve(tool, scope_of(key=key), **given), **given)
    finally:
        await database.close()
