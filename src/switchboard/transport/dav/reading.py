"""Read a collection: everything in it, what has changed since a token, and the contents of objects.

The sync of a module calls it. In: a collection's address; out: a `ServerListing` of names and ETags, or the objects.
Objects are known by their names in the collection, so that another host or spelling of the address makes no new ones.
An answer that does not say that it is whole is not `complete`, and nothing follows from what it lacks. Next:
`writing.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

import httpx2

from switchboard.ports.collection_server import ServerContents, ServerListing, ServerObject
from switchboard.transport.dav.client import MOST_OF_OBJECT, DavClient, DavRequest
from switchboard.transport.dav.discovery import collections_at
from switchboard.transport.dav.kinds import DavError
from switchboard.transport.dav.multistatus import DAV, DavResponse, Multistatus, multiget_body, sync_body
from switchboard.transport.dav.places import name_in, path_of, place_of

_ETAG: Final = f"{DAV}getetag"
_TYPE: Final = f"{DAV}resourcetype"
_CTAG: Final = "ctag "
"""Begins the token of a collection that has none, but a tag of its state. Those of servers are URIs, without blanks."""
_BATCH: Final = 50
_MOST_OF_BATCH: Final = 16_000_000
_MOST_PAGES: Final = 1_000
_MOST_CHANGED: Final = 100_000
"""Names on all pages of what has changed."""
_LONGEST_NAME: Final = 500
"""Characters of the name of an object; what has a longer one is not listed."""
_NO_ROOM: Final = 507
_SPLIT: Final = frozenset({"too_large", "unreadable", "refused"})
"""States of a batch that may be the fault of one object in it."""


async def list_changes(client: DavClient, collection: str, token: str) -> ServerListing:
    """What has changed since the token; without one, or if it is lost, everything. Raises DavError.

    A token is lost if the server refuses it, in whatever way, but lists the collection. It never is because of an
    answer that would be the same without it, such as 401 or 503.
    """
    if not token or token.startswith(_CTAG):
        return await list_everything(client, collection, token)
    try:
        return await _changes_since(client, httpx2.URL(collection), token)
    except DavError as error:
        if error.state in ("login", "login_page", "elsewhere") or (error.state == "later" and error.status != 500):
            raise
        return await list_everything(client, collection)


async def _changes_since(client: DavClient, collection: httpx2.URL, token: str) -> ServerListing:
    etags: dict[str, str] = {}
    gone: set[str] = set()
    for _ in range(_MOST_PAGES):
        said = await client.report(collection, sync_body(client.kind, token), 0)
        page = await asyncio.to_thread(_listing_in, collection, said)
        etags = {name: etag for name, etag in etags.items() if name not in page.gone} | dict(page.etags)
        gone = (gone - set(page.etags)) | page.gone
        if page.complete and said.cursor:
            return ServerListing(etags, frozenset(gone), said.cursor)
        if not said.cursor or said.cursor == token or len(etags) + len(gone) > _MOST_CHANGED:
            break
        token = said.cursor
    raise DavError("unreadable", f"{collection.host} does not come to the end of what has changed")


async def list_everything(client: DavClient, collection: str, known: str = "") -> ServerListing:
    """All objects; nothing, if `known` is the token of a listing from which the server does not differ.

    The token is older than the list, so that nothing falls between them. Raises DavError.
    """
    url = httpx2.URL(collection)
    found = await collections_at(client, url, 0)
    if not found:
        raise DavError("missing", f"{path_of(url)} is no collection of {client.kind.name} any more")
    token = found[0].cursor or (f"{_CTAG}{found[0].ctag}" if found[0].ctag else "")
    if known and token == known:
        return ServerListing({}, cursor=token)
    _, said = await client.properties(url, (_ETAG, _TYPE), 1)
    listing = await asyncio.to_thread(_listing_in, url, said)
    whole = listing.complete and any(_is_collection(one) for one in said.responses)
    return ServerListing(listing.etags, cursor=token if whole else "", whole=whole, complete=whole)


def _listing_in(collection: httpx2.URL, said: Multistatus) -> ServerListing:
    """The objects that an answer names. What it says of the collection itself is only whether it is all."""
    own = path_of(collection)
    etags: dict[str, str] = {}
    gone: set[str] = set()
    complete = True
    for one in said.responses:
        place = collection.join(one.href)
        if path_of(place) == own:
            complete = complete and one.status != _NO_ROOM
        elif one.status in (404, 410):
            gone.add(name_in(place))
        elif one.status == 401 or one.status >= 500:
            complete = False
        elif not _is_collection(one) and len(name_in(place)) <= _LONGEST_NAME:
            etags[name_in(place)] = one.text(_ETAG)
    return ServerListing(etags, frozenset(gone - set(etags)), complete=complete)


def _is_collection(said: DavResponse) -> bool:
    return said.href.endswith("/") or f"{DAV}collection" in said.names_in(_TYPE)


async def read_objects(client: DavClient, collection: str, names: Sequence[str]) -> ServerContents:
    """The contents of these objects, asked for in batches of 50. One that cannot be read spoils no other.

    Raises DavError for what concerns the whole account.
    """
    url = httpx2.URL(collection)
    objects: dict[str, ServerObject] = {}
    gone: set[str] = set()
    unreadable: dict[str, DavError] = {}
    wanted = list(dict.fromkeys(names))
    for start in range(0, len(wanted), _BATCH):
        batch = wanted[start : start + _BATCH]
        for name, found in (await _read_batch(client, url, batch)).items():
            match found:
                case ServerObject():
                    objects[name] = found
                case DavError(state="missing"):
                    gone.add(name)
                case DavError():
                    unreadable[name] = found
    return ServerContents(tuple(objects.values()), frozenset(gone), unreadable)


async def _read_batch(
    client: DavClient, collection: httpx2.URL, names: Sequence[str]
) -> dict[str, ServerObject | DavError]:
    if len(names) == 1:
        return {names[0]: await _read_alone(client, collection, names[0])}
    try:
        found = await _read_many(client, collection, names)
    except DavError as error:
        if error.state not in _SPLIT:
            raise
        middle = len(names) // 2
        first = await _read_batch(client, collection, names[:middle])
        return first | await _read_batch(client, collection, names[middle:])
    missed = [name for name in names if name not in found]
    return found | {name: await _read_alone(client, collection, name) for name in missed}


async def _read_many(
    client: DavClient, collection: httpx2.URL, names: Sequence[str]
) -> dict[str, ServerObject | DavError]:
    """What the server has of them; those of which it says nothing that can be used are asked for one by one."""
    hrefs = [place_of(collection, name).raw_path.decode("ascii") for name in names]
    said = await client.report(collection, multiget_body(client.kind, hrefs), 1, _MOST_OF_BATCH)
    asked = set(names)
    found: dict[str, ServerObject | DavError] = {}
    for one in said.responses:
        name = name_in(collection.join(one.href))
        data = one.found.get(f"{{{client.kind.namespace}}}{client.kind.data}")
        if name in asked and data is not None and data.text:
            found[name] = _bounded_object(ServerObject(name, one.text(_ETAG), data.text.encode()))
    return found


def _bounded_object(found: ServerObject) -> ServerObject | DavError:
    if len(found.data) > MOST_OF_OBJECT:
        return DavError("too_large", f"it has more than {MOST_OF_OBJECT:,} bytes")
    return found


async def _read_alone(client: DavClient, collection: httpx2.URL, name: str) -> ServerObject | DavError:
    try:
        return await read_object(client, str(collection), name)
    except DavError as error:
        if error.state in ("missing", "forbidden", "too_large", "refused", "unreadable"):
            return error
        raise


async def read_object(client: DavClient, collection: str, name: str) -> ServerObject:
    """One object, byte for byte. Raises DavError, `missing` if there is none."""
    place = place_of(httpx2.URL(collection), name)
    answer = await client.send(DavRequest("GET", place, most=MOST_OF_OBJECT))
    return ServerObject(name, answer.etag, answer.body)
