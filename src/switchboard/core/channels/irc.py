"""IRC. The sender is a nick, or `nick!user@host`."""

from __future__ import annotations

import re
from typing import Final

from switchboard.domain.envelope import Envelope
from switchboard.ports.channel import Channel, Form, Found
from switchboard.ports.chat import KEYS, chat_facts, is_called, is_own, is_private, words_of_sender
from switchboard.ports.raw import first_word

_MAX_NICK: Final = 64
_NAME: Final = Form(
    re.compile(r"[#&][^A-Z\s,]+"), "the name of a channel with its #, in lower case", lambda value: f"#{value.lower()}"
)


def _channel(envelope: Envelope) -> str | None:
    """The channel that was written to; None if it was a nick."""
    target = first_word(envelope.payload.raw, ("target",)) or envelope.event.external_thread_id or ""
    return _NAME.fitting(target.lower())


def _facts(envelope: Envelope) -> Found:
    channel = _channel(envelope)
    return {
        "irc_channel": channel,
        "irc_nick": envelope.sender.identity.partition("!")[0].lower() or None,
        **chat_facts(envelope, direct=is_private(envelope) or channel is None, named=_is_addressed_to_us(envelope)),
    }


def _is_addressed_to_us(envelope: Envelope) -> bool:
    """Whether we are addressed as in `house: hello`, which is usual on IRC."""
    first = words_of_sender(envelope)[:_MAX_NICK].partition(" ")[0]
    return is_own(envelope, first.rstrip(":,")) or is_called(envelope)


CHANNELS: Final = (
    Channel(
        name="irc",
        providers=frozenset({"irc"}),
        chat=_channel,
        facts=_facts,
        keys={"irc_channel": _NAME, "irc_nick": "lower", **KEYS},
        history="realtime",
    ),
)
