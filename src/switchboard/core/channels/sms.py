"""SMS. The sender is a telephone number."""

from __future__ import annotations

from typing import Final

from switchboard.domain.envelope import Envelope
from switchboard.ports.channel import Channel, Found
from switchboard.ports.chat import KEYS, chat_facts


def _facts(envelope: Envelope) -> Found:
    return {"sms_number": envelope.sender.identity, **chat_facts(envelope, direct=True)}


CHANNELS: Final = (
    Channel(
        name="sms",
        providers=frozenset({"sms"}),
        facts=_facts,
        keys={"sms_number": "text", **KEYS},
        history="realtime",
    ),
)
