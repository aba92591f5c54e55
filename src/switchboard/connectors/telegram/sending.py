"""A part of a reply as a Bot API call, and Telegram's answer as an outcome. Pure; called by `channel.py`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from switchboard.connectors.kernel.requests import NotAnswered, NotWritten
from switchboard.connectors.telegram.api import BotApiError
from switchboard.domain.json_values import JsonObject
from switchboard.domain.ledger import ReplyChoice
from switchboard.ports.connector import FileOut, Later, Outcome, Part, Refused, Uncertain, Why

_SOON_S: Final = 2.0
_SIGNED_OUT_S: Final = 60.0
_SHORT_LABEL: Final = 16
_MAX_TOAST: Final = 200
_MAX_PHOTO: Final = 10 * 1024 * 1024
DOCUMENT: Final = "document"
_KINDS: Final = {
    "image/jpeg": "photo",
    "image/png": "photo",
    "image/webp": "photo",
    "image/gif": "animation",
    "audio/ogg": "voice",
    "audio/opus": "voice",
    "audio/mpeg": "audio",
    "audio/mp4": "audio",
    "video/mp4": "video",
}
"""By media type, how Telegram shows a file; all others are documents."""
_OTHER_KIND: Final = ("photo_", "image_process_failed", "voice_messages_forbidden", "video_", "wrong type of the web")
_TOPIC_GONE: Final = ("message thread not found", "topic_deleted", "topic_closed", "topic_id_invalid")
_REFUSALS: Final[tuple[tuple[Why, tuple[str, ...]], ...]] = (
    ("target", (*_TOPIC_GONE, "replied not found", "reply message not found", "replied message not found")),
    ("markup", ("can't parse", "entity", "entities", "button_", "reply markup", "inline keyboard")),
    ("blocked", ("chat not found", "rights to", "chat_write_forbidden", "deactivated", "chat_restricted", "kicked")),
)


def where(part: Part, quote: str) -> JsonObject:
    """The chat, topic and message to answer; `quote` is the setting."""
    address = part.address
    params: JsonObject = {"chat_id": address["chat"]}
    if "topic" in address:
        params["message_thread_id"] = address["topic"]
    quoted = quote == "always" or (quote == "groups" and address.get("group") is True)
    if quoted and part.reply_to is not None and "message" in address:
        params["reply_parameters"] = {"message_id": address["message"]}
    return params


def words(part: Part) -> JsonObject:
    """The text with its entities, or the caption of a file, and the buttons below."""
    prefix = "caption_" if part.files else ""
    found: JsonObject = {"caption" if part.files else "text": part.text} if part.text else {}
    if part.text and not part.files:
        # Telegram would fetch the first link, whose address may contain data that a butler was tricked into revealing.
        found["link_preview_options"] = {"is_disabled": True}
    entities = (part.rendered or {}).get("entities")
    markup = {"reply_markup": keyboard(part.choices)} if part.choices else {}
    return found | ({f"{prefix}entities": entities} if entities else {}) | markup


def keyboard(choices: Sequence[ReplyChoice]) -> JsonObject:
    """The choices as buttons: each in a row of its own, but for two short ones that stand side by side."""
    buttons = [{"text": one.label, "callback_data": one.value} for one in choices]
    rows = list[list[JsonObject]]()
    for button in buttons:
        if rows and len(rows[-1]) == 1 and all(len(one["text"]) <= _SHORT_LABEL for one in (*rows[-1], button)):
            rows[-1].append(button)
        else:
            rows.append([button])
    return {"inline_keyboard": rows}


def toast_of(part: Part, press: str) -> JsonObject:
    """The answer to a press, shown to whoever pressed: at most 200 characters."""
    text = part.text if len(part.text) <= _MAX_TOAST else f"{part.text[: _MAX_TOAST - 1]}…"
    return {"callback_query_id": press, "text": text}


def new_buttons(part: Part) -> JsonObject:
    """The buttons that replace those below the message that was pressed."""
    address = part.address
    message = {"chat_id": address["chat"], "message_id": address.get("message")}
    return {**message, "reply_markup": keyboard(part.choices or ())}


def is_done_already(error: BotApiError) -> bool:
    """Whether the buttons below a message are already those that it was to get."""
    return error.code == 400 and _says(error, ("not modified",))


def draft_outcome(error: BotApiError) -> Later | Refused:
    """What becomes of drafts that Telegram does not take. Raises OSError if it may take the next one."""
    match error.code:
        case 429 | 401:
            return _later(error)
        case 404:
            return Refused(f"this Bot API has no drafts: {error}")
        case code if code < 500:
            return Refused(str(error), "blocked")
    raise OSError(str(error))


def kind_of(file: FileOut) -> str:
    """How Telegram shows a file; also the name of the parameter for it."""
    kind = _KINDS.get(file.media_type, DOCUMENT)
    return DOCUMENT if kind == "photo" and file.size_bytes > _MAX_PHOTO else kind


def outcome_of(error: BotApiError | NotWritten | NotAnswered) -> Outcome:
    """The outcome of a part that was not sent normally."""
    match error:
        case NotWritten():
            return Later(_SOON_S, str(error))
        case BotApiError(429 | 401 | 404):
            return _later(error)
        case BotApiError(code) if code < 500:
            return Refused(str(error), "blocked" if code == 403 else _because(error))
    return Uncertain(str(error))


def _later(error: BotApiError) -> Later:
    if error.code != 429:  # nothing is lost: receiving reports that somebody must sign in
        return Later(_SIGNED_OUT_S, str(error))
    seconds = error.parameters.get("retry_after")
    return Later(float(seconds) if isinstance(seconds, int | float) else _SOON_S, str(error))


def moved_to(error: BotApiError) -> int | None:
    """The supergroup that the group became."""
    found = error.parameters.get("migrate_to_chat_id")
    return found if isinstance(found, int) else None


def topic_is_gone(error: BotApiError) -> bool:
    """Whether the topic no longer exists."""
    return error.code == 400 and _says(error, _TOPIC_GONE)


def is_not_of_its_kind(error: BotApiError) -> bool:
    """Whether it could be sent as a document instead."""
    return error.code == 400 and _says(error, _OTHER_KIND)


def _because(error: BotApiError) -> Why:
    return next((why for why, signs in _REFUSALS if _says(error, signs)), "other")


def _says(error: BotApiError, signs: tuple[str, ...]) -> bool:
    said = error.description.lower()
    return any(sign in said for sign in signs)
