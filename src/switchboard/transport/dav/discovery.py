"""Find the calendars or address books of an account, whatever address of the server a person has given.

Called at login and by the sync. Tried are the address itself, `/.well-known`, and the root; from there the way goes by
the principal to the homes, and to the collections in them (RFC 6764). Next: `reading.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import httpx2
from msgspec import Struct

from switchboard.transport.dav.client import DavClient
from switchboard.transport.dav.kinds import DavError
from switchboard.transport.dav.multistatus import CTAG, DAV, DavResponse
from switchboard.transport.dav.places import as_directory, name_in, next_of, path_of

_PRINCIPAL: Final = f"{DAV}current-user-principal"
_TYPE: Final = f"{DAV}resourcetype"
_NAME: Final = f"{DAV}displayname"
_RIGHTS: Final = f"{DAV}current-user-privilege-set"
_TOKEN: Final = f"{DAV}sync-token"
OF_COLLECTION: Final = (_TYPE, _NAME, _RIGHTS, _TOKEN, CTAG)
_WRITING: Final = frozenset(f"{DAV}{name}" for name in ("all", "write", "write-content", "bind"))
_GOES_ON: Final = frozenset({"missing", "refused", "unreadable", "forbidden"})
"""States of one of the addresses that say nothing about the others."""


class DavCollection(Struct, frozen=True):
    """A calendar or an address book. `cursor` (a sync token) and `ctag` say its state, if it has them.

    `writable` is None if the server does not say so.
    """

    url: str
    name: str
    writable: bool | None
    cursor: str = ""
    ctag: str = ""


async def find_collections(client: DavClient) -> tuple[DavCollection, ...]:
    """All collections of the client's kind, each once, in the server's order. Raises DavError."""
    found: dict[str, DavCollection] = {}
    for home in await _find_homes(client):
        for one in await collections_at(client, home, 1):
            found.setdefault(path_of(httpx2.URL(one.url)), one)
    if not found:
        for one in await collections_at(client, client.start, 0):
            found[one.url] = one
    return tuple(found.values())


async def collections_at(client: DavClient, url: httpx2.URL, depth: int) -> tuple[DavCollection, ...]:
    """This collection, or with depth 1 those in it. Raises DavError."""
    base, said = await client.properties(url, OF_COLLECTION, depth)
    wanted = f"{{{client.kind.namespace}}}{client.kind.collection}"
    return tuple(
        _collection_from(one, as_directory(next_of(base, one.href, client.start)))
        for one in said.responses
        if wanted in one.names_in(_TYPE)
    )


def _collection_from(said: DavResponse, url: httpx2.URL) -> DavCollection:
    rights = said.names_in(_RIGHTS)
    writable = bool(rights & _WRITING) if rights else None
    return DavCollection(str(url), said.text(_NAME) or name_in(url), writable, said.text(_TOKEN), said.text(CTAG))


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
