"""Whether the invitations of calendar accounts that are to be mailed can be: from an address that sends here.

`app/ops/modules.py` calls it for doctor. In: the settings; out: what is wrong, by account. Next:
`modules/calendar/mailed_writes.py`, which refuses such writes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from switchboard.core.channels.email import NAME as EMAIL
from switchboard.modules.accounts.settings import DavAccount
from switchboard.modules.calendar.settings import CalendarSettings
from switchboard.ports.checks import CheckResult, ok, warning
from switchboard.store.database import Database
from switchboard.store.messages.mails import accounts_of

_ADD = 'add the address with `switchboard channels add email`, and run `switchboard connect`; or set sends = "nobody"'
_WHO: Final[Mapping[str, str]] = {"server": "the server sends them", "mail": "we mail them", "nobody": "nobody does"}


async def check_invitations(database: Database, table: object) -> list[CheckResult]:
    """By the table `[modules.calendar]`: who sends the invitations of each account, and whether that can be."""
    accounts = table.accounts if isinstance(table, CalendarSettings) else {}
    if not accounts:
        return []
    senders = {one.lower() for one in await accounts_of(database, EMAIL)}
    lacking = {name: one for name, one in accounts.items() if one.sends == "mail" and not own_addresses(one) & senders}
    found = [
        warning(f"invitations of {name}", f"are to be mailed, and nothing sends as {_list_addresses(one)} here", _ADD)
        for name, one in lacking.items()
    ]
    return found or [ok("invitations", _told_senders(accounts))]


def own_addresses(account: DavAccount) -> frozenset[str]:
    """By which its person is invited, in lower case."""
    return frozenset(one.strip().lower() for one in (account.user, *account.addresses) if "@" in one)


def _list_addresses(account: DavAccount) -> str:
    return ", ".join(sorted(own_addresses(account))) or f"the user {account.user!r}, which is no address"


def _told_senders(accounts: Mapping[str, DavAccount]) -> str:
    return "; ".join(f"{name}: {_WHO[one.sends]}" for name, one in sorted(accounts.items()))
