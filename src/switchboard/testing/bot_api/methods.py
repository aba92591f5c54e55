"""The methods of the Bot API except those that wait: their effects on the world, and their errors.

Called by `server.py` with the parameters of a call. Out: the result, or ApiError in Telegram's words. `parse_mode` is
not supported; entities are.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from switchboard.domain.json_values import JsonObject
from switchboard.testing.bot_api.checks import Params, check_caption, check_entities, check_keyboard, check_text
from switchboard.testing.bot_api.faults import ApiError
from switchboard.testing.bot_api.world import Chat, World
from switchboard.testing.platform_server import Upload

MAX_DOWNLOAD: Final = 20 * 1024 * 1024
MAX_UPLOAD: Final = 50 * 1024 * 1024
_MAX_PHOTO: Final = 10 * 1024 * 1024
_ACTIONS: Final = frozenset(
    {"typing", "choose_sticker", "find_location", "upload_photo", "upload_document", "record_video", "upload_video"}
    | {"record_voice", "upload_voice", "record_video_note", "upload_video_note"}
)
_MEDIA: Final = ("document", "voice", "audio", "video", "animation")
_PER_GROUP: Final = (20, 60.0)
_PRESS_S: Final = 30.0
"""For how long a press can be answered. Telegram does not say; people do not wait for longer."""
_MAX_TOAST: Final = 200
_NOT_MODIFIED: Final = (
    "Bad Request: message is not modified: specified new message content and reply markup are exactly the same as "
    "a current content and reply markup of the message"
)


class Limits:
    """Telegram's limits: one message a second in a chat, twenty a minute in a group."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._sent: dict[int, deque[float]] = {}

    def spend(self, chat: Chat) -> None:
        """Count a message. If there are too many, it is not counted: raises ApiError 429 with the seconds to wait."""
        now, (most, window) = self._clock(), _PER_GROUP
        sent = self._sent.setdefault(chat.id, deque())
        while sent and sent[0] <= now - window:
            sent.popleft()
        wait = sent[-1] + 1.0 - now if sent else 0.0
        if chat.is_group and len(sent) >= most:
            wait = max(wait, sent[0] + window - now)
        if wait > 0:
            seconds = math.ceil(wait)
            raise ApiError(429, f"Too Many Requests: retry after {seconds}", retry_after=seconds)
        sent.append(now)


class Methods:
    """All methods by name; `limits` None: messages are unlimited."""

    def __init__(self, world: World, limits: Limits | None) -> None:
        self._world, self._limits = world, limits
        self._table: Mapping[str, Callable[[Params], object]] = {
            "getme": lambda _: world.bot,
            "sendmessage": self._send_message,
            "sendphoto": lambda params: self._send_file(params, "photo", _MAX_PHOTO),
            **{f"send{kind}": partial(self._send_file, kind=kind) for kind in _MEDIA},
            "sendmediagroup": self._send_album,
            "sendchataction": self._send_action,
            "sendmessagedraft": self._send_draft,
            "editmessagetext": self._edit_text,
            "editmessagereplymarkup": self._edit_keyboard,
            "answercallbackquery": self._answer_press,
            "getfile": self._get_file,
        }

    def call(self, name: str, params: Params) -> object:
        """The result of a method; names are case-insensitive. Raises ApiError."""
        method = self._table.get(name.lower())
        if method is None:
            raise ApiError(404, "Not Found")
        return method(params)

    def _send_message(self, params: Params) -> JsonObject:
        chat = self._find_chat(params)
        if params.word("parse_mode"):
            raise ApiError(400, "Bad Request: unsupported parse_mode")
        text = check_text(params.word("text"))
        entities = check_entities(text, params.tree("entities"))
        keyboard = check_keyboard(params.tree("reply_markup"))
        more = ({"entities": entities} if entities else {}) | ({"reply_markup": keyboard} if keyboard else {})
        return self._post_message(chat, params, {"text": text, **more})

    def _send_draft(self, params: Params) -> bool:
        chat, draft_id = self._find_chat(params), params.number("draft_id")
        if chat.about["type"] != "private":
            raise ApiError(400, "Bad Request: TEXTDRAFT_PEER_INVALID")
        if not draft_id:
            raise ApiError(400, "Bad Request: TEXTDRAFT_ID_INVALID")
        text = params.word("text") or ""  # without one, it says that the bot thinks
        check_entities(check_text(text or "x"), params.tree("entities"))
        self._world.drafts[chat.id] = (draft_id, text)
        return True

    def _answer_press(self, params: Params) -> bool:
        """Each press can be answered once, and only soon."""
        pressed = self._world.presses.get(params.word("callback_query_id") or "")
        if pressed is None or pressed.toast is not None or self._world.clock() - pressed.at > _PRESS_S:
            words = "query is too old and response timeout expired or query ID is invalid"
            raise ApiError(400, f"Bad Request: {words}")
        text = params.word("text") or ""
        if len(text) > _MAX_TOAST:
            raise ApiError(400, "Bad Request: MESSAGE_TOO_LONG")
        pressed.toast = text
        return True

    def _send_file(self, params: Params, kind: str, most: int = MAX_UPLOAD) -> JsonObject:
        chat = self._find_chat(params)
        about = self._find_file(params.word(kind), _find_upload(params, kind, params.word(kind)), most)
        return self._post_message(chat, params, {**self._caption_content(params), **_as_media(kind, about)})

    def _send_album(self, params: Params) -> list[JsonObject]:
        chat, media = self._find_chat(params), params.tree("media")
        if not isinstance(media, list) or not 2 <= len(media) <= 10:
            raise ApiError(400, "Bad Request: group send failed: 2-10 items are needed")
        contents = [self._medium_content(params, one) for one in media]
        group = {"media_group_id": f"sent-{self._world.next_update}-{len(chat.messages)}"}
        self._spend_limit(chat)
        return [
            self._world.posted(chat, self._world.bot, {**self._place_of(chat, params), **group, **one})
            for one in contents
        ]

    def _medium_content(self, params: Params, one: JsonObject) -> JsonObject:
        kind, source = str(one.get("type")), str(one.get("media"))
        if kind not in ("photo", "document"):
            raise ApiError(400, f"Bad Request: type of media '{kind}' is not offered here")
        about = self._find_file(source, _find_upload(params, "", source), MAX_UPLOAD)
        return {**self._caption_content(Params(one, {})), **_as_media(kind, about)}

    def _caption_content(self, params: Params) -> JsonObject:
        caption = check_caption(params.word("caption"))
        entities = check_entities(caption, params.tree("caption_entities"))
        found: JsonObject = {"caption": caption} if caption else {}
        return found | ({"caption_entities": entities} if entities else {})

    def _find_file(self, named: str | None, upload: Upload | None, most: int) -> JsonObject:
        """An uploaded file, or one that Telegram has."""
        if upload is None:
            if named not in self._world.files:
                raise ApiError(400, "Bad Request: wrong file identifier/HTTP URL specified")
            return {"file_id": named, "file_unique_id": f"u-{named}", "file_size": len(self._world.files[named])}
        if not upload.data:
            raise ApiError(400, "Bad Request: file must be non-empty")
        if len(upload.data) > most:
            raise ApiError(413, "Request Entity Too Large")
        file_id = self._world.stored(upload.data)
        about = {"file_id": file_id, "file_unique_id": f"u-{file_id}", "file_size": len(upload.data)}
        return {**about, "file_name": upload.filename, "mime_type": upload.media_type}

    def _send_action(self, params: Params) -> bool:
        self._find_chat(params)
        if params.word("action") not in _ACTIONS:
            raise ApiError(400, "Bad Request: wrong parameter action in request")
        return True

    def _edit_text(self, params: Params) -> JsonObject:
        message = self._to_edit(params)
        text = check_text(params.word("text"))
        entities = check_entities(text, params.tree("entities"))
        if (text, entities) == (message.get("text"), message.get("entities", [])):
            raise ApiError(400, _NOT_MODIFIED)
        message |= {"text": text, "edit_date": int(self._world.clock()), **({"entities": entities} if entities else {})}
        return message

    def _edit_keyboard(self, params: Params) -> JsonObject:
        message, keyboard = self._to_edit(params), check_keyboard(params.tree("reply_markup"))
        if keyboard == message.get("reply_markup"):
            raise ApiError(400, _NOT_MODIFIED)
        message.pop("reply_markup", None)
        message |= {"edit_date": int(self._world.clock()), **({"reply_markup": keyboard} if keyboard else {})}
        return message

    def _to_edit(self, params: Params) -> JsonObject:
        message = self._find_chat(params).messages.get(params.number("message_id"))
        if message is None:
            raise ApiError(400, "Bad Request: message to edit not found")
        if message["from"]["id"] != self._world.bot["id"]:
            raise ApiError(400, "Bad Request: message can't be edited")
        return message

    def _get_file(self, params: Params) -> JsonObject:
        file_id = params.word("file_id")
        data = self._world.files.get(file_id or "")
        if file_id is None or data is None:
            raise ApiError(400, "Bad Request: wrong file_id or the file is temporarily unavailable")
        if len(data) > MAX_DOWNLOAD:
            raise ApiError(400, "Bad Request: file is too big")
        path = f"{file_id.partition('-')[0]}/{file_id}"
        return {"file_id": file_id, "file_unique_id": f"u-{file_id}", "file_size": len(data), "file_path": path}

    def _find_chat(self, params: Params) -> Chat:
        """The chat to write to."""
        if not params.word("chat_id"):
            raise ApiError(400, "Bad Request: chat_id is empty")
        chat = self._world.found(params.word("chat_id"))
        if chat.moved_to is not None:
            words = "Bad Request: group chat was upgraded to a supergroup chat"
            raise ApiError(400, words, migrate_to_chat_id=chat.moved_to)
        if chat.closed is not None:
            raise ApiError(403, chat.closed)
        return chat

    def _post_message(self, chat: Chat, params: Params, content: JsonObject) -> JsonObject:
        where = self._place_of(chat, params)
        self._spend_limit(chat)
        return self._world.posted(chat, self._world.bot, {**where, **content})

    def _place_of(self, chat: Chat, params: Params) -> JsonObject:
        """The topic, and the message to answer."""
        where: JsonObject = {}
        if thread := params.number("message_thread_id"):
            if thread not in chat.topics:
                raise ApiError(400, "Bad Request: message thread not found")
            where |= {"message_thread_id": thread, "is_topic_message": True}
        reply = params.tree("reply_parameters")
        if isinstance(reply, dict):
            target = chat.messages.get(reply.get("message_id", 0))
            if target is None and not reply.get("allow_sending_without_reply"):
                raise ApiError(400, "Bad Request: message to be replied not found")
            if target is not None:
                where["reply_to_message"] = {k: v for k, v in target.items() if k != "reply_to_message"}
        return where

    def _spend_limit(self, chat: Chat) -> None:
        if self._limits is not None:
            self._limits.spend(chat)


def _find_upload(params: Params, name: str, source: str | None) -> Upload | None:
    """The file uploaded with the call: under the name of the parameter, or the name in its value."""
    if source is not None and source.startswith("attach://"):
        name = source.removeprefix("attach://")
    return params.uploads.get(name)


def _as_media(kind: str, about: JsonObject) -> JsonObject:
    return {"photo": [{**about, "width": 1280, "height": 960}]} if kind == "photo" else {kind: about}
