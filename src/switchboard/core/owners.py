"""Who owns a butler: the people named in its option `owners`. Pure.

Called by the engine `model` to find what a turn may use, and by `journey/approving.py` to find who decides in chat.
Next: `core/readers.py`, which says whether the author is certain.
"""

from __future__ import annotations

from collections.abc import Collection

from switchboard.domain.envelope import Envelope
from switchboard.domain.routing import Member
from switchboard.ports.facts import Reader


def is_named(owners: Collection[str], envelope: Envelope) -> bool:
    """Whether the sender is one of `owners`, such as `telegram:5488`: a channel and a sender."""
    return f"{envelope.source.channel}:{envelope.sender.identity}" in owners


def decides_in_chat(member: Member | None, envelope: Envelope, reader: Reader) -> bool:
    """Whether an owner of this butler certainly wrote the message, where nobody else reads."""
    owners = None if member is None else member.options.get("owners")
    named = isinstance(owners, list | tuple) and is_named(owners, envelope)
    return named and reader.private and reader.authentic
