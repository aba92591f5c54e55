"""Who owns a butler: those whom its option `owners` names, and those who sent a code for owners. Pure.

Called by the engine `model` to find what a turn may use, by `journey/approving.py` to find who decides in chat, and by
`journey/rulebook.py` to find who may let a group in. Next: `core/people/readers.py`, which says whether the author is
certain.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from msgspec.structs import replace

from switchboard.core.calls import is_call
from switchboard.core.people.handle import identity_of, sender_of
from switchboard.domain.envelope import Envelope
from switchboard.domain.routing import Member, Owner
from switchboard.ports.facts import Reader

_PERSON: Final = "person"
"""What stands before the id of a person in the option `owners`, so no sender of a channel of that name is meant."""


def is_owner(member: Member, owners: Collection[str], envelope: Envelope) -> bool:
    """Whether the sender owns the butler; `owners` is its option of this name.

    The option names a channel and a sender, such as `telegram:5488`, or a person, such as `person:ann`, who owns it
    under each handle that proves who writes. A code counts at its endpoint alone.
    """
    return _is_among(sender_of(envelope), member, owners)


def is_certain_owner(member: Member, owners: Collection[str], envelope: Envelope, reader: Reader) -> bool:
    """Whether it is certainly an owner who writes, or whom a call is for."""
    return reader.authentic and (is_owner(member, owners, envelope) or _is_called_for(owners, envelope))


def _is_called_for(owners: Collection[str], envelope: Envelope) -> bool:
    """The sender of a call is a person, also before its handle is linked to them and the rules were read since."""
    return is_call(envelope) and f"{_PERSON}:{envelope.sender.identity}" in owners


def owns_any(members: Iterable[Member], envelope: Envelope) -> bool:
    """Whether the sender owns a butler that is switched on."""
    sender = sender_of(envelope)
    return any(member.active and member.number == 1 and owns(sender, member) for member in members)


def owns(person: Owner, member: Member | None) -> bool:
    """Whether the person owns the butler, by its option `owners` or by a code."""
    owners = None if member is None else member.options.get("owners")
    return member is not None and _is_among(person, member, owners if isinstance(owners, list | tuple) else ())


def decides_in_chat(member: Member | None, envelope: Envelope, reader: Reader) -> bool:
    """Whether an owner of this butler certainly wrote the message, where nobody else reads."""
    return owns(sender_of(envelope), member) and reader.private and reader.authentic


def _is_among(person: Owner, member: Member, owners: Collection[str]) -> bool:
    if person in member.owners or _is_linked(person, member):
        return True
    return person.channel != _PERSON and f"{person.channel}:{person.identity}" in owners


def _is_linked(person: Owner, member: Member) -> bool:
    """As the channel counts its identities: at this endpoint, or at all. The rule book keeps only vouched channels."""
    identity = identity_of(person) if member.linked else None
    if identity is None:
        return False
    handle = replace(person, identity=identity)
    return handle in member.linked or replace(handle, endpoint="") in member.linked
