"""Calendars and contacts as Google's APIs keep them, in memory and strict, behind the port of servers.

`FakeGoogle` is the service: pages, tokens that expire, ids and ETags as in events.list of the Calendar API v3 and
people.connections.list of the People API v1. `GoogleCollections` is what a client of it has to do to keep the laws of
`CollectionServer`. Payloads are iCalendar or vCard here; making them of Google's JSON is that client's business, too.
Next: `collections.py`, the checks that both kinds pass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from hashlib import sha256
from typing import Final, Literal, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from switchboard.core.text.compared_lines import has_all_lines
from switchboard.ports.collection_server import (
    ServerCollection,
    ServerContents,
    ServerError,
    ServerListing,
    ServerObject,
)

GoogleKind = Literal["calendar", "people"]
_PAGE: Final = 2
"""Entries of a page: few, so that each list has several."""
_HEX: Final = frozenset("0123456789abcdefghijklmnopqrstuv")
"""What an id of a client may consist of: base32hex, as RFC 4648 has it."""
_T = TypeVar("_T")
TakesPlace = Callable[[bytes, datetime, datetime], bool]


class GoogleError(Exception):
    """An answer with a status of 400 and more."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(f"{status} {reason}")
        self.status = status
        self.reason = reason


class GoogleEntry(Struct, frozen=True):
    """An event or a person. `cancelled`: it is deleted, and only told to whoever asks with a token.

    `mark`: what its client has noted in it, such as a private property or `clientData`.
    """

    entry_id: str
    etag: str
    payload: bytes
    changed: int
    mark: str = ""
    cancelled: bool = False


class GooglePage(Struct, frozen=True):
    """Of the two tokens there is one: that of the next page, or on the last one that of the next sync."""

    entries: tuple[GoogleEntry, ...]
    next_page: str = ""
    next_sync: str = ""


class FakeGoogle:
    """One collection. All that it does wrong is a GoogleError, and what a client may not send is refused."""

    def __init__(self, kind: GoogleKind, takes_place: TakesPlace | None = None) -> None:
        self.kind = kind
        self.listed: dict[str, GoogleEntry] = {}
        """What lists know. Those of people are minutes behind what is written: see `settle`."""
        self._takes_place = takes_place
        self._entries: dict[str, GoogleEntry] = {}
        self._clock = 0
        self._since: dict[str, int] = {}
        """The state that each token of a sync is about."""
        self._pages: dict[str, tuple[tuple[GoogleEntry, ...], str]] = {}

    def settle(self) -> None:
        """Have lists show everything that was written."""
        self.listed = dict(self._entries)

    def expire_tokens(self) -> None:
        """As after a week, or a change of rights."""
        self._since.clear()

    def list_entries(
        self, *, sync: str = "", page: str = "", between: tuple[datetime, datetime] | None = None
    ) -> GooglePage:
        """A page of what there is, or has changed since a token. Raises 410, of people 400, for a lost token."""
        if sync and between is not None:
            raise GoogleError(400, "Sync token cannot be used with other request restrictions")
        if page:
            if page not in self._pages:
                raise GoogleError(400, "Invalid page token")
            left, next_sync = self._pages.pop(page)
        else:
            left, next_sync = self._select_entries(sync, between), self._make_token()
        if len(left) <= _PAGE:
            return GooglePage(left, next_sync=next_sync)
        further = f"page-{len(self._pages)}-{self._advance_clock()}"
        self._pages[further] = left[_PAGE:], next_sync
        return GooglePage(left[:_PAGE], next_page=further)

    def _select_entries(self, sync: str, between: tuple[datetime, datetime] | None) -> tuple[GoogleEntry, ...]:
        listed = self.listed.values()
        if not sync:
            there = tuple(one for one in listed if not one.cancelled)
            return there if between is None else tuple(one for one in there if self._is_in(one, between))
        if sync not in self._since:
            raise (
                GoogleError(410, "fullSyncRequired")
                if self.kind == "calendar"
                else GoogleError(400, "EXPIRED_SYNC_TOKEN")
            )
        return tuple(one for one in listed if one.changed > self._since[sync])

    def _is_in(self, one: GoogleEntry, between: tuple[datetime, datetime]) -> bool:
        if self._takes_place is None:
            raise GoogleError(400, "Invalid field timeMin")
        return self._takes_place(one.payload, *between)

    def _make_token(self) -> str:
        state = max((one.changed for one in self.listed.values()), default=0)
        token = sha256(f"{id(self)} {self._advance_clock()}".encode()).hexdigest()[:24]
        self._since[token] = state
        return token

    def get(self, entry_id: str) -> GoogleEntry:
        """Of a calendar also what is cancelled. Raises 404."""
        found = self._entries.get(entry_id)
        if found is None or (self.kind == "people" and found.cancelled):
            raise GoogleError(404, "notFound")
        return found

    def find_mark(self, mark: str) -> GoogleEntry | None:
        """The entry with this mark; of a calendar by `privateExtendedProperty`, of people by reading all of them."""
        return next((one for one in self._entries.values() if one.mark == mark and not one.cancelled), None)

    def insert(self, payload: bytes, *, entry_id: str = "", mark: str = "") -> GoogleEntry:
        """Ids of calendars may be the client's, and stay taken when an event is deleted (409); those of people not."""
        if entry_id and (self.kind == "people" or not 5 <= len(entry_id) <= 1024 or not _HEX.issuperset(entry_id)):
            raise GoogleError(400, "Invalid resource id value")
        if entry_id in self._entries:
            raise GoogleError(409, "The requested identifier already exists")
        return self._store_entry(GoogleEntry(entry_id or f"c{self._advance_clock():019d}", "", payload, 0, mark))

    def update(self, entry_id: str, payload: bytes, etag: str) -> GoogleEntry:
        """Calendars compare If-Match (412), people the ETag in the body (400); what was cancelled is there again."""
        old = self.get(entry_id)
        if old.etag != etag:
            raise (
                GoogleError(412, "conditionNotMet")
                if self.kind == "calendar"
                else GoogleError(400, "failedPrecondition")
            )
        return self._store_entry(replace(old, payload=payload, cancelled=False))

    def delete(self, entry_id: str, etag: str = "") -> None:
        """Calendars compare If-Match (412), and say 410 of what is deleted; people know no condition."""
        old = self.get(entry_id)
        if self.kind == "people" and etag:
            raise GoogleError(400, "Unknown name etag")
        if old.cancelled:
            raise GoogleError(410, "deleted")
        if etag and old.etag != etag:
            raise GoogleError(412, "conditionNotMet")
        self._store_entry(replace(old, payload=b"", cancelled=True))

    def _store_entry(self, one: GoogleEntry) -> GoogleEntry:
        changed = self._advance_clock()
        stored = replace(one, changed=changed, etag=f'"{changed:x}{one.entry_id[-4:]}"')
        self._entries[one.entry_id] = stored
        if self.kind == "calendar":
            self.listed[one.entry_id] = stored
        return stored

    def _advance_clock(self) -> int:
        self._clock += 1
        return self._clock


class GoogleCollections:
    """See `switchboard.ports.collection_server.CollectionServer`: an account with one collection.

    The name of an object is its id. Of a calendar it is made from the proposed name; people are marked with that.
    """

    def __init__(self, google: FakeGoogle) -> None:
        self.google = google
        self.collection = f"https://www.googleapis.com/{google.kind}/primary/"

    @property
    def host(self) -> str:
        """As in the port."""
        return "www.googleapis.com"

    async def find_collections(self) -> tuple[ServerCollection, ...]:
        """As in the port."""
        return (ServerCollection(self.collection, f"/{self.google.kind}/primary", "Primary", writable=True),)

    async def list_changes(self, collection: str, token: str) -> ServerListing:
        """As in the port."""
        self._require_collection(collection)
        if not token:
            return await self.list_everything(collection)
        try:
            return self._list_all(token)
        except GoogleError as error:
            if error.status == 410 or error.reason == "EXPIRED_SYNC_TOKEN":
                return await self.list_everything(collection)
            raise _server_error(error) from error

    async def list_everything(self, collection: str) -> ServerListing:
        """As in the port."""
        self._require_collection(collection)
        return self._list_all("")

    def _list_all(self, sync: str) -> ServerListing:
        page = self.google.list_entries(sync=sync)
        entries = [*page.entries]
        while page.next_page:
            page = self.google.list_entries(sync=sync, page=page.next_page)
            entries += page.entries
        etags = {one.entry_id: one.etag for one in entries if not one.cancelled}
        gone = frozenset(one.entry_id for one in entries if one.cancelled)
        return ServerListing(etags, gone, page.next_sync, whole=not sync)

    async def read_objects(self, collection: str, names: Sequence[str]) -> ServerContents:
        """As in the port."""
        self._require_collection(collection)
        found = {name: self._find_entry(name) for name in names}
        there = tuple(_object_of(one) for one in found.values() if one is not None)
        return ServerContents(there, frozenset(name for name, one in found.items() if one is None))

    async def read_object(self, collection: str, name: str) -> ServerObject:
        """As in the port."""
        self._require_collection(collection)
        if (found := self._find_entry(name)) is None:
            raise ServerError("missing", f"there is no {name}")
        return _object_of(found)

    async def objects_between(self, collection: str, since: datetime, until: datetime) -> tuple[ServerObject, ...]:
        """As in the port."""
        self._require_collection(collection)
        page = self.google.list_entries(between=(since, until))
        entries = [*page.entries]
        while page.next_page:
            page = self.google.list_entries(page=page.next_page)
            entries += page.entries
        return tuple(map(_object_of, entries))

    async def objects_with_uid(self, collection: str, uid: str) -> tuple[ServerObject, ...]:
        """As in the port."""
        listed = await self.list_everything(collection)
        contents = await self.read_objects(collection, [*listed.etags])
        return tuple(one for one in contents.objects if f"UID:{uid}\r\n".encode() in one.data)

    async def create_object(self, collection: str, new: ServerObject) -> ServerObject:
        """As in the port."""
        self._require_collection(collection)
        entry_id = self._id_for(new.name)
        if not entry_id and (marked := self.google.find_mark(new.name)) is not None:
            return _same_object(marked, new)
        try:
            return _object_of(self.google.insert(new.data, entry_id=entry_id, mark=new.name))
        except GoogleError as error:
            if error.status != 409:
                raise _server_error(error) from error
        there = self.google.get(entry_id)
        if there.cancelled:
            return _object_of(self._write_entry(lambda: self.google.update(entry_id, new.data, there.etag)))
        return _same_object(there, new)

    async def replace_object(self, collection: str, old: ServerObject, data: bytes) -> ServerObject:
        """As in the port."""
        there = self._require_state(collection, old)
        if there is None:
            raise ServerError("changed", f"{old.name} is deleted")
        return _object_of(self._write_entry(lambda: self.google.update(there.entry_id, data, old.etag)))

    async def delete_object(self, collection: str, old: ServerObject) -> None:
        """As in the port. People are compared before: their API has no condition."""
        there = self._require_state(collection, old)
        if there is None:
            return
        if self.google.kind == "people" and there.etag != old.etag:
            raise ServerError("changed", f"{old.name} is another by now")
        etag = old.etag if self.google.kind == "calendar" else ""
        self._write_entry(lambda: self.google.delete(there.entry_id, etag))

    def _require_collection(self, collection: str) -> None:
        if collection != self.collection:
            raise ServerError("missing", f"there is no {collection}")

    def _require_state(self, collection: str, old: ServerObject) -> GoogleEntry | None:
        self._require_collection(collection)
        if not old.etag:
            raise ServerError("unprotected", "no ETag is known")
        return self._find_entry(old.name)

    def _id_for(self, name: str) -> str:
        """Of a calendar: one that it has given before, or one made from the name. Empty: people get one."""
        if self.google.kind == "people":
            return ""
        try:
            return self.google.get(name).entry_id
        except GoogleError:
            return _id_from(name)

    def _find_entry(self, name: str) -> GoogleEntry | None:
        """By its id, or by the name that was proposed for it; not what is deleted."""
        calendar = self.google.kind == "calendar"
        for entry_id in (name, _id_from(name)) if calendar else (name,):
            try:
                found = self.google.get(entry_id)
            except GoogleError:
                continue
            return None if found.cancelled else found
        return None if calendar else self.google.find_mark(name)

    def _write_entry(self, work: Callable[[], _T]) -> _T:
        try:
            return work()
        except GoogleError as error:
            raise _server_error(error) from error


def _id_from(name: str) -> str:
    """The same for the same name, of the characters that an id may have."""
    return sha256(name.encode()).hexdigest()


def _object_of(one: GoogleEntry) -> ServerObject:
    return ServerObject(one.entry_id, one.etag, one.payload)


def _same_object(there: GoogleEntry, new: ServerObject) -> ServerObject:
    if not has_all_lines(there.payload, new.data):
        raise ServerError("changed", f"there is something else under the name {new.name!r}")
    return _object_of(there)


def _server_error(error: GoogleError) -> ServerError:
    if error.status in (409, 410, 412) or error.reason == "failedPrecondition":
        return ServerError("changed", str(error))
    return ServerError("missing" if error.status == 404 else "refused", str(error))
