"""SMS. The sender is a telephone number."""

from __future__ import annotations

from typing import Final

from switchboard.domain.envelope import Envelope
from switchboard.ports.channel import Channel, Found


def _facts(envelope: Envelope) -> Found:
    return {"sms_number": envelope.sender.identity}


CHANNELS: Final = (
    Channel(
        name="sms",
        providers=frozenset({"sms"}),
        facts=_facts,
        keys={"sms_number": "text"},
        history="realtime",
    ),
)
