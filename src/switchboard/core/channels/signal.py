"""Signal. `payload.raw` is the output of signal-cli."""

from __future__ import annotations

from typing import Final

from switchboard.domain.envelope import Envelope
from switchboard.ports.channel import Channel, Found
from switchboard.ports.chat import KEYS, chat_facts, is_own, is_private, kind_of, media_of
from switchboard.ports.raw import Raw, at, child, first_word


def _group(envelope: Envelope) -> str | None:
    return first_word(envelope.payload.raw, ("envelope", "dataMessage", "groupInfo", "groupId"))


def _facts(envelope: Envelope) -> Found:
    group, message = _group(envelope), child(envelope.payload.raw, "envelope", "dataMessage")
    return {
        "signal_user_id": envelope.sender.identity,
        "signal_group_id": group,
        "media": _media(message),
        **chat_facts(envelope, direct=_direct(envelope, group), named=_is_addressed_to_us(envelope, message)),
    }


def _direct(envelope: Envelope, group: str | None) -> bool:
    return is_private(envelope) or (envelope.sender.chat_type is None and group is None)


def _is_addressed_to_us(envelope: Envelope, message: Raw) -> bool:
    named = message.get("mentions")
    those = named if isinstance(named, list) else ()
    return any(is_own(envelope, at(one, key)) for one in those for key in ("number", "uuid"))


def _media(message: Raw) -> str | None:
    attached = message.get("attachments")
    kinds = [
        "voice" if at(one, "voiceNote") else kind_of(at(one, "contentType")) or "document"
        for one in (attached if isinstance(attached, list) else ())
    ]
    return media_of((*kinds, "sticker" if message.get("sticker") else None))


CHANNELS: Final = (
    Channel(
        name="signal",
        providers=frozenset({"signal"}),
        chat=_group,
        facts=_facts,
        keys={**dict.fromkeys(("signal_user_id", "signal_group_id"), "text"), **KEYS},
        identity="platform",
        realm="channel",
        history="realtime",
    ),
)
