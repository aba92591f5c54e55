"""Maps a session of a program to a conversation of the installation. Pure.

Called by `agent.py` and `memory.py`. In: butler, channel and session key; out: envelopes, conversations and readers.
Each session is the private conversation of one person, whom the program vouches for, with one butler.
"""

from __future__ import annotations

import json
import re
from datetime import datetime
from hashlib import sha256
from typing import Final

from switchboard.core.channels.registry import CHANNELS
from switchboard.core.envelope.identity import EMBEDDED, conversation
from switchboard.core.people.readers import reader_among
from switchboard.domain.envelope import Control, Envelope, Event, Payload, Sender, Source
from switchboard.domain.errors import InvalidInput
from switchboard.domain.message import Conversation
from switchboard.domain.routing import SystemId
from switchboard.ports.facts import Reader

EARLIEST: Final = datetime.fromisoformat("1970-01-01T00:00:00Z")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def require_session_key(session_key: str) -> None:
    """Raises InvalidInput for an empty key, control characters, and surrounding blanks.

    Envelopes drop some of these, so two keys could become one session.
    """
    if not session_key or session_key != session_key.strip() or _CONTROL.search(session_key):
        problem = "a session key is not empty, and has neither control characters nor blanks around it"
        raise InvalidInput(problem, field="session_key")


def require_request_id(request_id: str) -> None:
    """Raises InvalidInput for control characters and surrounding blanks: two ids could become one request."""
    if request_id != request_id.strip() or _CONTROL.search(request_id):
        problem = "a request id has neither control characters nor blanks around it"
        raise InvalidInput(problem, field="request_id")


def envelope_of(
    butler: SystemId, channel_name: str, event: Event, payload: Payload, control: Control | None = None
) -> Envelope:
    """A message of the session that `event` names as its thread."""
    return Envelope(
        schema_version="ingest.v1",
        source=Source(
            channel=channel_name,
            provider=min(CHANNELS[channel_name].providers, default="internal"),
            endpoint_identity=f"{EMBEDDED}{butler}",
        ),
        event=event,
        sender=Sender(identity=event.external_thread_id or "", chat_type="private"),
        payload=payload,
        control=control or Control(),
    )


def key_of_request(session_key: str, request_id: str) -> str:
    """The idempotency key of a call. It includes the session, since callers may number the requests of each."""
    return sha256(json.dumps([session_key, request_id]).encode()).hexdigest()


def reader_of_session(butler: SystemId, channel_name: str, session_key: str) -> Reader:
    """The reader of a session's turns.

    Raises InvalidInput for a channel that does not exist, and as `require_session_key`.
    """
    require_session_key(session_key)
    channel = CHANNELS.known(channel_name, "channel_name")
    event = Event(external_event_id="-", external_thread_id=session_key, observed_at=EARLIEST)
    envelope = envelope_of(butler, channel_name, event, Payload(normalized_text=""))
    return reader_among(butler, conversation(envelope, channel), envelope, {}, channel)


def conversations_of(butler: SystemId, session_key: str) -> list[Conversation]:
    """The conversations of a session key, one for each channel."""
    return [reader_of_session(butler, name, session_key).conversation for name in CHANNELS]
