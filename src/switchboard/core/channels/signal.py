"""Signal. `payload.raw` is the output of signal-cli."""

from __future__ import annotations

from typing import Final

from switchboard.domain.envelope import Envelope
from switchboard.ports.channel import Channel, Found
from switchboard.ports.raw import first_word


def _facts(envelope: Envelope) -> Found:
    group = ("envelope", "dataMessage", "groupInfo", "groupId")
    return {"signal_user_id": envelope.sender.identity, "signal_group_id": first_word(envelope.payload.raw, group)}


CHANNELS: Final = (
    Channel(
        name="signal",
        providers=frozenset({"signal"}),
        facts=_facts,
        keys=dict.fromkeys(("signal_user_id", "signal_group_id"), "text"),
        history="realtime",
    ),
)
