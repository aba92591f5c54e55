"""XMPP. The sender is a JID, with or without its resource; the thread of a group is its room."""

from __future__ import annotations

from typing import Final

from switchboard.domain.envelope import Envelope
from switchboard.ports.channel import Channel, Found
from switchboard.ports.chat import KEYS, chat_facts, is_called


def _room(envelope: Envelope) -> str | None:
    """The room of a group, whose members are its resources; None for a chat of two, whatever devices they use."""
    group = envelope.sender.chat_type in {"group", "supergroup"}
    return _bare(envelope.event.external_thread_id or envelope.sender.identity) if group else None


def _chat(envelope: Envelope) -> str | None:
    return _bare(envelope.sender.identity)


def _facts(envelope: Envelope) -> Found:
    room = _room(envelope)
    said = chat_facts(envelope, direct=room is None, named=is_called(envelope))
    return {"xmpp_jid": _bare(envelope.sender.identity), "xmpp_room": room, **said}


def _bare(jid: str) -> str | None:
    return jid.partition("/")[0].lower() or None


CHANNELS: Final = (
    Channel(
        name="xmpp",
        providers=frozenset({"xmpp"}),
        chat=_chat,
        facts=_facts,
        keys={**dict.fromkeys(("xmpp_jid", "xmpp_room"), "lower"), **KEYS},
        history="realtime",
    ),
)
