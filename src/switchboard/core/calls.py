"""Calls of tools outside turns, which are messages of the channel `call`. Pure.

Nobody can submit to the channel: `app/calls.py` makes its messages, for callers whose token says whom they act for. The
endpoint is the name of the token, the sender a person or nobody, and the text what is called. `journey/turn.py` has
such a message answered by the call itself instead of the butler's engine. Next: `agents/turns/call_engine.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final
from uuid import UUID

import msgspec
from msgspec import Struct

from switchboard.core.envelope.identity import dedupe_key, own_conversation
from switchboard.core.text.storable import storable_json, storable_text
from switchboard.domain.envelope import Control, Envelope, Event, Payload, Sender, Source
from switchboard.domain.json_values import JsonMapping
from switchboard.domain.message import Message, RequestId
from switchboard.domain.routing import SystemId
from switchboard.ports.channel import Channel

CALL: Final = "call"
"""The channel, and the engine that carries its messages out."""
NOBODY: Final = "-"
"""The sender of a call that is made for nobody in particular: no id of a person looks like this."""
OPERATOR: Final = "operator"
AGENT: Final = "agent"


def _is_somebody(facts: Mapping[str, str]) -> bool:
    return facts.get("sender", NOBODY) != NOBODY


CALL_CHANNEL: Final = Channel(
    name=CALL,
    providers=frozenset({OPERATOR, AGENT}),
    authentic=_is_somebody,
    identity="platform",
    realm="channel",
    replies="interface",
    personal=True,
)
"""What is known of the channel. It is not among those that messages can be submitted to."""


class WantedCall(Struct, frozen=True):
    """What is to be called, and for whom. `person`: an id, None for nobody; `caller`: the name of a token.

    `system_id`: the butler; while it is empty, the caller's. `key`: with the same one, the same call is made once.
    """

    tool: str
    arguments: JsonMapping
    system_id: SystemId = SystemId("")
    person: str | None = None
    key: str | None = None
    caller: str = ""
    by_operator: bool = False


def is_call(envelope: Envelope) -> bool:
    """Whether a message is a call of a tool; what a call has made due later is none."""
    return envelope.source.channel == CALL and envelope.control.cause == CALL


def is_by_operator(envelope: Envelope) -> bool:
    """Whether an operator makes this call."""
    return is_call(envelope) and envelope.source.provider == OPERATOR


def call_message(wanted: WantedCall, request_id: RequestId, at: datetime) -> Message:
    """The message of a call."""
    envelope = _envelope_of(wanted, request_id, at)
    return Message(
        request_id=request_id,
        conversation=own_conversation(envelope),
        dedupe_key=dedupe_key(envelope, CALL_CHANNEL),
        envelope=envelope,
        raw=msgspec.json.encode(envelope),
        media_type="application/json",
        received_at=at,
    )


def _envelope_of(wanted: WantedCall, request_id: UUID, at: datetime) -> Envelope:
    person = wanted.person or NOBODY
    # Another token of this name, for another person or butler, has keys of its own.
    key = None if wanted.key is None else f"{wanted.system_id} {person} {wanted.key}"
    return Envelope(
        schema_version="ingest.v1",
        source=Source(
            channel=CALL, provider=OPERATOR if wanted.by_operator else AGENT, endpoint_identity=wanted.caller
        ),
        event=Event(external_event_id=str(request_id), observed_at=at),
        sender=Sender(identity=person, chat_type="private"),
        payload=Payload(normalized_text=call_text(wanted.tool, wanted.arguments)),
        control=Control(idempotency_key=key, pinned_target=wanted.system_id, cause="call"),
    )


def call_text(tool: str, arguments: JsonMapping) -> str:
    """A call as the text of its message: `calendar_query {"day":"2026-03-01"}`. What nobody can store is left out."""
    return storable_text(f"{tool} {msgspec.json.encode(storable_json(arguments), order='sorted').decode()}")


def called_in(text: str) -> tuple[str, JsonMapping]:
    """The tool and the arguments in the text of a call. Raises `msgspec.DecodeError` for any other text."""
    tool, _, arguments = text.partition(" ")
    return tool, msgspec.json.decode(arguments, type=dict[str, object])
