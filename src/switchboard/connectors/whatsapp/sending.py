"""A part of a reply as messages of the Graph API, and its refusals as outcomes. Pure; called by `channel.py`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from switchboard.connectors.kernel.requests import NotAnswered, NotWritten
from switchboard.connectors.whatsapp.graph import GraphRefusal
from switchboard.connectors.whatsapp.refusals import (
    PAIR_LIMIT,
    UNSURE,
    account_limit_s,
    describe_refusal,
    is_away,
    is_unreachable,
    needs_person,
)
from switchboard.connectors.whatsapp.settings import MAX_BODY, MIB
from switchboard.core.files.blobs import bare_type
from switchboard.domain.json_values import JsonMapping, JsonObject
from switchboard.domain.ledger import ReplyChoice
from switchboard.ports.connector import FileOut, Later, Outcome, Part, Refused, Uncertain, Why

DOCUMENT: Final = "document"
_AUDIO: Final = "audio"
_VOICE: Final = "audio/ogg"
_KINDS: Final = {
    "image/jpeg": ("image", 5 * MIB),
    "image/png": ("image", 5 * MIB),
    "video/mp4": ("video", 16 * MIB),
    "video/3gpp": ("video", 16 * MIB),
    "audio/aac": (_AUDIO, 16 * MIB),
    "audio/amr": (_AUDIO, 16 * MIB),
    "audio/mpeg": (_AUDIO, 16 * MIB),
    "audio/mp4": (_AUDIO, 16 * MIB),
    _VOICE: (_AUDIO, 16 * MIB),
}
"""By media type, how WhatsApp shows a file, and up to which size; all others are documents."""
_SOON_S: Final = 2.0
_AWAY_S: Final = 15.0
_PERSON_S: Final = 60.0
"""Before anything is tried again that a person must change at Meta: nothing is lost meanwhile."""
_LONGEST_PAIR_S: Final = 1024.0
_PRODUCT: Final = {"messaging_product": "whatsapp", "recipient_type": "individual"}


def kind_of_file(file: FileOut) -> str:
    """How WhatsApp shows a file."""
    kind, most = _KINDS.get(bare_type(file.media_type), (DOCUMENT, 0))
    return kind if file.size_bytes <= most else DOCUMENT


def destination_of(address: JsonMapping) -> JsonObject | None:
    """Whom to write to: by phone if it is known, since an id in its place would be lost. None: the address is bad."""
    if phone := address.get("to"):
        return {"to": phone}
    return {"recipient": address["recipient"]} if address.get("recipient") else None


def text_message(part: Part, key: str) -> JsonObject:
    """A text, with buttons where there is room for them: what is longer says in words what can be chosen."""
    text = (part.rendered or {}).get("whatsapp") or part.text
    if part.choices and len(text) <= MAX_BODY:
        return {**_frame_of(part, key), "type": "interactive", "interactive": _with_buttons(text, part.choices)}
    return {**_frame_of(part, key), "type": "text", "text": {"body": text, "preview_url": False}}


def file_message(part: Part, key: str, kind: str, media_id: str) -> JsonObject:
    """An uploaded file, with the text below it."""
    [file] = part.files
    about: JsonObject = {"id": media_id}
    if kind == DOCUMENT:
        about["filename"] = file.filename
    if kind == _AUDIO and bare_type(file.media_type) == _VOICE:
        about["voice"] = True
    if kind != _AUDIO and (caption := (part.rendered or {}).get("whatsapp") or part.text):
        about["caption"] = caption
    return {**_frame_of(part, key), "type": kind, kind: about}


def template_message(to: JsonMapping, template: tuple[str, str], key: str) -> JsonObject:
    """The template that asks somebody to write again."""
    name, language = template
    about = {"name": name, "language": {"code": language}}
    return {**_PRODUCT, **to, "biz_opaque_callback_data": key, "type": "template", "template": about}


def typing_message(wamid: str) -> JsonObject:
    """Shows that an answer to a message is being written, and that it was read."""
    about = {"status": "read", "message_id": wamid, "typing_indicator": {"type": "text"}}
    return {"messaging_product": "whatsapp", **about}


def outcome_of_failure(error: GraphRefusal | NotWritten | NotAnswered, part: Part, tried: int) -> Outcome:
    """The outcome of a part that was not sent normally; `tried`: how often in a row the pair was limited before."""
    match error:
        case NotWritten():
            return Later(_SOON_S, str(error))
        case NotAnswered():
            return Uncertain(str(error))
    told = describe_refusal(error)
    if error.code in UNSURE:
        return Uncertain(told)
    return _later_for(error, told, tried) or Refused(told, _why_refused(error, part))


def _later_for(error: GraphRefusal, told: str, tried: int) -> Later | None:
    """When the same request may succeed; None: never."""
    if (seconds := account_limit_s(error.code)) is not None:
        return Later(seconds, told, account=True)
    if needs_person(error):
        return Later(_PERSON_S, told, account=True)
    if error.code == PAIR_LIMIT:
        return Later(min(4.0 ** (tried + 1), _LONGEST_PAIR_S), told)
    return Later(_AWAY_S, told) if is_away(error) else None


def outcome_of_upload(error: GraphRefusal | NotWritten | NotAnswered, part: Part) -> Outcome:
    """The same while a file is uploaded, of which nobody sees anything yet."""
    outcome = outcome_of_failure(error, part, 0)
    if isinstance(outcome, Uncertain):
        return Later(_AWAY_S, outcome.reason)
    return Refused(outcome.reason) if isinstance(outcome, Refused) else outcome


def _why_refused(error: GraphRefusal, part: Part) -> Why:
    """Which change could help: without its file, or without buttons and marks."""
    if is_unreachable(error.code):
        return "blocked"
    return "other" if part.files or not (part.choices or part.rendered) else "markup"


def _frame_of(part: Part, key: str) -> JsonObject:
    return {**_PRODUCT, **(destination_of(part.address) or {}), "biz_opaque_callback_data": key}


def _with_buttons(text: str, choices: Sequence[ReplyChoice]) -> JsonObject:
    buttons = [{"type": "reply", "reply": {"id": one.value, "title": one.label}} for one in choices]
    return {"type": "button", "body": {"text": text}, "action": {"buttons": buttons}}
