"""Who wrote a message, as the channel names them: the handle, made by one function. Pure.

Called by `owners.py`, `readers.py` and `strangers.py`, whose stored keys name the endpoint always, and so are no
handles; `handle_behind` finds the handle behind such a key. In: a message and its facts; out: a `Handle`. Next:
`strangers.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote

from msgspec import Struct

from switchboard.core.channels.registry import CHANNELS
from switchboard.core.envelope.identity import EMBEDDED
from switchboard.domain.envelope import Envelope
from switchboard.domain.routing import Owner
from switchboard.ports.channel import Channel

ADDRESS: Final = "email_sender"
"""The fact that identifies a person where senders have addresses."""


class Handle(Struct, frozen=True):
    """A person as one channel names them.

    `realm`: the endpoint within which the identity is unique; empty if it means the same person at every endpoint.
    """

    channel: str
    realm: str
    identity: str


def handle_at(channel: Channel, endpoint: str, identity: str) -> Handle:
    """The handle of this identity at an endpoint."""
    return Handle(channel.name, endpoint if channel.realm == "endpoint" else "", identity)


def handle_of(envelope: Envelope, channel: Channel, known: Mapping[str, str]) -> Handle:
    """The handle of the sender; `known`: the facts of the message. Whether it is certainly the sender is not said."""
    identity = known.get(ADDRESS, envelope.sender.identity)
    return handle_at(channel, envelope.source.endpoint_identity, identity)


def handle_behind(key: str) -> Handle | None:
    """The handle of the person with this key of `readers.person_of`, if their message is authentic.

    None: nobody vouches for it, as on channels where whoever may write chooses a name, on those of plug-ins, and in the
    sessions of a program; or the key was too long to be kept whole.
    """
    if (sender := sender_behind(key)) is None:
        return None
    channel = CHANNELS[sender.channel]
    identity = identity_of(sender) if channel.vouched else None
    return handle_at(channel, sender.endpoint, identity) if identity else None


def sender_behind(key: str) -> Owner | None:
    """The sender with this key of `readers.person_of`; None if it was too long to be kept whole."""
    parts = [unquote(part) for part in key.split("/")]
    return Owner(*parts) if len(parts) == 3 and "=" not in key else None


def identity_of(sender: Owner) -> str | None:
    """The identity in the handle of a sender, on one of our channels: of mail the address, however it is written.

    None: nothing can show that it is this sender, as in the sessions of a program, which names whom it likes.
    """
    if sender.endpoint.startswith(EMBEDDED):
        return None
    channel = CHANNELS[sender.channel]
    if channel.identity != "address":
        return sender.identity
    return channel.implied({"sender": sender.identity}).get(ADDRESS)


def sender_of(envelope: Envelope) -> Owner:
    """The sender as the envelope names them, at this endpoint: what options and the keys of stored rows are made of."""
    return Owner(envelope.source.channel, envelope.source.endpoint_identity, envelope.sender.identity)
