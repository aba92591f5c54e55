"""Who is who: the persons that operators have made of handles. Pure.

`journey/people_book.py` keeps the present value; `journey/decide.py` asks it for the sender of a message. In: a message
and its facts; out: a `Known`, or None. Next: `handle.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from msgspec import Struct

from switchboard.core.channels.registry import Channels
from switchboard.core.people.handle import ADDRESS, Handle, handle_of
from switchboard.domain.envelope import Envelope
from switchboard.domain.people import Known, PersonNames
from switchboard.ports.channel import Channel


class KnownPeople(Struct, frozen=True):
    """All persons at a version: their handles, including those that are only listed, and all ids and groups."""

    version: int = 0
    handles: Mapping[Handle, Known] = MappingProxyType({})
    persons: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()

    def find_sender(self, envelope: Envelope, channel: Channel, known: Mapping[str, str]) -> Known | None:
        """The person who certainly wrote the message with these facts; None: nobody whom we know."""
        proven = proven_handle(envelope, channel, known) if self.handles else None
        return None if proven is None else self.handles.get(proven)

    def names(self, channels: Channels) -> PersonNames:
        """What rules may name."""
        proven = [one for handle, one in self.handles.items() if channels[handle.channel].vouched]
        shown = {
            "person": frozenset(one.person for one in proven),
            "groups": frozenset(group for one in proven for group in one.groups),
        }
        return PersonNames({"person": self.persons, "groups": self.groups}, shown)


def proven_handle(envelope: Envelope, channel: Channel, known: Mapping[str, str]) -> Handle | None:
    """The handle of the one who certainly wrote the message with these facts; None: that is not certain."""
    if not channel.vouched or len(envelope.sender.participants or ()) > 1:
        return None
    if channel.identity == "address" and (ADDRESS not in known or not channel.authentic(known)):
        return None
    return handle_of(envelope, channel, known)


NOBODY: Final = KnownPeople()
