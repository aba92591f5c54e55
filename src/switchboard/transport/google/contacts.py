"""Google's contacts behind the port of servers, for reading: one address book, whose people are cards.

Modules open one with `open_google_contacts`, and see nothing but the port. Requests follow each other, as Google wants
it. A token is good for a week after the full list that gave the first one; lists are minutes behind what was written.
Next: `vcards.py`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from hashlib import sha256
from typing import Final

from msgspec import ValidationError

from switchboard.domain.json_values import JsonMapping, JsonObject
from switchboard.ports.collection_server import (
    CollectionServer,
    ServerCollection,
    ServerContents,
    ServerError,
    ServerListing,
    ServerObject,
)
from switchboard.transport.google.client import (
    PEOPLE_API,
    WHOLE_S,
    GoogleClient,
    GoogleError,
    Parameters,
    open_google,
    quote_segment,
)
from switchboard.transport.google.vcards import PERSON_FIELDS, GooglePerson, card_of_person, group_names, person_of
from switchboard.transport.oauth.tokens import AccessTokens

_READ: Final[Parameters] = {"personFields": PERSON_FIELDS, "sources": "READ_SOURCE_TYPE_CONTACT"}
"""What the user keeps, and not what people say of themselves in their profiles."""
_LIST: Final[Parameters] = {**_READ, "pageSize": 1000, "requestSyncToken": True}
_MASK: Final = sha256(PERSON_FIELDS.encode()).hexdigest()[:8]
"""Of what is asked for: a token is good for the same fields alone, and a release may ask for others."""
_BATCH: Final = 200


@asynccontextmanager
async def open_google_contacts(
    tokens: AccessTokens, *, api: str = PEOPLE_API, whole: float = WHOLE_S
) -> AsyncIterator[CollectionServer]:
    """An account. `whole`: seconds that one exchange may take."""
    async with open_google(tokens, api, whole=whole) as client:
        yield GoogleContacts(client)


class GoogleContacts:
    """See `switchboard.ports.collection_server.CollectionServer`. Objects are named by the ids of people."""

    def __init__(self, client: GoogleClient) -> None:
        self._client = client
        self._collection = f"{client.api}/people/me/connections"
        self._listed: dict[str, JsonObject] = {}
        self._groups: dict[str, str] | None = None

    @property
    def host(self) -> str:
        """As in the port."""
        return self._client.host

    async def find_collections(self) -> tuple[ServerCollection, ...]:
        """As in the port."""
        return (ServerCollection(self._collection, "people/me", "Google Contacts", writable=False),)

    async def list_changes(self, collection: str, token: str) -> ServerListing:
        """As in the port. A token of another set of fields is not sent."""
        self._require_collection(collection)
        mask, _, known = token.partition(" ")
        if mask != _MASK or not known:
            return await self.list_everything(collection)
        try:
            return await self._list_people({**_LIST, "syncToken": known}, whole=False)
        except GoogleError as error:
            if error.status in (400, 404, 410):  # EXPIRED_SYNC_TOKEN is a 400
                return await self.list_everything(collection)
            raise

    async def list_everything(self, collection: str) -> ServerListing:
        """As in the port."""
        self._require_collection(collection)
        self._groups = None
        return await self._list_people(_LIST, whole=True)

    async def _list_people(self, parameters: Parameters, *, whole: bool) -> ServerListing:
        found: list[JsonObject] = []
        token = ""
        async for page in self._client.pages("people/me/connections", parameters):
            found += page.get("connections", ())
            token = str(page.get("nextSyncToken", ""))
        self._listed = {_name_of(one): one for one in found if not _is_deleted(one)}
        gone = frozenset(_name_of(one) for one in found if _is_deleted(one))
        etags = {name: str(one.get("etag", "")) for name, one in self._listed.items()}
        cursor = f"{_MASK} {token}" if token else ""
        return ServerListing(etags, frozenset() if whole else gone, cursor, whole=whole, complete=bool(token))

    async def read_objects(self, collection: str, names: Sequence[str]) -> ServerContents:
        """As in the port: what the list before has told, each once, or what there is now."""
        self._require_collection(collection)
        known = {name: self._listed.pop(name) for name in names if name in self._listed}
        known |= await self._fetch_people([name for name in names if name not in known])
        groups = await self._group_names()
        objects: list[ServerObject] = []
        unreadable: dict[str, ServerError] = {}
        for name, one in known.items():
            try:
                objects.append(_object_of(_read_person(one), groups))
            except ServerError as error:
                unreadable[name] = error
        return ServerContents(tuple(objects), frozenset(name for name in names if name not in known), unreadable)

    async def _fetch_people(self, names: Sequence[str]) -> dict[str, JsonObject]:
        """Those of them that there are; one alone by itself, since a batch wants names that are correct."""
        found: dict[str, JsonObject] = {}
        for name in names:
            try:
                one = await self._client.get(f"people/{quote_segment(name)}", _READ)
            except GoogleError as error:
                if error.status in (400, 404):
                    continue
                raise
            if not _is_deleted(one):
                found[name] = one
        return found

    async def read_object(self, collection: str, name: str) -> ServerObject:
        """As in the port."""
        self._require_collection(collection)
        if (found := (await self._fetch_people([name])).get(name)) is None:
            raise ServerError("missing", f"there is no {name}")
        return _object_of(_read_person(found), await self._group_names())

    async def objects_between(self, collection: str, since: datetime, until: datetime) -> tuple[ServerObject, ...]:
        """As in the port: contacts have no times."""
        raise ServerError("refused", f"{collection} is no calendar, with anything from {since} until {until}")

    async def objects_with_uid(self, collection: str, uid: str) -> tuple[ServerObject, ...]:
        """As in the port."""
        contents = await self.read_objects(collection, [uid.removeprefix("people/")])
        return contents.objects

    async def create_object(self, collection: str, new: ServerObject) -> ServerObject:
        """Refused."""
        raise _refuse_write(collection, new.name)

    async def replace_object(self, collection: str, old: ServerObject, data: bytes) -> ServerObject:
        """Refused."""
        raise _refuse_write(collection, old.name if data else "nothing")

    async def delete_object(self, collection: str, old: ServerObject) -> None:
        """Refused."""
        raise _refuse_write(collection, old.name)

    async def _group_names(self) -> dict[str, str]:
        """Once for all that is read; again with the next list of everything."""
        if self._groups is None:
            found: list[JsonObject] = []
            async for page in self._client.pages("contactGroups", {"pageSize": 1000}):
                found += page.get("contactGroups", ())
            try:
                self._groups = group_names(found)
            except ValidationError as error:
                raise GoogleError("unreadable", f"the groups of contacts cannot be read: {error}") from error
        return self._groups

    def _require_collection(self, collection: str) -> None:
        if collection != self._collection:
            raise ServerError("missing", f"there is no {collection}")


def _refuse_write(collection: str, name: str) -> ServerError:
    return ServerError("refused", f"{collection} is only read here: change {name} at Google")


def _name_of(person: JsonMapping) -> str:
    return str(person.get("resourceName", "")).removeprefix("people/")


def _is_deleted(person: JsonMapping) -> bool:
    metadata = person.get("metadata")
    return isinstance(metadata, dict) and metadata.get("deleted") is True


def _read_person(found: JsonMapping) -> GooglePerson:
    try:
        return person_of(found)
    except ValidationError as error:
        raise ServerError("unreadable", f"the contact {_name_of(found)[:100]} cannot be read: {error}") from error


def _object_of(person: GooglePerson, groups: dict[str, str]) -> ServerObject:
    return ServerObject(person.resource_name.removeprefix("people/"), person.etag, card_of_person(person, groups))
