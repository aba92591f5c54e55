"""Matrix. `payload.raw` is an event of a room."""

from __future__ import annotations

import re
from typing import Final

from switchboard.domain.envelope import Envelope
from switchboard.ports.channel import Channel, Found
from switchboard.ports.raw import at, first_word, matching, raw_of

_EVENT = re.compile(r"\$[!-~]{1,255}")


def _event_id(envelope: Envelope) -> str | None:
    return matching(_EVENT, raw_of(envelope).get("event_id"))


def _room(envelope: Envelope) -> str | None:
    return first_word(envelope.payload.raw, ("room_id",))


def _replied_to(envelope: Envelope) -> str | None:
    return matching(_EVENT, at(envelope.payload.raw, "content", "m.relates_to", "m.in_reply_to", "event_id"))


def _facts(envelope: Envelope) -> Found:
    raw, thread = envelope.payload.raw, envelope.event.external_thread_id or ""
    return {
        "matrix_room_id": _room(envelope) or (thread if thread.startswith("!") else None),
        "matrix_user_id": first_word(raw, ("sender",)) or envelope.sender.identity,
    }


CHANNELS: Final = (
    Channel(
        name="matrix",
        providers=frozenset({"matrix"}),
        event_id=_event_id,
        chat=_room,
        replied_to=_replied_to,
        facts=_facts,
        keys=dict.fromkeys(("matrix_room_id", "matrix_user_id"), "text"),
        history="realtime",
    ),
)
