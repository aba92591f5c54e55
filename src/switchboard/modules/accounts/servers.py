"""How the server of an account is opened, for tools that write and for syncs: which kind it is, no one above knows.

`modules/calendar` and `modules/contacts` name these. In: an account of the settings; out: a `CollectionServer`. Next:
`transport/dav/server.py`, `transport/google/calendars.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Final

from switchboard.domain.errors import ConfigurationError
from switchboard.modules.accounts.logins import read_login
from switchboard.modules.accounts.settings import DavAccount
from switchboard.ports.collection_server import CollectionServer
from switchboard.transport.dav.client import LISTING_S
from switchboard.transport.dav.kinds import CALDAV, CARDDAV
from switchboard.transport.dav.server import open_server
from switchboard.transport.google.calendars import open_google_calendars
from switchboard.transport.google.client import CALENDAR_API, PEOPLE_API
from switchboard.transport.google.contacts import open_google_contacts
from switchboard.transport.oauth.tokens import TokenFile

OpenServer = Callable[[str, DavAccount], AbstractAsyncContextManager[CollectionServer]]
"""Of an account, given its name. Raises ConfigurationError without a password, and ServerError."""

_REQUEST_S: Final = 20.0
"""Of one request: less than the lease of whoever writes."""


def open_calendars(name: str, account: DavAccount) -> AbstractAsyncContextManager[CollectionServer]:
    """An `OpenServer` of calendars."""
    return _open_calendars(name, account, _REQUEST_S)


def open_books(name: str, account: DavAccount) -> AbstractAsyncContextManager[CollectionServer]:
    """An `OpenServer` of address books."""
    return _open_books(name, account, _REQUEST_S)


def open_listed_calendars(name: str, account: DavAccount) -> AbstractAsyncContextManager[CollectionServer]:
    """The same for a sync, which may list for minutes."""
    return _open_calendars(name, account, LISTING_S)


def open_listed_books(name: str, account: DavAccount) -> AbstractAsyncContextManager[CollectionServer]:
    """The same for a sync, which may list for minutes."""
    return _open_books(name, account, LISTING_S)


def _open_calendars(name: str, account: DavAccount, whole: float) -> AbstractAsyncContextManager[CollectionServer]:
    if account.provider == "dav":
        return open_server(read_login(name, account), CALDAV, whole)
    api = f"{account.url.rstrip('/')}/calendar/v3" if account.url else CALENDAR_API
    sends = account.sends == "server"
    return open_google_calendars(_tokens_of(name, account), account.user, sends=sends, api=api, whole=whole)


def _open_books(name: str, account: DavAccount, whole: float) -> AbstractAsyncContextManager[CollectionServer]:
    if account.provider == "dav":
        return open_server(read_login(name, account), CARDDAV, whole)
    api = f"{account.url.rstrip('/')}/v1" if account.url else PEOPLE_API
    return open_google_contacts(_tokens_of(name, account), api=api, whole=whole)


def _tokens_of(name: str, account: DavAccount) -> TokenFile:
    if account.token_file is None:
        raise ConfigurationError(f"the account {name!r} has no token file in the settings")
    return TokenFile(account.token_file)
