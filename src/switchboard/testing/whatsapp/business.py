"""The state of a business at WhatsApp: its numbers, whom it knows, its files, and what it has sent.

Changed by `graph.py` for the business, and by `people.py` for those who write to it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final

from msgspec import Struct

from switchboard.domain.json_values import JsonObject
from switchboard.testing.whatsapp.webhooks import CloudPerson

WINDOW_S: Final = 24 * 3600.0
"""For how long a business may answer freely after a person has written."""
FREE_MESSAGES: Final = 1000
"""How many answers of a number cost nothing in a month."""
_URL_S: Final = 300.0
_KEPT_S: Final = 30 * 86_400.0


class StoredMedia(Struct, frozen=True):
    """A file; one that a person has sent is `theirs`."""

    media_id: str
    media_type: str
    data: bytes
    stored_at: float
    filename: str = ""
    theirs: bool = False

    @property
    def hash(self) -> str:
        """Its SHA-256."""
        return sha256(self.data).hexdigest()


class BusinessMessage(Struct, frozen=True):
    """A message that the business has sent. `content` is the body of its request; `person`: None if nobody has it.

    `failed`: the code with which it failed at once, though the request had succeeded.
    """

    wamid: str
    number_id: str
    content: JsonObject
    person: CloudPerson | None
    failed: int | None = None

    @property
    def text(self) -> str:
        """Its text or caption; the name of a template."""
        content = self.content
        kind = str(content.get("type", "text"))
        about = content.get(kind) or {}
        if kind == "interactive":
            return str(about["body"]["text"])
        return str(about.get("body") or about.get("caption") or (about.get("name") if kind == "template" else ""))


@dataclass(slots=True)
class BusinessNumber:
    """A number of the business. `override`: where its webhooks are posted, instead of to the URL of the app."""

    number_id: str
    display: str
    name: str = "House"
    override: str = ""
    free_left: int = FREE_MESSAGES
    """How many more answers cost nothing this month."""


@dataclass(slots=True)
class KnownPerson:
    """Somebody on WhatsApp. `wrote`: when to which number."""

    person: CloudPerson
    wrote: dict[str, float] = field(default_factory=dict)
    has_blocked: bool = False


@dataclass(slots=True)
class WhatsAppBusiness:
    """All of it; `clock` gives seconds since 1970, `url` where the server listens."""

    clock: Callable[[], float]
    url: Callable[[], str]
    account_id: str
    numbers: dict[str, BusinessNumber] = field(default_factory=dict)
    people: list[KnownPerson] = field(default_factory=list)
    media: dict[str, StoredMedia] = field(default_factory=dict)
    sent: list[BusinessMessage] = field(default_factory=list)
    heard: dict[str, str] = field(default_factory=dict)
    """The messages of people, by id, with the number that each was sent to."""
    subscribed: bool = True
    """Whether the app hears of the account."""
    templates: set[tuple[str, str]] = field(default_factory=set)
    """The approved ones, by name and language."""
    media_host: str = ""
    """Where files are fetched, as in `http://127.0.0.1:1`; empty: here."""
    _last: int = 0

    def next_number(self) -> int:
        """A number that nothing else has."""
        self._last += 1
        return self._last

    def know(self, person: CloudPerson) -> KnownPerson:
        """What is known of a person; whoever is new is added."""
        for one in self.people:
            if person.user_id and one.person.user_id == person.user_id:
                one.person = person
                return one
            if person.phone is not None and one.person.phone == person.phone:
                one.person = person
                return one
        self.people.append(KnownPerson(person))
        return self.people[-1]

    def find_phone(self, phone: str) -> KnownPerson | None:
        """Who has this phone number."""
        digits = phone.removeprefix("+")
        return next((one for one in self.people if one.person.phone == digits), None)

    def find_user(self, user_id: str) -> KnownPerson | None:
        """Who has this id, for the business or for its parent."""
        return next(
            (one for one in self.people if user_id in (one.person.user_id, one.person.parent_user_id) and user_id), None
        )

    def is_window_open(self, known: KnownPerson, number_id: str) -> bool:
        """Whether the business may write freely from this number."""
        wrote = known.wrote.get(number_id)
        return wrote is not None and self.clock() - wrote < WINDOW_S

    def store(self, media_type: str, data: bytes, filename: str = "", *, theirs: bool = False) -> StoredMedia:
        """Keep a file."""
        media_id = f"9{self.next_number():014}"
        self.media[media_id] = StoredMedia(media_id, media_type, data, self.clock(), filename, theirs)
        return self.media[media_id]

    def find_media(self, media_id: str) -> StoredMedia | None:
        """A file; files are kept for 30 days."""
        found = self.media.get(media_id)
        return found if found is not None and self.clock() - found.stored_at < _KEPT_S else None

    def sign_url(self, media: StoredMedia) -> str:
        """A URL of the file, which is valid for five minutes."""
        expiry = int(self.clock() + _URL_S)
        query = f"mid={media.media_id}&ext={expiry}&hash={self.url_hash(media.media_id, expiry)}"
        return f"{self.media_host or self.url()}/whatsapp_business/attachments/?{query}"

    def url_hash(self, media_id: str, expiry: int) -> str:
        """What makes such a URL valid."""
        return sha256(f"{media_id}:{expiry}:attachments".encode()).hexdigest()[:24]
