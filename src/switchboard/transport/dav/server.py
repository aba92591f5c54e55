"""CalDAV and CardDAV behind the port of servers: one object for all that a module asks of an account.

Modules open one with `open_server`, and see nothing but the port. Next: `discovery.py`, `reading.py`, `ranges.py` and
`writing.py`, which do it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime

from msgspec import Struct

from switchboard.ports.collection_server import (
    CollectionServer,
    ServerCollection,
    ServerContents,
    ServerListing,
    ServerObject,
)
from switchboard.transport.dav.client import WHOLE_S, DavClient, open_dav
from switchboard.transport.dav.discovery import find_collections
from switchboard.transport.dav.kinds import DavKind, DavLogin
from switchboard.transport.dav.ranges import objects_between, objects_with_uid
from switchboard.transport.dav.reading import list_changes, list_everything, read_object, read_objects
from switchboard.transport.dav.writing import create_object, delete_object, replace_object


@asynccontextmanager
async def open_server(login: DavLogin, kind: DavKind, whole: float = WHOLE_S) -> AsyncIterator[CollectionServer]:
    """An account. `whole`: seconds that one exchange may take. Raises DavError."""
    async with open_dav(login, kind, whole=whole) as client:
        yield DavCollections(client)


class DavCollections(Struct, frozen=True):
    """See `switchboard.ports.collection_server.CollectionServer`. Names are as they are proposed."""

    client: DavClient

    @property
    def host(self) -> str:
        """As in the port."""
        return self.client.start.host

    async def find_collections(self) -> tuple[ServerCollection, ...]:
        """As in the port."""
        return await find_collections(self.client)

    async def list_changes(self, collection: str, token: str) -> ServerListing:
        """As in the port."""
        return await list_changes(self.client, collection, token)

    async def list_everything(self, collection: str) -> ServerListing:
        """As in the port."""
        return await list_everything(self.client, collection)

    async def read_objects(self, collection: str, names: Sequence[str]) -> ServerContents:
        """As in the port."""
        return await read_objects(self.client, collection, names)

    async def read_object(self, collection: str, name: str) -> ServerObject:
        """As in the port."""
        return await read_object(self.client, collection, name)

    async def objects_between(self, collection: str, since: datetime, until: datetime) -> tuple[ServerObject, ...]:
        """As in the port."""
        return await objects_between(self.client, collection, since, until)

    async def objects_with_uid(self, collection: str, uid: str) -> tuple[ServerObject, ...]:
        """As in the port."""
        return await objects_with_uid(self.client, collection, uid)

    async def create_object(self, collection: str, new: ServerObject) -> ServerObject:
        """As in the port."""
        return await create_object(self.client, collection, new)

    async def replace_object(self, collection: str, old: ServerObject, data: bytes) -> ServerObject:
        """As in the port."""
        return await replace_object(self.client, collection, old, data)

    async def delete_object(self, collection: str, old: ServerObject) -> None:
        """As in the port."""
        await delete_object(self.client, collection, old)
