"""Checks of what Slack refuses: parameters, scopes, lengths. Pure; in: a client's input, out: values or SlackError."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from typing import Final

from msgspec import Struct

from switchboard.domain.json_values import JsonObject
from switchboard.testing.slack.errors import SlackError

MAX_TEXT: Final = 40_000
MAX_MARKDOWN: Final = 12_000
"""Of `markdown_text`, and of all blocks of Markdown together."""
MAX_EXPANDED: Final = 13_200
"""Of a message made of Markdown, with what Slack escapes. Not documented; measured by others at about this length."""
_MAX_METADATA: Final = 16_384
_MAX_BLOCKS: Final = 50
_MAX_ELEMENTS: Final = 25
_PING: Final = re.compile(r"<(@[UW][A-Z0-9]+|!(?:channel|here|everyone)|!subteam\^S[A-Z0-9]+)(?:\|[^>]*)?>")
_BARE_AMPERSAND: Final = re.compile(r"&(?!amp;|lt;|gt;)")


class Arguments(Struct, frozen=True):
    """The arguments of a call. In a form and a query all are text, with objects and lists as JSON."""

    given: Mapping[str, object]

    def word(self, name: str) -> str:
        """A text; empty if absent."""
        value = self.given.get(name)
        return "" if value is None else str(value)

    def number(self, name: str, default: int) -> int:
        """An integer. Raises SlackError if it is something else."""
        value = self.word(name)
        if not value:
            return default
        if not value.isdecimal():
            raise SlackError("invalid_arguments", response_metadata={"messages": [f"[ERROR] must be integer: {name}"]})
        return int(value)

    def flag(self, name: str) -> bool:
        """Whether it is true, in any of the forms of Slack."""
        return self.word(name).lower() in ("true", "1")

    def tree(self, name: str, error: str = "invalid_arguments") -> object:
        """An object or a list; None if absent. Raises SlackError with this code if it cannot be read."""
        value = self.given.get(name)
        if not isinstance(value, str):
            return value
        try:
            return json.loads(value) if value else None
        except ValueError:
            raise SlackError(error) from None


class Draft(Struct, frozen=True):
    """A message that may be posted: its text as it is stored, its blocks and metadata, and whom it pings."""

    text: str
    blocks: list[JsonObject]
    metadata: JsonObject | None
    pings: tuple[str, ...]


def check_draft(arguments: Arguments) -> Draft:
    """The message of chat.postMessage."""
    text, markdown = arguments.word("text"), arguments.word("markdown_text")
    blocks = _check_blocks(arguments.tree("blocks", "invalid_blocks"))
    if markdown and (text or blocks):
        raise SlackError("markdown_text_conflict")
    if not (text or markdown or blocks):
        raise SlackError("no_text")
    if len(text) > MAX_TEXT or len(markdown) > MAX_MARKDOWN:
        raise SlackError("msg_too_long")
    if markdown:
        blocks = [{"type": "markdown", "text": markdown}]
    texts = [str(one.get("text", "")) for one in blocks if one["type"] == "markdown"]
    if sum(map(_expanded_length, texts)) > MAX_EXPANDED:
        raise SlackError("msg_blocks_too_long")
    shown = text or "\n".join(texts)
    pings = tuple(dict.fromkeys(found for one in {text, *texts} for found in pings_in(one)))
    return Draft(shown, blocks, _check_metadata(arguments.tree("metadata", "invalid_metadata_format")), pings)


def pings_in(text: str) -> list[str]:
    """Who is notified by a text: users as `@U…`, and `!channel` and its like."""
    return _PING.findall(text)


def check_scope(needed: Collection[str], granted: Collection[str]) -> None:
    """Raises SlackError unless one of the needed scopes is granted; none may be needed."""
    if needed and not set(needed) & set(granted):
        raise SlackError("missing_scope", needed=",".join(needed), provided=",".join(sorted(granted)))


def _check_blocks(blocks: object) -> list[JsonObject]:
    if blocks is None:
        return []
    if not isinstance(blocks, list) or len(blocks) > _MAX_BLOCKS:
        raise SlackError("invalid_blocks")
    if any(not isinstance(one, dict) or not isinstance(one.get("type"), str) for one in blocks):
        raise SlackError("invalid_blocks")
    if sum(len(str(one.get("text", ""))) for one in blocks if one["type"] == "markdown") > MAX_MARKDOWN:
        raise SlackError("invalid_blocks")
    for one in blocks:
        if one["type"] == "actions":
            _check_actions(one.get("elements"))
    return blocks


def _check_actions(elements: object) -> None:
    """The buttons of a block; there is nothing else in such blocks here."""
    if not isinstance(elements, list) or not 1 <= len(elements) <= _MAX_ELEMENTS:
        raise SlackError("invalid_blocks")
    ids = [one.get("action_id") for one in elements if isinstance(one, dict)]
    if len(set(ids)) < len(elements) or not all(map(_is_button, elements)):
        raise SlackError("invalid_blocks")


def _is_button(element: JsonObject) -> bool:
    text = element.get("text")
    labelled = isinstance(text, dict) and text.get("type") == "plain_text" and 1 <= len(str(text.get("text"))) <= 75
    named = 1 <= len(str(element.get("action_id"))) <= 255
    return element.get("type") == "button" and labelled and named and len(str(element.get("value", ""))) <= 2000


def _check_metadata(metadata: object) -> JsonObject | None:
    if metadata is None:
        return None
    if not isinstance(metadata, dict) or not isinstance(metadata.get("event_type"), str):
        raise SlackError("invalid_metadata_format")
    if not isinstance(metadata.get("event_payload"), dict):
        raise SlackError("invalid_metadata_format")
    if len(json.dumps(metadata)) > _MAX_METADATA:
        raise SlackError("metadata_too_large")
    return metadata


def _expanded_length(text: str) -> int:
    """The length with `&`, `<` and `>` escaped; what is escaped already is not escaped again."""
    return len(_BARE_AMPERSAND.sub("&amp;", text).replace("<", "&lt;").replace(">", "&gt;"))
