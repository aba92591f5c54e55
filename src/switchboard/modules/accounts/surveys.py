"""What an account on a server has, looked up before it is connected: collections, rights, who sends invitations.

`wizard.py` calls it. In: a `DavLogin`; out: an `AccountSurvey`, or an error that says what would be right. It changes
nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from switchboard.domain.errors import InvalidInput
from switchboard.ports.collection_server import ServerCollection, ServerState
from switchboard.transport.dav.client import LISTING_S, DavClient, open_dav
from switchboard.transport.dav.discovery import find_addresses, find_collections, offers_scheduling
from switchboard.transport.dav.kinds import CALDAV, DavError, DavKind, DavLogin
from switchboard.transport.dav.reading import list_everything

NAMES: Final[Mapping[str, tuple[str, str]]] = {"caldav": ("calendar", "CalDAV"), "carddav": ("address book", "CardDAV")}
_REMEDIES: Final[Mapping[ServerState, str]] = {
    "login": "the user or the password is wrong; many providers want a password that is made for programs",
    "login_page": "give the address of its {protocol} server, which its manual has, and not that of its web pages",
    "forbidden": "the account may not see this; give an address that is its own, or only the site",
    "elsewhere": "give the address of the server to which it refers",
    "unreadable": "give the address of its {protocol} server, which its manual has",
    "missing": "give the address of its {protocol} server, which its manual has",
    "later": "check the address; if it is right, try again later",
}


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
        raise InvalidInput(describe_trouble(error, kind)) from error


def describe_trouble(error: DavError, kind: DavKind) -> str:
    """What went wrong with a server, and what would be right."""
    remedy = _REMEDIES.get(error.state, "").format(protocol=NAMES[kind.name][1])
    return f"{error}; {remedy}" if remedy else str(error)


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
