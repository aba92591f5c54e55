"""Webhooks. Their text is often all of their JSON, in which some senders count how often they have tried."""

from __future__ import annotations

import re
from typing import Final

from msgspec.structs import replace

from switchboard.core.envelope.content import envelope_content
from switchboard.domain.envelope import Envelope
from switchboard.ports.channel import Channel

_OF_DELIVERY: Final = re.compile(
    r'"(?:pending_webhooks|delivery_attempts|delivered_at|attemptNumber|webhookTimestamp)":[0-9]+(?=[,}])'
)
"""Stripe, Intercom (two), HubSpot, Linear: what differs each time the same event is delivered."""


def _content(envelope: Envelope) -> str | None:
    """None: nothing of it belongs to the delivery."""
    text, found = _OF_DELIVERY.subn('"":0', envelope.payload.normalized_text)
    if not found:
        return None
    payload = replace(envelope.payload, normalized_text=text)
    return envelope_content(replace(envelope, payload=payload)).decode()


CHANNELS: Final = (
    Channel(name="webhook", providers=frozenset({"http", "github", "gitlab", "stripe"}), content=_content),
)
