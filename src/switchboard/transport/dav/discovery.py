"""Find the calendars or address books of an account, whatever address of the server a person has given.

Called at login and by the sync. Tried are the address itself, `/.well-known`, and the root; from there the way goes by
the principal to the homes, and to the collections in them (RFC 6764). Next: `reading.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final
from urllib.parse import unquote

import httpx2

from switchboard.ports.collection_server import ServerCollection
from switchboard.transport.dav.client import DavClient, DavRequest
from switchboard.transport.dav.kinds import CALDAV, DavError, DavKind
from switchboard.transport.dav.multistatus import COLOUR, CTAG, DAV, SHARED, DavResponse
from switchboard.transport.dav.places import as_directory, name_in, next_of, path_of

_PRINCIPAL: Final = f"{DAV}current-user-principal"
_OWNER: Final = f"{DAV}owner"
_TYPE: Final = f"{DAV}resourcetype"
_NAME: Final = f"{DAV}displayname"
_RIGHTS: Final = f"{DAV}current-user-privilege-set"
_TOKEN: Final = f"{DAV}sync-token"
_COMPONENTS: Final = f"{{{CALDAV.namespace}}}supported-calendar-component-set"
_ZONE: Final = f"{{{CALDAV.namespace}}}calendar-timezone"
_ADDRESSES: Final = f"{{{CALDAV.namespace}}}calendar-user-address-set"
_OF_COLLECTION: Final = (_TYPE, _NAME, _RIGHTS, _TOKEN, CTAG, _OWNER, _PRINCIPAL)
_OF_CALENDAR: Final = (_COMPONENTS, _ZONE, COLOUR)
_TZID: Final = re.compile(r"^TZID(?:;[^:\r\n]*)?:([^\r\n]*)", re.IGNORECASE | re.MULTILINE)
_HEX: Final = re.compile(r"(#[0-9A-Fa-f]{6})(?:[0-9A-Fa-f]{2})?")
_LONGEST_ZONE: Final = 100
_WRITING: Final = frozenset(f"{DAV}{name}" for name in ("all", "write", "write-content", "bind"))
_GOES_ON: Final = frozenset({"missing", "refused", "unreadable", "forbidden"})
"""States of one of the addresses that say nothing about the others."""


async def find_collections(client: DavClient) -> tuple[ServerCollection, ...]:
    """All collections of the client's kind, each once, in the server's order. Raises DavError."""
    found: dict[str, ServerCollection] = {}
    for home in await _find_homes(client):
        for one in await collections_at(client, home, 1):
            found.setdefault(path_of(httpx2.URL(one.url)), one)
    if not found:
        for one in await collections_at(client, client.start, 0):
            found[one.url] = one
    return tuple(found.values())


async def collections_at(client: DavClient, url: httpx2.URL, depth: int) -> tuple[ServerCollection, ...]:
    """This collection, or with depth 1 those in it; calendars that hold no events are none. Raises DavError."""
    asked = (*_OF_COLLECTION, *_OF_CALENDAR) if client.kind is CALDAV else _OF_COLLECTION
    base, said = await client.properties(url, asked, depth)
    return tuple(
        _collection_from(one, as_directory(next_of(base, one.href, client.start)))
        for one in said.responses
        if _is_wanted(client.kind, one)
    )


def _is_wanted(kind: DavKind, said: DavResponse) -> bool:
    if f"{{{kind.namespace}}}{kind.collection}" not in said.names_in(_TYPE):
        return False
    components = said.found.get(_COMPONENTS)
    return components is None or "VEVENT" in {one.get("name", "").upper() for one in components.iter()}


def _collection_from(said: DavResponse, url: httpx2.URL) -> ServerCollection:
    rights = said.names_in(_RIGHTS)
    writable = bool(rights & _WRITING) if rights else None
    colour, zone = _HEX.match(said.text(COLOUR)), _TZID.search(said.text(_ZONE))
    return ServerCollection(
        *(
            str(url),
            path_of(url),
            said.text(_NAME).replace("\0", "") or name_in(url),
            writable,
            said.text(_TOKEN),
            said.text(CTAG),
        ),
        colour=colour[1] if colour else "",
        zone=zone[1].strip()[:_LONGEST_ZONE] if zone else "",
        shared=SHARED in said.names_in(_TYPE) or _is_of_another(said, url),
    )


def _is_of_another(said: DavResponse, url: httpx2.URL) -> bool:
    """A server that does not say who has logged in, or whose the collection is, says nothing of it."""
    owners, users = ([path_of(url.join(href)) for href in said.hrefs(name)] for name in (_OWNER, _PRINCIPAL))
    return bool(owners and users) and owners[0] not in users


async def offers_scheduling(client: DavClient, calendar: str) -> bool:
    """Whether the server itself sends invitations to what is written into this calendar (RFC 6638). Raises DavError."""
    answer = await client.send(DavRequest("OPTIONS", httpx2.URL(calendar)))
    offered = {one.strip().lower() for one in answer.headers.get("dav", "").split(",")}
    return "calendar-auto-schedule" in offered


async def find_addresses(client: DavClient, calendar: str) -> tuple[str, ...]:
    """The e-mail addresses by which the user is invited to meetings (RFC 6638, 2.4.1); none, if the server says none.

    Raises DavError.
    """
    base, said = await client.properties(httpx2.URL(calendar), (_PRINCIPAL,), 0)
    found: dict[str, None] = {}
    for principal in _addresses_in(client, base, said.responses, _PRINCIPAL):
        _, user = await client.properties(principal, (_ADDRESSES,), 0)
        hrefs = [unquote(href) for one in user.responses for href in one.hrefs(_ADDRESSES)]
        found |= {href[7:].strip().lower(): None for href in hrefs if href.lower().startswith("mailto:")}
    return tuple(one for one in found if "@" in one)


async def _find_homes(client: DavClient) -> tuple[httpx2.URL, ...]:
    """Where the account has its collections; none, if the server does not say so."""
    home = f"{{{client.kind.namespace}}}{client.kind.home}"
    first: DavError | None = None
    answered = False
    for address in _starting_places(client):
        try:
            base, said = await client.properties(address, (_PRINCIPAL, home), 0)
            answered = True
            if (found := _addresses_in(client, base, said.responses, home)) or (
                found := await _homes_of_principals(
                    client, _addresses_in(client, base, said.responses, _PRINCIPAL), home
                )
            ):
                return found
        except DavError as error:
            if error.state not in _GOES_ON:
                raise
            first = first or error
    if first is not None and not answered:
        raise first
    return ()


def _starting_places(client: DavClient) -> Iterable[httpx2.URL]:
    well_known = client.start.copy_with(raw_path=f"/.well-known/{client.kind.name}".encode("ascii"))
    root = client.start.copy_with(raw_path=b"/")
    return (well_known, root) if path_of(client.start) == "" else (client.start, well_known, root)


async def _homes_of_principals(
    client: DavClient, principals: Iterable[httpx2.URL], home: str
) -> tuple[httpx2.URL, ...]:
    for principal in principals:
        base, said = await client.properties(principal, (home,), 0)
        if found := _addresses_in(client, base, said.responses, home):
            return found
    return ()


def _addresses_in(
    client: DavClient, base: httpx2.URL, responses: Iterable[DavResponse], name: str
) -> tuple[httpx2.URL, ...]:
    return tuple(next_of(base, href, client.start) for one in responses for href in one.hrefs(name))
