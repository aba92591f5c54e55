"""Who wrote a message and who reads its answer, which alone decides what a butler may remember and reveal.

Called by `agents/memo.py`, and by the store for turns that read history and facts. In: the turn and the facts of its
message; out: a `Reader`. Next: `ports/facts.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Final
from urllib.parse import quote

from switchboard.core.channels.registry import CHANNELS
from switchboard.core.envelope.identity import own_conversation
from switchboard.core.people.handle import sender_of
from switchboard.domain.envelope import Envelope
from switchboard.domain.message import Conversation, RequestId
from switchboard.domain.routing import SystemId
from switchboard.ports.channel import Channel
from switchboard.ports.engine import Turn
from switchboard.ports.facts import Reader

_MAX_PERSON: Final = 400


def reader_of(turn: Turn, facts: Mapping[str, str], channel: Channel) -> Reader:
    """For whom a turn reads; `facts` are those that rules saw for its message. A notice is for nobody in particular."""
    if turn.dead_letter is not None:
        return Reader(turn.member.system_id, turn.conversation)
    return reader_among(turn.member.system_id, turn.conversation, turn.envelope, facts, channel)


def reader_among(
    system_id: SystemId, conversation: Conversation, envelope: Envelope, facts: Mapping[str, str], channel: Channel
) -> Reader:
    """The same for a message of a conversation, whether or not there is a turn."""
    private = is_private(envelope, conversation) and not channel.overheard(facts)
    return Reader(system_id, conversation, person_of(envelope), private, channel.authentic(facts))


def person_of(envelope: Envelope) -> str:
    """Channel, endpoint and sender as one key of at most 400 ASCII characters; distinct persons have distinct keys."""
    sender = sender_of(envelope)
    return person_named(sender.channel, sender.endpoint, sender.identity)


def person_named(channel: str, endpoint: str, sender: str) -> str:
    """The same for a sender of whom there is no message at hand."""
    key = "/".join(quote(part, safe="") for part in (channel, endpoint, sender))
    if len(key) <= _MAX_PERSON:
        return key
    # The key is indexed. Quoting never leaves a `=`, so a shortened key cannot equal another person's full one.
    mark = "=" + sha256(key.encode()).hexdigest()
    return key[: _MAX_PERSON - len(mark)] + mark


def directory_of(reader: Reader, request_id: RequestId) -> str:
    """The name of a directory for what the same readers may read again; for a message of uncertain sender, nobody."""
    return directory_among(reader) or _directory(f"request:{request_id}")


def directory_among(reader: Reader) -> str | None:
    """The same before there is a message; None if the sender is uncertain."""
    if not reader.authentic:
        return None
    return directory_of_person(reader.person) if reader.private else _directory(f"group:{reader.conversation}")


def directory_of_person(person: str) -> str:
    """The same for what only this person, who is certain, may read."""
    return _directory(f"private:{person}")


def _directory(readers: str) -> str:
    return sha256(readers.encode()).hexdigest()[:32]


def is_private(envelope: Envelope, conversation: str) -> bool:
    """Whether only this sender hears the answer; several writers of one message are a group, whatever it says.

    A chat of unknown kind counts as private only if nobody else can read it: the answer goes to the sender by mail or
    over the API, or the chat is the sender's own.
    """
    sender = envelope.sender
    if len(sender.participants or ()) > 1:
        return False
    if sender.chat_type is not None:
        return sender.chat_type == "private"
    return CHANNELS[envelope.source.channel].personal or conversation == own_conversation(envelope)
