"""Write one object so that nobody else's change is lost, and so that it is known afterwards whether it was written.

The tools of modules call it. Every write names the state that it replaces (`If-Match`, or that there is nothing). When
no answer comes, the server is asked what it has.
"""

from __future__ import annotations

import asyncio

import httpx2

from switchboard.core.text.compared_lines import has_all_lines
from switchboard.ports.collection_server import ServerObject, ServerState
from switchboard.transport.dav.client import DavClient, DavRequest
from switchboard.transport.dav.kinds import DavError
from switchboard.transport.dav.places import place_of
from switchboard.transport.dav.reading import read_object


def is_strong(etag: str) -> bool:
    """Whether an ETag is of exactly these bytes, so that a server compares it before a write."""
    return len(etag) > 2 and etag.startswith('"') and etag.endswith('"')


async def create_object(client: DavClient, collection: str, new: ServerObject) -> ServerObject:
    """Write an object under a name that is free; the ETag of `new` does not count. Returns what the server has.

    Repeating it is harmless: what is there already, and has all lines of this, is returned. Raises DavError: `changed`
    if the name is taken by something else.
    """
    try:
        return await _put_object(client, collection, new, {"if-none-match": "*"})
    except DavError as error:
        if error.state not in ("changed", "unknown"):
            raise
        found = await _look_again(client, collection, new.name, error)
        if found is None:
            raise DavError("later" if error.state == "unknown" else "changed", str(error)) from error
        if await asyncio.to_thread(has_all_lines, found.data, new.data):
            return found
        raise DavError("changed", f"the server has something else under the name {new.name!r}") from error


async def replace_object(client: DavClient, collection: str, old: ServerObject, data: bytes) -> ServerObject:
    """Write these bytes in place of `old`. Returns what the server has then.

    Raises DavError: `changed` if somebody else has changed or deleted it, `unprotected` if `old` has no strong ETag,
    `later` if certainly nothing was written, and `unknown` if nobody can tell.
    """
    new = ServerObject(old.name, "", data)
    try:
        return await _put_object(client, collection, new, _protection_of(old))
    except DavError as error:
        if error.state != "unknown":
            raise
        found = await _look_again(client, collection, old.name, error)
        if found is not None and await asyncio.to_thread(has_all_lines, found.data, data, old.data):
            return found
        same = found is not None and found.etag == old.etag
        raise DavError("later" if same else "changed", str(error)) from error


async def delete_object(client: DavClient, collection: str, old: ServerObject) -> None:
    """Delete exactly this object; that it is gone already is success. Raises DavError, as `replace_object`."""
    place = place_of(httpx2.URL(collection), old.name)
    try:
        await client.send(DavRequest("DELETE", place, headers=_protection_of(old)))
    except DavError as error:
        if error.state == "missing":
            return
        if error.state not in ("unknown", "changed"):
            raise
        found = await _look_again(client, collection, old.name, error)
        if found is None:
            return
        raise DavError("later" if found.etag == old.etag else "changed", str(error)) from error


def _protection_of(old: ServerObject) -> dict[str, str]:
    if not is_strong(old.etag):
        raise DavError("unprotected", "the server gives this no ETag, so a change could undo somebody else's unnoticed")
    return {"if-match": old.etag}


async def _put_object(client: DavClient, collection: str, new: ServerObject, headers: dict[str, str]) -> ServerObject:
    """The server may have written something else than it was sent: if its answer has no strong ETag, and if it has sent
    invitations (RFC 6638), as Xandikos then writes their fate into the object, and gives a strong ETag all the same.
    """
    place = place_of(httpx2.URL(collection), new.name)
    answer = await client.send(DavRequest("PUT", place, new.data, {"content-type": client.kind.media_type, **headers}))
    if is_strong(answer.etag) and "schedule-tag" not in answer.headers:
        return ServerObject(new.name, answer.etag, new.data)
    try:
        return await read_object(client, collection, new.name)
    except DavError as error:
        state: ServerState = "changed" if error.state == "missing" else "unknown"
        raise DavError(state, f"it was written, but cannot be read: {error}") from error


async def _look_again(client: DavClient, collection: str, name: str, after: DavError) -> ServerObject | None:
    """What the server has now; None: nothing. Raises DavError (`unknown`) if it does not say."""
    try:
        return await read_object(client, collection, name)
    except DavError as error:
        if error.state == "missing":
            return None
        raise DavError("unknown" if after.state == "unknown" else error.state, f"{after}; then {error}") from error
