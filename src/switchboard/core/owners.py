"""Who owns a butler: the people named in its option `owners`, and those who sent a code for owners. Pure.

Called by the engine `model` to find what a turn may use, and by `journey/approving.py` to find who decides in chat.
Next: `core/readers.py`, which says whether the author is certain.
"""

from __future__ import annotations

from collections.abc import Collection

from switchboard.domain.envelope import Envelope
from switchboard.domain.routing import Member, Owner
from switchboard.ports.facts import Reader


def is_owner(member: Member, envelope: Envelope) -> bool:
    """Whether the sender owns the butler.

    The option `owners` names a channel and a sender, such as `telegram:5488`; a code counts at its endpoint alone.
    """
    source, sender = envelope.source, envelope.sender.identity
    named = member.options.get("owners")
    if isinstance(named, Collection) and not isinstance(named, str) and f"{source.channel}:{sender}" in named:
        return True
    return Owner(source.channel, source.endpoint_identity, sender) in member.owners


def decides_in_chat(member: Member | None, envelope: Envelope, reader: Reader) -> bool:
    """Whether an owner of this butler certainly wrote the message, where nobody else reads."""
    return member is not None and is_owner(member, envelope) and reader.private and reader.authentic
