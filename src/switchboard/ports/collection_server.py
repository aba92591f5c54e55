"""The port of servers that keep calendars or address books: all that the mirror and the tools that write ask of one.

`modules/mirror` and the modules over it call it. In: collections and the names of objects; out: listings, and objects
as bytes of iCalendar or vCard, whatever the server itself keeps. CalDAV and CardDAV are behind it
(`transport/dav/server.py`), and Google's own APIs (`transport/google/calendars.py`); `testing/collections.py` has the
laws as checks. Next: `module_store.py`, where what was read is kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Literal, Protocol

from msgspec import Struct

ServerState = Literal[
    "later",
    "login",
    "login_page",
    "forbidden",
    "elsewhere",
    "quota",
    "changed",
    "missing",
    "too_large",
    "refused",
    "unprotected",
    "unreadable",
    "unknown",
]
"""What was wrong. None of them says that anything was deleted.

`later`: the same may succeed (no connection, an overload, a limit of requests) · `login`: who we are is not accepted ·
`login_page`: a page for people instead of an answer · `forbidden` · `elsewhere`: sent on to another site, to which no
password goes · `quota`: no space left · `changed`: somebody else has changed it · `missing` · `too_large` · `refused`:
the request itself · `unprotected`: the server gives no ETag by which a race could be noticed · `unreadable`: no answer
that makes sense · `unknown`: a write of which nobody can say whether it was carried out.
"""


class ServerError(Exception):
    """A request that did not do what it should."""

    def __init__(self, state: ServerState, message: str) -> None:
        super().__init__(message)
        self.state = state


class ServerCollection(Struct, frozen=True):
    """A calendar or an address book. `cursor` and `ctag` say its state, if it has them.

    `url` is its address, and `key` what it is known by, the same for each spelling of the address. `writable` is None
    if the server does not say so. Of a calendar also its `colour`, as #RRGGBB, and the name of its time zone, as the
    server writes it; empty: none is said. `shared`: it belongs to somebody else than the user who has logged in.
    """

    url: str
    key: str
    name: str
    writable: bool | None
    cursor: str = ""
    ctag: str = ""
    colour: str = ""
    zone: str = ""
    shared: bool = False


class ServerListing(Struct, frozen=True):
    """Names of objects with their ETags (empty: the server gives none), and the names of those that are gone.

    `whole`: it lists all there is, so that what it lacks is gone; if not, it is what has changed. `cursor` is the token
    to ask with the next time, and empty unless the listing came to its end.
    """

    etags: Mapping[str, str]
    gone: frozenset[str] = frozenset()
    cursor: str = ""
    whole: bool = False
    complete: bool = True


class ServerObject(Struct, frozen=True):
    """An object: its name in the collection, the ETag as it stands (empty: none is known), and its bytes.

    Those of `read_object` are as the server has them; all others may have lost the CR before each LF.
    """

    name: str
    etag: str
    data: bytes


class ServerContents(Struct, frozen=True):
    """The contents of objects; `gone` have been deleted meanwhile, and `unreadable` says why, by name."""

    objects: tuple[ServerObject, ...]
    gone: frozenset[str] = frozenset()
    unreadable: Mapping[str, ServerError] = {}


class CollectionServer(Protocol):
    """One account on a server. Everything raises ServerError. A collection is named by its `url`.

    Whoever writes names the state that is replaced, and nothing that somebody else has written meanwhile is lost.
    """

    @property
    def host(self) -> str:
        """What people call the server."""
        ...

    async def find_collections(self) -> tuple[ServerCollection, ...]:
        """All collections of the account, each once, in the server's order."""
        ...

    async def list_changes(self, collection: str, token: str) -> ServerListing:
        """What has changed since the token; without one, or if the server does not know it any more, everything."""
        ...

    async def list_everything(self, collection: str) -> ServerListing:
        """All objects. Its token is older than the list, so that nothing falls between them."""
        ...

    async def read_objects(self, collection: str, names: Sequence[str]) -> ServerContents:
        """The contents of these objects. One that cannot be read spoils no other."""
        ...

    async def read_object(self, collection: str, name: str) -> ServerObject:
        """One object; `missing` if there is none."""
        ...

    async def objects_between(self, collection: str, since: datetime, until: datetime) -> tuple[ServerObject, ...]:
        """Of a calendar, the objects of which something takes place from `since` until `until`."""
        ...

    async def objects_with_uid(self, collection: str, uid: str) -> tuple[ServerObject, ...]:
        """Of a calendar, the objects with a UID, which should be one at most."""
        ...

    async def create_object(self, collection: str, new: ServerObject) -> ServerObject:
        """Write an object whose name is a proposal, and whose ETag does not count. Returns what the server has.

        A server that names objects itself may give it another name, which counts from then on; `read_object` and
        `create_object` find it by the proposed one, too, which may be that of an object that was deleted. So repeating
        it is harmless: what is there already, and has all lines of this, is returned. `changed` if the name is taken
        by something else.
        """
        ...

    async def replace_object(self, collection: str, old: ServerObject, data: bytes) -> ServerObject:
        """Write these bytes in place of `old`. Returns what the server has then.

        `changed` if somebody else has changed or deleted it, `unprotected` if `old` has no strong ETag, `later` if
        certainly nothing was written, and `unknown` if nobody can tell.
        """
        ...

    async def delete_object(self, collection: str, old: ServerObject) -> None:
        """Delete exactly this object; that it is gone already is success. Otherwise as `replace_object`."""
        ...


async def find_object(server: CollectionServer, collection: str, name: str) -> ServerObject | None:
    """One object; None if there is none. Raises ServerError for all else."""
    try:
        return await server.read_object(collection, name)
    except ServerError as error:
        if error.state == "missing":
            return None
        raise
