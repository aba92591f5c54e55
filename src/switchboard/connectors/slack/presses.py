"""Buttons: those of a part, what a press of one becomes, and how it is answered. Pure; called by `channel.py`.

Whoever pressed is shown a text that nobody else sees, and the message gets other buttons. Both can be done again.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from switchboard.connectors.slack.texts import escape_text
from switchboard.core.channels.slack import conversation_of
from switchboard.domain.envelope import ChatType, Control, Envelope, Event, Payload, Sender, Source
from switchboard.domain.json_values import JsonObject
from switchboard.domain.ledger import ReplyChoice
from switchboard.ports.connector import PRESS, Inbound, Part
from switchboard.ports.raw import Raw, at, child, first_word, word

PRESSED: Final = "block_actions"
_ACTIONS: Final = "actions"
USER: Final = "user"
"""The field of an address with whoever pressed."""


def button_blocks(choices: Sequence[ReplyChoice]) -> list[JsonObject]:
    """The choices as one block of buttons; none without choices."""
    elements = [
        {
            "type": "button",
            "action_id": f"choice-{number}",
            "text": {"type": "plain_text", "text": one.label},
            "value": one.value,
        }
        for number, one in enumerate(choices)
    ]
    return [{"type": _ACTIONS, "elements": elements}] if elements else []


def read_press(payload: JsonObject, endpoint: str, now: datetime, *, threads: bool) -> Inbound | str:
    """The event of a press that arrived at `now`; a text if something is missing."""
    event = _event_around(payload)
    user, value = word(at(payload, "user", "id")), word(at(payload, "actions", 0, "value"))
    at_, ts, place = word(at(payload, "actions", 0, "action_ts")), word(event.get("ts")), word(event.get("channel"))
    if user is None or value is None or at_ is None or ts is None or place is None:
        return "a press of nothing that is known"
    direct = event["channel_type"] == "im"
    chat_type: ChatType = "private" if direct else "group"
    thread = word(event.get("thread_ts")) or (ts if direct and threads else None)
    address: JsonObject = {"channel": place, "message": ts, PRESS: at_, USER: user}
    address |= ({"thread": thread} if thread else {}) | ({} if direct else {"group": True})
    key = f"press:{place}:{ts}:{at_}"
    envelope = Envelope(
        schema_version="ingest.v1",
        source=Source(channel="slack", provider="slack", endpoint_identity=endpoint),
        event=Event(
            external_event_id=key,
            external_thread_id=conversation_of(event, addressed=False, threads=threads),
            observed_at=now,
            kind="button",
            refers_to=ts,
            reply_address=address,
        ),
        sender=Sender(identity=user, display_name=word(at(payload, "user", "name")), chat_type=chat_type),
        payload=Payload(raw=payload, normalized_text=value),
        control=Control(addressed=True, idempotency_key=key),
    )
    return Inbound(envelope=envelope, raw=b"", direct=direct)


def _event_around(payload: Raw) -> Raw:
    """The message with the button, in the form of an event."""
    place = first_word(payload, ("channel", "id"), ("container", "channel_id")) or ""
    ts = first_word(payload, ("message", "ts"), ("container", "message_ts"))
    thread = first_word(payload, ("message", "thread_ts"), ("container", "thread_ts"))
    kind = "im" if place[:1] == "D" else "channel"
    return {"type": "message", "channel": place or None, "channel_type": kind, "ts": ts, "thread_ts": thread}


def whisper_of(part: Part) -> JsonObject:
    """What whoever pressed is told: the arguments of chat.postEphemeral."""
    address = part.address
    thread = {"thread_ts": address["thread"]} if "thread" in address else {}
    return {"channel": address["channel"], "user": address.get(USER), "text": escape_text(part.text), **thread}


def updated_message(message: Raw, part: Part) -> JsonObject:
    """A message with the new buttons of a part: the arguments of chat.update."""
    blocks = message.get("blocks")
    kept = [one for one in blocks if child(one).get("type") != _ACTIONS] if isinstance(blocks, list) else []
    about = {"channel": part.address["channel"], "ts": part.address.get("message"), "text": message.get("text") or ""}
    return {**about, "blocks": [*kept, *button_blocks(part.choices or ())]}
