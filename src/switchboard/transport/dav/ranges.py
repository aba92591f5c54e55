"""Ask a calendar for what is in a range, or has a UID, at this moment: a CalDAV `calendar-query` (RFC 4791, 7.8).

Tools ask it before they write, as a mirror may be minutes old. In: a calendar's address; out: `ServerObject`s. Bytes in
XML have lost the CR before each LF, so that what is changed is read again by `read_object`. Next: `writing.py`.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final
from xml.sax.saxutils import escape

import httpx2

from switchboard.ports.collection_server import ServerObject
from switchboard.transport.dav.client import DavClient
from switchboard.transport.dav.multistatus import DAV
from switchboard.transport.dav.places import name_in

_ETAG: Final = f"{DAV}getetag"
_MOST: Final = 16_000_000


async def objects_between(
    client: DavClient, collection: str, since: datetime, until: datetime
) -> tuple[ServerObject, ...]:
    """The objects of which something takes place from `since` until `until`. Raises DavError."""
    range_ = f'<k:time-range start="{_range_time(since)}" end="{_range_time(until)}"/>'
    return await _query_objects(client, collection, range_)


async def objects_with_uid(client: DavClient, collection: str, uid: str) -> tuple[ServerObject, ...]:
    """The objects with a UID, which should be one at most. Raises DavError."""
    match = f'<k:prop-filter name="UID"><k:text-match collation="i;octet">{escape(uid)}</k:text-match></k:prop-filter>'
    return await _query_objects(client, collection, match)


async def _query_objects(client: DavClient, collection: str, wanted: str) -> tuple[ServerObject, ...]:
    url = httpx2.URL(collection)
    said = await client.report(url, _query_body(client.kind.namespace, client.kind.data, wanted), 1, _MOST)
    data = f"{{{client.kind.namespace}}}{client.kind.data}"
    return tuple(
        ServerObject(name_in(url.join(one.href)), one.text(_ETAG), text.encode())
        for one in said.responses
        if (element := one.found.get(data)) is not None and (text := element.text)
    )


def _query_body(namespace: str, data: str, wanted: str) -> bytes:
    inner = f'<k:comp-filter name="VCALENDAR"><k:comp-filter name="VEVENT">{wanted}</k:comp-filter></k:comp-filter>'
    return (
        f'<?xml version="1.0" encoding="utf-8"?>\n<k:calendar-query xmlns:d="DAV:" xmlns:k="{namespace}">'
        f"<d:prop><d:getetag/><k:{data}/></d:prop><k:filter>{inner}</k:filter></k:calendar-query>"
    ).encode()


def _range_time(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y%m%dT%H%M%SZ}"
