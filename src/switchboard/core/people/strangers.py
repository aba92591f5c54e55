"""Who wrote a message to an endpoint that does not accept everybody, and what a pairing code looks like. Pure.

Called by `journey/strangers.py` for endpoints with a policy. In: an envelope and its channel; out: a `Contact`.
"""

from __future__ import annotations

from typing import Final, Literal

from msgspec import Struct

from switchboard.core.people.handle import ADDRESS, handle_of
from switchboard.core.routing.facts import facts
from switchboard.domain.envelope import Envelope
from switchboard.domain.errors import InvalidInput
from switchboard.ports.channel import GROUPS, Channel, Form

Policy = Literal["pair", "listed", "open"]
"""Who may write: approved senders (others are told so, or told nothing), or everyone."""
Scope = Literal["person", "group", "unverified", "late"]

CODE_ALPHABET: Final = "23456789ABCDEFGHJKMNPQRSTUVWXYZ"
CODE_LENGTH: Final = 10
_START: Final = "/start "


class EndpointSettings(Struct, frozen=True):
    """`[endpoints."CHANNEL/ENDPOINT"]` of the settings: who may write to it."""

    strangers: Policy = "open"


class Contact(Struct, frozen=True):
    """Who needs approval: a person or a whole group; `unverified`: the sender named in a message may be forged.

    `late`: not a person, but a conversation with messages that came too late to be answered; `identity` is its name.

    `private`: a chat with nobody else, in which a notice disturbs only its sender.
    """

    channel: str
    endpoint: str
    scope: Scope
    identity: str
    private: bool = False


def require_possible(contact: Contact, channel: Channel) -> None:
    """Check that a person with this identity can exist; otherwise the contact is useless. Raises InvalidInput."""
    form = channel.keys.get(ADDRESS)
    if contact.scope == "person" and isinstance(form, Form) and (why := form.mismatch(contact.identity)):
        raise InvalidInput(f"nobody has the identity {contact.identity!r}: {why}", field="identity")


def owner_by_code_mistake(channel: Channel) -> str | None:
    """Why no code can make an owner on this channel, and what does; None if one can.

    A code counts in a private chat only, which no mail is.
    """
    if ADDRESS not in channel.keys:
        return None
    return (
        f"on the channel {channel.name!r} a code makes nobody an owner: name the person in the option `owners` of the "
        f'butler in its team file, such as "owners": ["{channel.name}:you@example.org"]'
    )


def contact_of(envelope: Envelope, channel: Channel) -> Contact:
    """The group if it was written in one: approving a person admits no group, and approving a group no person."""
    known = facts(envelope, channel)
    account, kind = (envelope.source.channel, envelope.source.endpoint_identity), known.get("chat_type")
    if kind in GROUPS:
        return Contact(*account, "group", channel.group_of(envelope))
    person = handle_of(envelope, channel, known).identity
    if not channel.authentic(known):
        return Contact(*account, "unverified", person)
    return Contact(*account, "person", person, kind == "private")


def code_in(text: str) -> str | None:
    """A possible code, in its one permitted form: all of a `command_text`, or everything after `/start`."""
    if len(text) > 40:
        return None
    word = text.strip()
    bare = word[len(_START) :] if word.lower().startswith(_START) else word
    code = bare.replace("-", "").strip().upper()
    return code if len(code) == CODE_LENGTH and set(code) <= set(CODE_ALPHABET) else None
