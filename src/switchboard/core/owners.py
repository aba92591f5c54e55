"""Who owns a butler: the people named in its option `owners`, and those who sent a code for owners. Pure.

Called by the engine `model` to find what a turn may use, by `journey/approving.py` to find who decides in chat, and by
`journey/rulebook.py` to find who may let a group in.
Next: `core/readers.py`, which says whether the author is certain.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from switchboard.domain.envelope import Envelope
from switchboard.domain.routing import Member, Owner
from switchboard.ports.facts import Reader


def is_owner(member: Member, owners: Collection[str], envelope: Envelope) -> bool:
    """Whether the sender owns the butler; `owners` is its option of this name.

    The option names a channel and a sender, such as `telegram:5488`; a code counts at its endpoint alone.
    """
    source, sender = envelope.source, envelope.sender.identity
    by_code = Owner(source.channel, source.endpoint_identity, sender) in member.owners
    return by_code or f"{source.channel}:{sender}" in owners


def owns_any(members: Iterable[Member], envelope: Envelope) -> bool:
    """Whether the sender owns a butler that is switched on."""
    return any(member.active and member.number == 1 and is_owner(member, envelope) for member in members)


def decides_in_chat(member: Member | None, envelope: Envelope, reader: Reader) -> bool:
    """Whether an owner of this butler certainly wrote the message, where nobody else reads."""
    if member is None:
        return False
    named = member.options.get("owners")
    owners = named if isinstance(named, list | tuple) else ()
    return is_owner(member, owners, envelope) and reader.private and reader.authentic
