"""Who wrote a message, by which ids, and whether these have changed. Pure; called by `events.py`.

People are known by an id that is theirs for one business, or for its parent; it changes with their phone number, which
may be hidden. Only a message from before there were such ids names the phone alone.
"""

from __future__ import annotations

from msgspec import Struct

from switchboard.core.channels.whatsapp import author_of, phone_of
from switchboard.domain.json_values import JsonObject
from switchboard.ports.raw import Raw, child, first_word, word


class WhatsAppSender(Struct, frozen=True):
    """Somebody who writes. `identity`: by which the conversation is known; `user_id`: to write to without a phone."""

    identity: str
    user_id: str | None = None
    phone: str | None = None
    name: str | None = None

    def address(self, wamid: str, sent_s: int) -> JsonObject:
        """Where to answer. `at`: since when, in seconds since 1970, a day passes until that is too late."""
        known = {"to": self.phone, "recipient": self.user_id, "message": wamid, "at": sent_s}
        return {name: value for name, value in known.items() if value is not None}


def sender_of(value: Raw) -> WhatsAppSender | None:
    """Who has written the message; None: it names nobody."""
    identity = author_of(value)
    if identity is None:
        return None
    message, contact = child(value, "messages", 0), child(value, "contacts", 0)
    profile = child(contact, "profile")
    user_id = word(contact.get("user_id")) or word(message.get("from_user_id"))
    name = first_word(profile, ("name",), ("username",))
    return WhatsAppSender(identity, user_id or (identity if not identity.isdecimal() else None), phone_of(value), name)


def earlier_identity(sender: WhatsAppSender) -> str | None:
    """By which other id the sender may have been known: a business has got a parent. A phone may be somebody else's."""
    user_id = sender.user_id
    return user_id if user_id is not None and user_id != sender.identity else None


class ChangedIdentity(Struct, frozen=True):
    """The ids of a person before and after a change of the phone number; `old`: None if it is not told.

    `names`: by which the person was reached before.
    """

    old: str | None
    new: WhatsAppSender
    names: tuple[str, ...] = ()


def changed_identity(value: Raw) -> ChangedIdentity | None:
    """What a system message says of a change; None: it says something else."""
    message = child(value, "messages", 0)
    system = child(message, "system")
    user_id, phone = word(system.get("user_id")), word(system.get("wa_id")) or word(system.get("new_wa_id"))
    new = word(system.get("parent_user_id")) or user_id or phone
    if new is None:
        return None
    has_parent = system.get("parent_user_id") is not None
    old_id, old_phone = word(system.get("previous_user_id")), word(message.get("from"))
    old = word(system.get("previous_parent_user_id")) if has_parent else old_id
    names = tuple(one for one in (old_id, old_phone) if one is not None)
    return ChangedIdentity(old, WhatsAppSender(new, user_id, phone), names)
