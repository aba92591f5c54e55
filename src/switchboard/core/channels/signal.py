"""Signal. `payload.raw` is the output of signal-cli."""

from __future__ import annotations

from typing import Final

from switchboard.domain.envelope import Envelope
from switchboard.ports.channel import Channel, Found
from switchboard.ports.raw import first_word


def _group(envelope: Envelope) -> str | None:
    return first_word(envelope.payload.raw, ("envelope", "dataMessage", "groupInfo", "groupId"))


def _facts(envelope: Envelope) -> Found:
    return {"signal_user_id": envelope.sender.identity, "signal_group_id": _group(envelope)}


CHANNELS: Final = (
    Channel(
        name="signal",
        providers=frozenset({"signal"}),
        chat=_group,
        facts=_facts,
        keys=dict.fromkeys(("signal_user_id", "signal_group_id"), "text"),
        history="realtime",
    ),
)
