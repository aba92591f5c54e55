"""What senders are called where people read of them: numbers that platforms give out tell nobody anything.

The page calls `SenderNames` with the senders of all of its rows at once. In: where and as whom they wrote; out: a
`KnownSenders`. The name of a linked person is an operator's; a display name is what the sender chose, and proves
nothing. Next: `store/people/people.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final
from urllib.parse import unquote
from uuid import UUID

from msgspec import Struct

from switchboard.app.runtime import Runtime
from switchboard.core.people.handle import Handle, handle_behind, sender_behind
from switchboard.core.people.readers import person_named
from switchboard.domain.message import RequestId
from switchboard.store.database import Database
from switchboard.store.people import people as store
from switchboard.store.people import strangers


class SenderPlace(Struct, frozen=True):
    """A sender as a channel names them; `endpoint` is empty where it is not known."""

    channel: str
    endpoint: str
    sender: str


class CalledSender(Struct, frozen=True):
    """What a sender is called. `linked`: by the operators, who linked the handle to a person; else by themselves."""

    name: str
    linked: bool


class KnownSenders(Struct, frozen=True):
    """What the senders of a page are called. `contacts`: the names of strangers by their ids."""

    senders: Mapping[SenderPlace, CalledSender] = {}
    contacts: Mapping[str, str] = {}

    def find(self, channel: str, endpoint: str | None, sender: str | None) -> CalledSender | None:
        """None: there is nothing to call them but what the channel does."""
        return self.senders.get(SenderPlace(channel, endpoint or "", sender or ""))

    def find_place(self, conversation: str) -> CalledSender | None:
        """The person whose own conversation that is; None if it is no known person's."""
        place = place_of(conversation)
        found = None if place is None else self.senders.get(place)
        return found if found is not None and found.linked else None

    def find_decider(self, decided_by: str) -> CalledSender | None:
        """Who decided in a chat, where `channel:sender` is on record."""
        return self.senders.get(decider_of(decided_by))


NOBODY_CALLED: Final = KnownSenders()


class SenderNames:
    """Looks names up, those of a page in one query."""

    def __init__(self, runtime: Runtime) -> None:
        self._database = runtime.database
        self._channels = runtime.channels

    async def find(self, wrote: Iterable[tuple[SenderPlace, UUID | None]]) -> KnownSenders:
        """`wrote`: the senders, each with a message of theirs, which has the name that they chose."""
        messages: dict[SenderPlace, RequestId | None] = {}
        for place, request_id in wrote:
            if messages.get(place) is None:
                messages[place] = None if request_id is None else RequestId(request_id)
        asked = [(place, self._handle_of(place), request_id) for place, request_id in messages.items()]
        asked = [one for one in asked if one[1] is not None or one[2] is not None]
        if not asked:
            return NOBODY_CALLED
        found = await store.list_called(self._database, [(handle, request_id) for _, handle, request_id in asked])
        named = {asked[one.n][0]: _choose_name(one.person, one.display_name) for one in found}
        return KnownSenders({place: name for place, name in named.items() if name is not None})

    async def find_contacts(self, contact_ids: Iterable[UUID]) -> KnownSenders:
        """Strangers, by the ids that the audit has."""
        wanted = set(contact_ids)
        found = await strangers.list_called(self._database, wanted) if wanted else {}
        return KnownSenders(contacts={str(contact_id): name for contact_id, name in found.items()})

    def _handle_of(self, place: SenderPlace) -> Handle | None:
        """None: nobody vouches for who it is; and of a mail, the address says it better than a name it may not have."""
        if self._channels[place.channel].identity != "platform":
            return None
        return handle_behind(person_named(place.channel, place.endpoint, place.sender))


def place_of(conversation: str) -> SenderPlace | None:
    """Whose own conversation it is, by its name; None if it is of another form."""
    parts = [unquote(part) for part in conversation.split("/")]
    return SenderPlace(*parts) if len(parts) == 3 else None


def decider_of(decided_by: str) -> SenderPlace:
    """Who decided in a chat, from how that is on record; of a token's name, a place where nobody is."""
    channel, _, sender = decided_by.partition(":")
    return SenderPlace(channel, "", sender)


def _choose_name(person: str | None, display_name: str | None) -> CalledSender | None:
    if person:
        return CalledSender(person, linked=True)
    return CalledSender(display_name, linked=False) if display_name else None


async def call_people(database: Database, keys: Collection[str]) -> Mapping[str, str]:
    """A name for each of these keys of `person_of`."""
    linked = await store.find_linked(database, {*keys})
    return {key: one.name or one.person_id if (one := linked.get(key)) else _name_of_handle(key) for key in keys}


def _name_of_handle(key: str) -> str:
    """Of somebody who is linked with no person; a key that was too long to be kept whole stands for itself."""
    sender = sender_behind(key)
    return key if sender is None else f"{sender.identity} ({sender.channel})"
