"""How the server of an account is opened for the tools that write: which kind it is, nobody above this knows.

`modules/calendar` and `modules/contacts` name these. In: an account of the settings; out: a `CollectionServer`. Next:
`transport/dav/server.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Final

from switchboard.modules.accounts.logins import read_login
from switchboard.modules.accounts.settings import DavAccount
from switchboard.ports.collection_server import CollectionServer
from switchboard.transport.dav.kinds import CALDAV, CARDDAV
from switchboard.transport.dav.server import open_server

OpenServer = Callable[[str, DavAccount], AbstractAsyncContextManager[CollectionServer]]
"""Of an account, given its name. Raises ConfigurationError without a password, and ServerError."""

_REQUEST_S: Final = 20.0
"""Of one request: less than the lease of whoever writes."""


def open_calendars(name: str, account: DavAccount) -> AbstractAsyncContextManager[CollectionServer]:
    """An `OpenServer` of calendars."""
    return open_server(read_login(name, account), CALDAV, _REQUEST_S)


def open_books(name: str, account: DavAccount) -> AbstractAsyncContextManager[CollectionServer]:
    """An `OpenServer` of address books."""
    return open_server(read_login(name, account), CARDDAV, _REQUEST_S)
