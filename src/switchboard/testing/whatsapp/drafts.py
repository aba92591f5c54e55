"""Checks of messages before they are sent. Pure; in: the body of a request, out: nothing, or GraphError.

Called by `graph.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from switchboard.domain.json_values import JsonObject
from switchboard.ports.raw import child
from switchboard.testing.whatsapp.business import StoredMedia
from switchboard.testing.whatsapp.errors import GraphError

MAX_TEXT: Final = 4096
MAX_BODY: Final = 1024
"""Of a caption, and of a text with buttons below it."""
MIB: Final = 1024 * 1024
_MAX_OPAQUE: Final = 512
_MAX_BUTTONS, _MAX_TITLE, _MAX_VALUE = 3, 20, 256
_MEDIA: Final[Mapping[str, tuple[re.Pattern[str], int]]] = {
    "image": (re.compile(r"image/(jpeg|png)"), 5 * MIB),
    "video": (re.compile(r"video/(mp4|3gpp)"), 16 * MIB),
    "audio": (re.compile(r"audio/(aac|amr|mpeg|mp4|ogg|opus)"), 16 * MIB),
    "sticker": (re.compile(r"image/webp"), 500 * 1024),
    "document": (re.compile(r".*"), 100 * MIB),
}
_WITHOUT_CAPTION: Final = ("audio", "sticker")
_KEYS: Final = {
    "image": {"id", "caption"},
    "video": {"id", "caption"},
    "audio": {"id", "voice"},
    "sticker": {"id"},
    "document": {"id", "caption", "filename"},
    "text": {"body", "preview_url"},
}
FindMedia = Callable[[str], StoredMedia | None]


def check_upload(media_type: str, size: int) -> None:
    """A file of this type and size can be uploaded."""
    most = max(limit for pattern, limit in _MEDIA.values() if pattern.fullmatch(media_type))
    kinds = [kind for kind, (pattern, _) in _MEDIA.items() if pattern.fullmatch(media_type)]
    if not size or size > most or not kinds:
        raise GraphError(131053, f"Media file is {size} bytes, of at most {most} for {media_type}")


def check_message(body: JsonObject, find: FindMedia) -> None:
    """A message of one of the kinds that are played here, within the limits of its kind."""
    kind = str(body.get("type", "text"))
    about = body.get(kind)
    if not isinstance(about, dict):
        raise GraphError(131008, f"Required parameter {kind} is missing")
    if unexpected := set(about) - _KEYS.get(kind, set(about)):
        key = sorted(unexpected)[0]
        raise GraphError(100, title=f'Unexpected key "{key}" on param "{kind}"')
    opaque = body.get("biz_opaque_callback_data", "")
    if not isinstance(opaque, str) or len(opaque) > _MAX_OPAQUE:
        raise GraphError(100, title=f"Param biz_opaque_callback_data must be at most {_MAX_OPAQUE} characters long.")
    match kind:
        case "text":
            _check_length("text['body']", about.get("body"), MAX_TEXT)
        case "interactive":
            _check_buttons(about)
        case "template":
            _check_length("template['name']", about.get("name"), _MAX_OPAQUE)
        case _ if kind in _MEDIA:
            _check_media(kind, about, find)
        case _:
            raise GraphError(131051, f"Message type {kind} is not supported")


def _check_media(kind: str, about: JsonObject, find: FindMedia) -> None:
    media = find(str(about.get("id")))
    if media is None:
        raise GraphError(131009, f"{kind}.id is no uploaded media")
    pattern, most = _MEDIA[kind]
    if not pattern.fullmatch(media.media_type) or len(media.data) > most:
        raise GraphError(131053, f"Media of {media.media_type} with {len(media.data)} bytes is no {kind}")
    if about.get("voice") and media.media_type != "audio/ogg":
        raise GraphError(131053, "A voice message must be audio/ogg")
    if kind not in _WITHOUT_CAPTION and "caption" in about:
        _check_length(f"{kind}['caption']", about["caption"], MAX_BODY)


def _check_buttons(about: JsonObject) -> None:
    if about.get("type") != "button":
        raise GraphError(131009, "Only reply buttons are played here")
    _check_length("interactive['body']['text']", child(about, "body").get("text"), MAX_BODY)
    buttons = child(about, "action").get("buttons")
    if not isinstance(buttons, list) or not 1 <= len(buttons) <= _MAX_BUTTONS:
        raise GraphError(131009, "Invalid buttons count. Min allowed buttons: 1, Max allowed buttons: 3")
    replies = [child(one, "reply") for one in buttons if child(one).get("type") == "reply"]
    for one in replies:
        _check_length("reply['title']", one.get("title"), _MAX_TITLE)
        _check_length("reply['id']", one.get("id"), _MAX_VALUE)
    if len(replies) < len(buttons) or any(len({one[key] for one in replies}) < len(replies) for key in ("id", "title")):
        raise GraphError(131009, "Duplicated or unknown buttons")


def _check_length(name: str, value: object, most: int) -> None:
    if not isinstance(value, str) or not value.strip():
        raise GraphError(131008, f"Required parameter {name} is missing")
    if len(value) > most:
        raise GraphError(100, title=f"Param {name} must be at most {most} characters long.")
