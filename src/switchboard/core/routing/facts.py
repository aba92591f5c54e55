"""What rules match on: a flat `dict[str, str]` derived from an envelope, by one pure function per channel.

Called by `journey/decide.py` at acceptance and by `app/explain.py` afterwards; `with_derived` for facts that somebody
made up. An envelope enters, facts leave; what is not known is absent, never an empty string or the word "None". Next:
`core/routing/decide.py`.

`payload.raw` is read only where it is the platform's own object, and it is not to be trusted: whatever stands there,
`facts` neither raises nor walks deeper than the few paths named below. What the envelope itself says wins wherever a
stranger could have written the raw object (mail headers); the platform's object wins where only the platform can (ids).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final, get_args

from switchboard.core.channels import CHANNELS
from switchboard.core.routing.mailauth import MailAuth, mail_auth
from switchboard.domain.envelope import ChatType, Envelope

CHAT_TYPES: Final = frozenset(get_args(ChatType))
MAX_VALUE: Final = 512
"""Longest value in characters that is taken from a raw object; no identity in an envelope is longer either."""

_COMMON: Final = frozenset({"channel", "endpoint", "sender", "thread", "chat_type"})
INTEGER: Final = re.compile(r"-?[0-9]{1,20}")
_QUOTED = re.compile(r'"[^"]*"')
_ANGLED = re.compile(r"<([^<>]*)>")
_BETWEEN = re.compile(r"[\s,;]+")

_TELEGRAM_MESSAGES = (
    "message",
    "edited_message",
    "channel_post",
    "edited_channel_post",
    "business_message",
    "edited_business_message",
    "my_chat_member",
    "chat_member",
    "chat_join_request",
    "message_reaction",
)

Found = dict[str, str | None]
"""What one channel's function found; None where it is not known."""


def facts(envelope: Envelope) -> dict[str, str]:
    """The match keys of a message: `channel`, `endpoint`, `sender`, `thread`, `chat_type` and those of its channel.

    Pure and total: never raises, never puts in a key without a value. `KEYS` says which keys a channel may have.
    """
    found: Found = {
        "channel": envelope.source.channel,
        "endpoint": envelope.source.endpoint_identity,
        "sender": envelope.sender.identity,
        "thread": envelope.event.external_thread_id,
        "chat_type": envelope.sender.chat_type,
    }
    own = _OWN.get(envelope.source.channel)
    if own is not None:
        found.update(own[0](envelope))
    return {key: value for key, value in found.items() if value is not None}


def with_derived(given: Mapping[str, str]) -> dict[str, str]:
    """Facts that somebody made up, and those that follow from them as in every message; what was given stays.

    A mail has the address and the domain of its sender, a Telegram message the type of its chat.
    """
    found: Found = {"chat_type": given.get("telegram_chat_type")}
    if given.get("channel") == "email":
        sender = given.get("email_sender") or address(given.get("sender", ""))
        found |= {"email_sender": sender, "email_domain": _domain(sender or "")}
    return {key: value for key, value in found.items() if value is not None} | dict(given)


def _domain(sender: str) -> str | None:
    return sender.rpartition("@")[2] if "@" in sender else None


def _at(raw: object, *path: str | int) -> object:
    """The value at a path of keys and positions; None where the path ends early."""
    for step in path:
        if isinstance(raw, Mapping) and isinstance(step, str):
            raw = raw.get(step)
        elif isinstance(raw, list) and isinstance(step, int) and step < len(raw):
            raw = raw[step]
        else:
            return None
    return raw


def _word(value: object) -> str | None:
    """An id or a name as a string. Integers may be negative (Telegram groups); anything unprintable is not a name."""
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() < 64:
        return str(value)
    if not isinstance(value, str) or len(value) > MAX_VALUE:
        return None
    text = value.strip()
    return text if text and text.isprintable() else None


def _first(raw: object, *paths: tuple[str | int, ...]) -> str | None:
    """The first of several places that holds a word."""
    return next((word for path in paths if (word := _word(_at(raw, *path))) is not None), None)


def _integer(value: object) -> str | None:
    word = _word(value)
    return word if word is not None and INTEGER.fullmatch(word) else None


def _telegram(envelope: Envelope) -> Found:
    message = _telegram_message(envelope.payload.raw)
    chat_type = _word(_at(message, "chat", "type")) or envelope.sender.chat_type
    user = _integer(_at(message, "from", "id")) or _integer(_at(message, "user", "id"))
    user = user or (_integer(envelope.sender.identity) if message is None else None)
    chat = _integer(_at(message, "chat", "id")) or _integer(envelope.event.external_thread_id)
    known = chat_type if chat_type in CHAT_TYPES else None
    return {
        "chat_type": envelope.sender.chat_type or known,
        "telegram_chat_id": chat or (user if known == "private" else None),
        "telegram_user_id": user,
        "telegram_chat_type": known,
    }


def _telegram_message(raw: object) -> object:
    """The part of an update that has `chat` and `from`; a bare message is taken as it is."""
    query = _at(raw, "callback_query")
    if isinstance(query, Mapping):
        # Whoever pressed the button is the sender; the message under the button is the bot's own.
        return {"chat": _at(query, "message", "chat"), "from": query.get("from")}
    part = next((part for name in _TELEGRAM_MESSAGES if isinstance(part := _at(raw, name), Mapping)), None)
    return part or (raw if isinstance(_at(raw, "chat"), Mapping) else None)


def address(value: str) -> str | None:
    """The bare, lower-cased address in `Ann <ann@example.com>`; what stands in quotes is a name, not an address."""
    bare = _QUOTED.sub(" ", value)
    angled = _ANGLED.findall(bare)
    words = _BETWEEN.split(angled[-1] if angled else bare)
    return next((word.lower().rstrip(".") for word in words if "@" in word.strip("@.")), None)


def _email(envelope: Envelope) -> Found:
    raw, identity = envelope.payload.raw, envelope.sender.identity
    # The sender is what the connector says, never a header of the raw mail: a stranger wrote those.
    sender = address(identity) or identity.lower()
    domain = _domain(sender)
    return {
        "email_sender": sender,
        "email_domain": domain,
        "email_to": _recipient(mail_header(raw, "to"), envelope.source.endpoint_identity),
        "email_list_id": _list_id(mail_header(raw, "list-id")),
        "email_auth": mail_auth(_topmost(mail_header(raw, "authentication-results")), domain or ""),
    }


def mail_header(raw: object, name: str) -> object:
    """A mail header by name in any case: `headers` is an object, or the Gmail API's list of names and values."""
    headers = _at(raw, "headers") or _at(raw, "payload", "headers")
    if isinstance(headers, Mapping):
        return next((value for key, value in headers.items() if isinstance(key, str) and key.lower() == name), None)
    if isinstance(headers, list):
        return [_at(one, "value") for one in headers if _lower(_at(one, "name")) == name]
    return None


def _lower(value: object) -> str | None:
    return value.lower() if isinstance(value, str) else None


def _topmost(value: object) -> str:
    """A header that may occur several times: our own server wrote the topmost, strangers those below."""
    top = _at(value, 0) if isinstance(value, list) else value
    return top if isinstance(top, str) else ""


def _recipient(value: object, endpoint: str) -> str | None:
    """The recipient that is this mailbox (`me+shop@…` too), else the first one; lower-cased."""
    lines = value if isinstance(value, list) else [value]
    parts = [part for line in lines[:100] if isinstance(line, str) for part in _split_addresses(line[:10_000])]
    found = [one for part in parts if (one := address(part)) is not None and _word(one) is not None]
    mailbox = address(endpoint.rpartition(":")[2])
    return next((one for one in found if _without_tag(one) == mailbox), found[0] if found else None)


def _split_addresses(line: str) -> list[str]:
    return _QUOTED.sub(" ", line).split(",")


def _without_tag(mail_address: str) -> str:
    """`me@example.com` for `me+shop@example.com`."""
    local, _, domain = mail_address.rpartition("@")
    return f"{local.partition('+')[0]}@{domain}"


def _list_id(value: object) -> str | None:
    line = _topmost(value)
    angled = _ANGLED.findall(_QUOTED.sub(" ", line[:10_000]))
    return _lower(_word(angled[-1] if angled else line))


def _session(envelope: Envelope) -> Found:
    return {"session_id": envelope.event.external_thread_id or envelope.sender.identity}


def _slack(envelope: Envelope) -> Found:
    raw, sender = envelope.payload.raw, envelope.sender.identity
    channel = _first(raw, ("event", "channel"), ("event", "item", "channel"), ("channel", "id"), ("channel_id",))
    user = _first(raw, ("event", "user"), ("event", "message", "user"), ("user", "id"), ("user_id",))
    return {
        "slack_team_id": _first(raw, ("team_id",), ("team", "id"), ("event", "team")),
        "slack_channel_id": channel,
        "slack_user_id": user or sender,
    }


def _discord(envelope: Envelope) -> Found:
    raw = envelope.payload.raw
    event = inner if isinstance(inner := _at(raw, "d"), Mapping) else raw
    user = _first(event, ("author", "id"), ("member", "user", "id"), ("user", "id"), ("user_id",))
    return {
        "discord_guild_id": _first(event, ("guild_id",)),
        "discord_channel_id": _first(event, ("channel_id",)) or envelope.event.external_thread_id,
        "discord_user_id": user or envelope.sender.identity,
    }


def _matrix(envelope: Envelope) -> Found:
    thread = envelope.event.external_thread_id or ""
    return {
        "matrix_room_id": _first(envelope.payload.raw, ("room_id",)) or (thread if thread.startswith("!") else None),
        "matrix_user_id": _first(envelope.payload.raw, ("sender",)) or envelope.sender.identity,
    }


def _whatsapp(envelope: Envelope) -> Found:
    change = _at(envelope.payload.raw, "entry", 0, "changes", 0, "value")
    chat = _first(envelope.payload.raw, ("key", "remoteJid"), ("chat_id",))
    return {
        "whatsapp_chat_id": chat or envelope.event.external_thread_id,
        "whatsapp_user_id": _first(change, ("messages", 0, "from")) or envelope.sender.identity,
        "whatsapp_phone_number_id": _first(change, ("metadata", "phone_number_id")),
    }


def _irc(envelope: Envelope) -> Found:
    target = _first(envelope.payload.raw, ("target",)) or envelope.event.external_thread_id or ""
    return {
        "irc_channel": target.lower() if target.startswith(("#", "&")) else None,
        "irc_nick": envelope.sender.identity.partition("!")[0].lower() or None,
    }


def _xmpp(envelope: Envelope) -> Found:
    thread = envelope.event.external_thread_id or ""
    group = envelope.sender.chat_type in {"group", "supergroup"}
    return {
        "xmpp_jid": envelope.sender.identity.partition("/")[0].lower() or None,
        "xmpp_room": (thread.partition("/")[0].lower() or None) if group else None,
    }


def _signal(envelope: Envelope) -> Found:
    sent = ("envelope", "dataMessage", "groupInfo", "groupId")
    return {"signal_user_id": envelope.sender.identity, "signal_group_id": _first(envelope.payload.raw, sent)}


def _sms(envelope: Envelope) -> Found:
    return {"sms_number": envelope.sender.identity}


_OWN: Final[Mapping[str, tuple[Callable[[Envelope], Found], frozenset[str]]]] = {
    **dict.fromkeys(
        ("telegram", "telegram_bot", "telegram_user_client"),
        (_telegram, frozenset({"telegram_chat_id", "telegram_user_id", "telegram_chat_type"})),
    ),
    "email": (_email, frozenset({"email_sender", "email_domain", "email_to", "email_list_id", "email_auth"})),
    **dict.fromkeys(("cli", "api"), (_session, frozenset({"session_id"}))),
    "slack": (_slack, frozenset({"slack_team_id", "slack_channel_id", "slack_user_id"})),
    "discord": (_discord, frozenset({"discord_guild_id", "discord_channel_id", "discord_user_id"})),
    "matrix": (_matrix, frozenset({"matrix_room_id", "matrix_user_id"})),
    **dict.fromkeys(
        ("whatsapp", "whatsapp_user_client"),
        (_whatsapp, frozenset({"whatsapp_chat_id", "whatsapp_user_id", "whatsapp_phone_number_id"})),
    ),
    "irc": (_irc, frozenset({"irc_channel", "irc_nick"})),
    "xmpp": (_xmpp, frozenset({"xmpp_jid", "xmpp_room"})),
    "signal": (_signal, frozenset({"signal_user_id", "signal_group_id"})),
    "sms": (_sms, frozenset({"sms_number"})),
}


KEYS: Final[Mapping[str, frozenset[str]]] = {
    **{channel: _COMMON | (_OWN[channel][1] if channel in _OWN else frozenset()) for channel in CHANNELS},
    "*": _COMMON.union(*(own for _, own in _OWN.values())),
}
"""Channel -> the keys a filter may name. For `*` every key: one that a message lacks never equals a filter."""

ONE_OF: Final[Mapping[str, frozenset[str]]] = {
    "chat_type": CHAT_TYPES,
    "telegram_chat_type": CHAT_TYPES,
    "email_auth": frozenset(get_args(MailAuth)),
}
"""Keys whose fact is one of a few words."""
LOWER_CASE: Final = frozenset(
    {"email_sender", "email_domain", "email_to", "email_list_id", "irc_channel", "irc_nick", "xmpp_jid", "xmpp_room"}
)
"""Keys whose fact is always lower-cased."""
INTEGERS: Final = frozenset({"telegram_chat_id", "telegram_user_id"})
"""Keys whose fact is always an integer in digits; that of a Telegram group is negative."""
