"""A part of a reply as a call of the Web API. Pure; called by `channel.py`."""

from __future__ import annotations

from typing import Final

from switchboard.connectors.slack.presses import button_blocks
from switchboard.connectors.slack.texts import escape_text
from switchboard.domain.json_values import JsonObject
from switchboard.ports.connector import Part
from switchboard.ports.raw import Raw, at, word

KEY_TYPE: Final = "switchboard_part"
"""The type of the metadata that says which part a message is."""
_QUIET: Final[JsonObject] = {"unfurl_links": False, "unfurl_media": False}
"""A preview fetches the link, whose address may contain data that a butler was tricked into revealing."""


def message_of_part(part: Part, key: str, *, in_thread: bool = True) -> JsonObject:
    """The arguments of chat.postMessage."""
    marked = (part.rendered or {}).get("markdown")
    words: JsonObject = {"markdown_text": marked} if marked else {"text": escape_text(part.text), "mrkdwn": False}
    if part.choices:
        shown = {"type": "markdown", "text": marked or part.text}
        words = {"text": escape_text(part.text), "blocks": [shown, *button_blocks(part.choices)]}
    metadata = {"event_type": KEY_TYPE, "event_payload": {"key": key}}
    return words | _QUIET | {"metadata": metadata, "channel": part.address["channel"]} | thread_of_part(part, in_thread)


def thread_of_part(part: Part, in_thread: bool) -> JsonObject:
    """The thread that it is sent to, if there is one."""
    thread = word(part.address.get("thread")) if in_thread else None
    return {"thread_ts": thread} if thread else {}


def has_key(message: Raw, key: str, bot: str) -> bool:
    """Whether a message of ours is the part with this key."""
    ours = message.get("bot_id") == bot and at(message, "metadata", "event_type") == KEY_TYPE
    return ours and at(message, "metadata", "event_payload", "key") == key
