"""What an account on a server has, looked up before it is connected: collections, rights, who sends invitations.

`wizard.py` calls it. In: a `DavLogin`; out: an `AccountSurvey`, or an error that says what would be right. It changes
nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from switchboard.domain.errors import InvalidInput
from switchboard.modules.accounts.failures import describe_for_operators
from switchboard.ports.collection_server import ServerCollection
from switchboard.transport.dav.client import LISTING_S, DavClient, open_dav
from switchboard.transport.dav.discovery import find_addresses, find_collections, offers_scheduling
from switchboard.transport.dav.kinds import CALDAV, DavError, DavKind, DavLogin
from switchboard.transport.dav.reading import list_everything

NAMES: Final[Mapping[str, tuple[str, str]]] = {"caldav": ("calendar", "CalDAV"), "carddav": ("address book", "CardDAV")}


class Surveyed(Struct, frozen=True):
    """A collection, and how many objects it has."""

    collection: ServerCollection
    objects: int


class AccountSurvey(Struct, frozen=True):
    """All that an account has of one kind.

    Of calendars also whether the server says that it sends invitations itself, and the e-mail addresses by which it
    says that the user is invited.
    """

    found: tuple[Surveyed, ...]
    scheduling: bool = False
    addresses: tuple[str, ...] = ()


async def survey_account(login: DavLogin, kind: DavKind) -> AccountSurvey:
    """Log in and look. Raises InvalidInput, which says what would be right."""
    try:
        async with open_dav(login, kind, whole=LISTING_S) as client:
            return await _survey_collections(client)
    except DavError as error:
        raise InvalidInput(describe_for_operators(error, kind)) from error


async def _survey_collections(client: DavClient) -> AccountSurvey:
    collections = await find_collections(client)
    if not collections:
        what, protocol = NAMES[client.kind.name]
        raise InvalidInput(f"{client.start.host} speaks {protocol}, but this user has no {what} there: make one first")
    found = [Surveyed(one, len((await list_everything(client, one.url)).etags)) for one in collections]
    if client.kind is not CALDAV:
        return AccountSurvey(tuple(found))
    first = collections[0].url
    return AccountSurvey(tuple(found), await offers_scheduling(client, first), await find_addresses(client, first))
