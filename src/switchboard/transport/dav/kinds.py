"""What CalDAV and CardDAV are called on the wire, who logs in, and what a request can come to. Pure.

Modules make a `DavLogin` of their settings; `client.py` and all that is above it raise `DavError`. Sources: RFC 4918
(WebDAV), 3744 (privileges), 5397 (principals), 6352 (CardDAV), 4791 (CalDAV), 6578 (sync), 6764 (.well-known). Next:
`multistatus.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal

from msgspec import Struct

DavState = Literal[
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

`later`: the same may succeed (no connection, TLS, a proxy, 423, 429, 5xx) · `login`: 401 · `login_page`: a page for
people instead of an answer · `forbidden`: 403 · `elsewhere`: sent on to another site, to which no password goes ·
`quota`: no space left (402, 507) · `changed`: somebody else has changed it (409, 412) · `missing`: 404, 410 ·
`too_large` · `refused`: another 4xx · `unprotected`: the server gives no ETag by which a race could be noticed ·
`unreadable`: no answer that makes sense · `unknown`: a write of which nobody can say whether it was carried out.
"""


class DavError(Exception):
    """A request that did not do what it should. `retry_after` in seconds, if the server has said it."""

    def __init__(self, state: DavState, message: str, *, status: int = 0, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.state = state
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
