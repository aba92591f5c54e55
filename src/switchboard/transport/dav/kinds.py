"""What CalDAV and CardDAV are called on the wire, who logs in, and what a request can come to. Pure.

Modules make a `DavLogin` of their settings; `client.py` and all that is above it raise `DavError`. Sources: RFC 4918
(WebDAV), 3744 (privileges), 5397 (principals), 6352 (CardDAV), 4791 (CalDAV), 6578 (sync), 6764 (.well-known). Next:
`multistatus.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from msgspec import Struct

from switchboard.ports.collection_server import ServerError, ServerState


class DavError(ServerError):
    """The same of a WebDAV server. `status`: of its answer. `retry_after` in seconds, if the server has said it.

    `later` are also TLS, a proxy, 423, 429, 5xx; `login` is 401, `forbidden` 403, `quota` 402 and 507, `changed` 409
    and 412, `missing` 404 and 410, and `refused` another 4xx.
    """

    def __init__(self, state: ServerState, message: str, *, status: int = 0, retry_after: float | None = None) -> None:
        super().__init__(state, message)
        self.status = status
        self.retry_after = retry_after


class DavKind(Struct, frozen=True):
    """The names that a protocol on WebDAV has for its things."""

    name: str
    """Of its path in /.well-known."""
    namespace: str
    home: str
    collection: str
    data: str
    multiget: str
    media_type: str


CARDDAV: Final = DavKind(
    "carddav",
    "urn:ietf:params:xml:ns:carddav",
    "addressbook-home-set",
    "addressbook",
    "address-data",
    "addressbook-multiget",
    "text/vcard; charset=utf-8",
)
CALDAV: Final = DavKind(
    "caldav",
    "urn:ietf:params:xml:ns:caldav",
    "calendar-home-set",
    "calendar",
    "calendar-data",
    "calendar-multiget",
    "text/calendar; charset=utf-8",
)


@dataclass(frozen=True, slots=True)
class DavLogin:
    """Where an account is, and how it is opened."""

    url: str
    user: str
    password: str = field(repr=False)
