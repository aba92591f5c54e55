"""IRC. The sender is a nick, or `nick!user@host`."""

from __future__ import annotations

import re
from typing import Final

from switchboard.domain.envelope import Envelope
from switchboard.ports.channel import Channel, Form, Found
from switchboard.ports.raw import first_word

_NAME: Final = Form(
    re.compile(r"[#&][^A-Z\s,]+"), "the name of a channel with its #, in lower case", lambda value: f"#{value.lower()}"
)


def _channel(envelope: Envelope) -> str | None:
    """The channel that was written to; None where a nick was."""
    target = first_word(envelope.payload.raw, ("target",)) or envelope.event.external_thread_id or ""
    return _NAME.fitting(target.lower())


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
        keys={"irc_channel": _NAME, "irc_nick": "lower"},
        history="realtime",
    ),
)
