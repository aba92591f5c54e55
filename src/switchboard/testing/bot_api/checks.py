"""Checks of what Telegram refuses: parameters, texts, entities. Pure; in: a client's input, out: values or ApiError."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import urlsplit

from msgspec import Struct

from switchboard.domain.json_values import JsonObject
from switchboard.testing.bot_api.faults import ApiError
from switchboard.testing.platform_server import Upload

MAX_TEXT: Final = 4096
MAX_CAPTION: Final = 1024
_ENTITIES: Final = frozenset(
    {"mention", "hashtag", "cashtag", "bot_command", "url", "email", "phone_number", "bold", "italic", "underline"}
    | {"strikethrough", "spoiler", "blockquote", "expandable_blockquote", "code", "pre", "text_link", "text_mention"}
    | {"custom_emoji"}
)
_MAX_ENTITIES: Final = 100
_MAX_BUTTONS, _MAX_ROW, _MAX_DATA = 100, 8, 64
_WEBHOOK_PORTS: Final = (80, 88, 443, 8443)
_SECRET: Final = re.compile(r"[A-Za-z0-9_-]{0,256}")


class Params(Struct, frozen=True):
    """The parameters of a call; in a form, all are text, with objects and lists as JSON."""

    given: Mapping[str, object]
    uploads: Mapping[str, Upload]

    def word(self, name: str) -> str | None:
        """A text; an empty one counts as absent."""
        value = self.given.get(name)
        return None if value is None or value == "" else str(value)

    def number(self, name: str, default: int = 0) -> int:
        """An integer. As with Telegram, anything else counts as absent."""
        try:
            return int(str(self.given[name]))
        except (KeyError, ValueError):
            return default

    def tree(self, name: str) -> object:
        """An object or a list."""
        value = self.given.get(name)
        if not isinstance(value, str):
            return value
        try:
            return json.loads(value) if value else None
        except ValueError as error:
            raise ApiError(400, f"Bad Request: can't parse {name}: {error}") from error


def utf16(text: str) -> int:
    """The length of a text as Telegram counts it: in UTF-16 units."""
    return len(text) + sum(char > "\uffff" for char in text)


def check_text(text: str | None) -> str:
    """The text of a message."""
    if text is None or not text.strip():
        raise ApiError(400, "Bad Request: message text is empty")
    if utf16(text) > MAX_TEXT:
        raise ApiError(400, "Bad Request: message is too long")
    return text


def check_caption(text: str | None) -> str:
    """The caption of a file."""
    if utf16(text or "") > MAX_CAPTION:
        raise ApiError(400, "Bad Request: message caption is too long")
    return text or ""


def check_entities(text: str, entities: object) -> list[JsonObject]:
    """The entities of a text: within it, not in the middle of a surrogate pair, of known types."""
    if entities is None:
        return []
    if not isinstance(entities, Sequence) or not all(isinstance(one, dict) for one in entities):
        raise ApiError(400, "Bad Request: can't parse entities: expected an array of MessageEntity")
    if len(entities) > _MAX_ENTITIES:
        raise ApiError(400, "Bad Request: can't parse entities: too many")
    inside = _inside_pairs(text)
    for one in entities:
        _check_entity(one, utf16(text), inside)
    return list(entities)


def check_keyboard(markup: object) -> JsonObject | None:
    """The buttons below a message: a text and 1 to 64 bytes of data each, at most 8 in a row, and 100 in all."""
    if markup is None:
        return None
    rows = markup.get("inline_keyboard") if isinstance(markup, dict) else None
    if not isinstance(rows, list) or not all(isinstance(row, list) for row in rows):
        raise ApiError(400, "Bad Request: can't parse reply keyboard markup JSON object")
    buttons = [one for row in rows for one in row]
    if len(buttons) > _MAX_BUTTONS or any(len(row) > _MAX_ROW for row in rows):
        raise ApiError(400, "Bad Request: reply markup is too long")
    for one in buttons:
        _check_button(one)
    return {"inline_keyboard": [list(row) for row in rows]} if buttons else None


def _check_button(button: object) -> None:
    if not isinstance(button, dict) or not isinstance(button.get("text"), str):
        raise ApiError(400, 'Bad Request: can\'t parse inline keyboard button: Field "text" must be of type String')
    if not button["text"].strip():
        raise ApiError(400, "Bad Request: can't parse inline keyboard button: text of the button must be non-empty")
    data = button.get("callback_data")
    if not isinstance(data, str) or not 1 <= len(data.encode()) <= _MAX_DATA:
        raise ApiError(400, "Bad Request: BUTTON_DATA_INVALID")


def check_webhook(url: str, secret: str) -> None:
    """The URL for updates. Plain HTTP is accepted only for this machine, which Telegram itself never accepts."""
    found = urlsplit(url)
    if found.scheme != "https" and found.hostname not in ("127.0.0.1", "localhost"):
        raise ApiError(400, "Bad Request: bad webhook: An HTTPS URL must be provided for webhook")
    if found.scheme == "https" and found.port not in (None, *_WEBHOOK_PORTS):
        raise ApiError(400, "Bad Request: bad webhook: Webhook can be set up only on ports 80, 88, 443 or 8443")
    if not _SECRET.fullmatch(secret):
        raise ApiError(400, "Bad Request: secret token contains unallowed characters")


def _check_entity(entity: JsonObject, length: int, inside: frozenset[int]) -> None:
    start, size, kind = entity.get("offset"), entity.get("length"), entity.get("type")
    if kind not in _ENTITIES:
        raise ApiError(400, "Bad Request: can't parse MessageEntity: unsupported type specified")
    if not isinstance(start, int) or not isinstance(size, int) or start < 0 or size <= 0:
        raise ApiError(400, "Bad Request: can't parse MessageEntity: offset and length are needed")
    if start + size > length:
        where = f"beginning at UTF-16 offset {start} ends after the end of the text at UTF-16 offset {length}"
        raise ApiError(400, f"Bad Request: entity {where}")
    if start in inside or start + size in inside:
        raise ApiError(400, f"Bad Request: entity begins or ends in a middle of a UTF-16 symbol at offset {start}")
    if kind == "text_link" and not isinstance(entity.get("url"), str):
        raise ApiError(400, "Bad Request: can't parse MessageEntity: url is needed")


def _inside_pairs(text: str) -> frozenset[int]:
    """The offsets between the two halves of a surrogate pair."""
    found, offset = set(), 0
    for char in text:
        if char > "\uffff":
            found.add(offset + 1)
            offset += 1
        offset += 1
    return frozenset(found)
