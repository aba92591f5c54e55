"""IRC. The sender is a nick, or `nick!user@host`."""

from __future__ import annotations

from typing import Final

from switchboard.domain.envelope import Envelope
from switchboard.ports.channel import Channel, Found
from switchboard.ports.raw import first_word


def _channel(envelope: Envelope) -> str | None:
    """The channel that was written to; None where a nick was."""
    target = first_word(envelope.payload.raw, ("target",)) or envelope.event.external_thread_id or ""
    return target.lower() if target.startswith(("#", "&")) else None


def _facts(envelope: Envelope) -> Found:
    return {
        "irc_channel": _channel(envelope),
        "irc_nick": envelope.sender.identity.partition("!")[0].lower() or None,
    }


CHANNELS: Final = (
    Channel(
        name="irc",
        providers=frozenset({"irc"}),
        chat=_channel,
        facts=_facts,
        keys=dict.fromkeys(("irc_channel", "irc_nick"), "lower"),
        history="realtime",
    ),
)
