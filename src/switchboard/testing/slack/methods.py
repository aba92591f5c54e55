"""The methods of the Web API: their effects on the workspace, and their errors.

Called by `server.py` with the arguments of a call. Out: the fields of the answer, or SlackError.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final

from msgspec import Struct

from switchboard.domain.json_values import JsonObject
from switchboard.testing.slack.checks import Arguments, check_draft, check_scope, pings_in
from switchboard.testing.slack.errors import SlackError
from switchboard.testing.slack.events import Events
from switchboard.testing.slack.history import cut_list, read_history, read_replies
from switchboard.testing.slack.workspace import (
    APP,
    BOT,
    BOT_USER,
    PREFIXES,
    TEAM,
    Conversation,
    StoredFile,
    Workspace,
    about_conversation,
    is_top_level,
)

_TYPES: Final = {"channel": "public_channel", "group": "private_channel", "im": "im", "mpim": "mpim"}
_LISTS: Final = {"channel": "channels", "group": "groups", "im": "ims", "mpim": "groups"}
"""Where a file says that it was shared, by kind of conversation."""
_PROFILE: Final = {"id": BOT, "app_id": APP, "name": "house", "deleted": False, "team_id": TEAM, "icons": {}}
_TIER_2, _TIER_3, _TIER_4 = 20, 50, 100


class Method(Struct, frozen=True):
    """One method. `scopes`: it needs one of them; `per_minute`: None if it has limits of its own.

    `is_read`: its arguments come in a query or a form, never as JSON, which is ignored.
    """

    run: Callable[[Arguments], JsonObject]
    scopes: tuple[str, ...] = ()
    per_minute: int | None = None
    is_read: bool = True


class Methods:
    """All methods by name. `scopes` are those that were granted."""

    def __init__(self, workspace: Workspace, events: Events, scopes: Collection[str]) -> None:
        self._workspace, self._events, self._scopes = workspace, events, scopes
        self.pings: list[str] = []
        """Whom the messages of the app have notified."""
        self.whispers: list[JsonObject] = []
        """What was shown to one person alone."""
        self.statuses: list[JsonObject] = []
        """What assistant.threads.setStatus was told, in order."""
        self._expected: dict[str, int] = {}
        history = tuple(f"{one}:history" for one in PREFIXES.values())
        self.table: Mapping[str, Method] = {
            "auth.test": Method(_tell_identity, is_read=False),
            "chat.postMessage": Method(self._post_message, ("chat:write",), is_read=False),
            "chat.postEphemeral": Method(self._post_ephemeral, ("chat:write",), _TIER_4, is_read=False),
            "chat.update": Method(self._update_message, ("chat:write",), _TIER_3, is_read=False),
            "conversations.history": Method(self._read_history, history, _TIER_3),
            "conversations.replies": Method(self._read_replies, history, _TIER_3),
            "users.info": Method(self._find_user, ("users:read",), _TIER_4),
            "users.conversations": Method(
                self._list_conversations, tuple(f"{one}:read" for one in PREFIXES.values()), _TIER_3
            ),
            "conversations.info": Method(
                self._find_conversation, tuple(f"{one}:read" for one in PREFIXES.values()), _TIER_3
            ),
            "files.info": Method(self._find_file, ("files:read",), _TIER_4),
            "files.list": Method(self._list_files, ("files:read",), _TIER_3),
            "files.getUploadURLExternal": Method(self._begin_upload, ("files:write",), _TIER_4),
            "files.completeUploadExternal": Method(self._complete_upload, ("files:write",), _TIER_4, is_read=False),
            "assistant.threads.setStatus": Method(
                self._set_status, ("assistant:write", "chat:write"), _TIER_2 * 30, is_read=False
            ),
        }

    def take_upload(self, file_id: str, data: bytes) -> bool:
        """The content of a file whose upload has begun; False if it is another than was announced."""
        if self._expected.get(file_id) != len(data):
            return False
        stored = self._workspace.files[file_id]
        stored.data = data
        del self._expected[file_id]
        return True

    def _post_message(self, arguments: Arguments) -> JsonObject:
        place = self._place_to_post(arguments)
        draft = check_draft(arguments)
        thread = self._thread_to_post(place, arguments.word("thread_ts"))
        content: JsonObject = {"text": draft.text}
        content |= {"blocks": draft.blocks} if draft.blocks else {}
        content |= {"metadata": draft.metadata} if draft.metadata else {}
        self.pings += draft.pings
        message = self._post_own(place, content, thread)
        shown = {key: value for key, value in message.items() if key != "metadata"}
        return {"channel": place.id, "ts": message["ts"], "message": shown}

    def _post_ephemeral(self, arguments: Arguments) -> JsonObject:
        place = self._place_to_post(arguments)
        if arguments.word("user") not in place.members:
            raise SlackError("user_not_in_channel")
        draft = check_draft(arguments)
        thread = self._thread_to_post(place, arguments.word("thread_ts"))
        self.pings += draft.pings
        about = {"channel": place.id, "user": arguments.word("user"), "thread_ts": thread}
        self.whispers.append({**about, "text": draft.text})
        return {"message_ts": self._workspace.next_ts()}

    def _update_message(self, arguments: Arguments) -> JsonObject:
        place, ts = self._place_to_post(arguments), arguments.word("ts")
        before = place.messages.get(ts)
        if before is None:
            raise SlackError("message_not_found")
        if before.get("bot_id") != BOT:
            raise SlackError("cant_update_message")
        draft = check_draft(arguments)
        edited = {"user": BOT_USER, "ts": self._workspace.next_ts()}
        after = place.messages[ts] = {**before, "text": draft.text, "blocks": draft.blocks, "edited": edited}
        self._events.tell_change(place, before, after)
        return {"channel": place.id, "ts": ts, "text": draft.text}

    def _post_own(self, place: Conversation, content: JsonObject, thread: str) -> JsonObject:
        own = {"user": BOT_USER, "bot_id": BOT, "app_id": APP, "bot_profile": _PROFILE}
        message = self._workspace.post(place, {**own, **content}, thread)
        self._events.tell_message(place, message)
        return message

    def _place_to_post(self, arguments: Arguments, name: str = "channel") -> Conversation:
        place = self._workspace.find(arguments.word(name))
        if place.is_archived:
            raise SlackError("is_archived")
        if BOT_USER not in place.members:
            raise SlackError("not_in_channel")
        if place.posting:
            raise SlackError(place.posting)
        return place

    def _thread_to_post(self, place: Conversation, ts: str) -> str:
        if ts and (ts not in place.messages or place.messages[ts].get("thread_ts", ts) != ts):
            raise SlackError("thread_not_found")
        return ts

    def _place_to_read(self, arguments: Arguments) -> Conversation:
        place = self._workspace.find(arguments.word("channel"))
        check_scope([f"{PREFIXES[place.kind]}:history"], self._scopes)
        if BOT_USER not in place.members:
            raise SlackError("not_in_channel")
        return place

    def _read_history(self, arguments: Arguments) -> JsonObject:
        place = self._place_to_read(arguments)
        return read_history([one for one in place.messages.values() if is_top_level(one)], arguments)

    def _read_replies(self, arguments: Arguments) -> JsonObject:
        place, ts = self._place_to_read(arguments), arguments.word("ts")
        if ts not in place.messages:
            raise SlackError("thread_not_found")
        return read_replies(place.thread_of(ts), arguments)

    def _find_user(self, arguments: Arguments) -> JsonObject:
        found = self._workspace.people.get(arguments.word("user"))
        if found is None:
            raise SlackError("user_not_found")
        return {"user": found}

    def _list_conversations(self, arguments: Arguments) -> JsonObject:
        wanted = (arguments.word("types") or "public_channel").split(",")
        if not set(wanted) <= set(_TYPES.values()):
            raise SlackError("invalid_types")
        kinds = [kind for kind, name in _TYPES.items() if name in wanted]
        for kind in kinds:
            check_scope([f"{PREFIXES[kind]}:read"], self._scopes)
        found = [
            about_conversation(one)
            for one in self._workspace.conversations.values()
            if one.kind in kinds and BOT_USER in one.members
            if not (one.is_archived and arguments.flag("exclude_archived"))
        ]
        page, cursor = cut_list(found, arguments)
        return {"channels": page, "response_metadata": {"next_cursor": cursor}}

    def _find_conversation(self, arguments: Arguments) -> JsonObject:
        place = self._workspace.find(arguments.word("channel"))
        check_scope([f"{PREFIXES[place.kind]}:read"], self._scopes)
        return {"channel": about_conversation(place)}

    def _find_file(self, arguments: Arguments) -> JsonObject:
        return {"file": {**self._shared_file(arguments.word("file")).about, "file_access": "visible"}, "comments": []}

    def _shared_file(self, file_id: str) -> StoredFile:
        found = self._workspace.files.get(file_id)
        if found is None or not found.is_shared:
            raise SlackError("file_not_found")
        return found

    def _list_files(self, arguments: Arguments) -> JsonObject:
        begin, end = arguments.number("ts_from", 0), arguments.number("ts_to", 1 << 62)
        user, place = arguments.word("user"), arguments.word("channel")
        found = [
            one.about
            for one in reversed(self._workspace.files.values())
            if one.is_shared and begin <= one.about["created"] <= end and user in ("", one.about["user"])
            if not place or any(place in one.about.get(kind, ()) for kind in _LISTS.values())
        ]
        count, page = arguments.number("count", 100), arguments.number("page", 1)
        paging = {"count": count, "total": len(found), "page": page, "pages": -(-len(found) // count)}
        return {"files": found[(page - 1) * count : page * count], "paging": paging}

    def _begin_upload(self, arguments: Arguments) -> JsonObject:
        name, length = arguments.word("filename"), arguments.number("length", 0)
        if not name or length <= 0:
            raise SlackError("invalid_arguments")
        made = self._workspace.add_file(BOT_USER, name, "application/octet-stream", b"", size=length)
        made.is_shared = False
        file_id: str = made.about["id"]
        self._expected[file_id] = length
        return {"upload_url": f"{self._workspace.url()}/upload/v1/{file_id}", "file_id": file_id}

    def _complete_upload(self, arguments: Arguments) -> JsonObject:
        named = arguments.tree("files")
        if not isinstance(named, list) or not named or any(not isinstance(one, dict) for one in named):
            raise SlackError("invalid_arguments")
        name = "channel_id" if arguments.word("channel_id") else "channels"
        place = self._place_to_post(arguments, name) if arguments.word(name) else None
        thread = self._thread_to_post(place, arguments.word("thread_ts")) if place else ""
        found = [self._uploaded_file(str(one.get("id"))) for one in named]
        for stored, one in zip(found, named, strict=True):
            stored.is_shared = True
            stored.about["title"] = one.get("title") or stored.about["name"]
        if place is not None:
            self._share_files(place, found, arguments.word("initial_comment"), thread)
        return {"files": [{"id": one.about["id"], "title": one.about["title"]} for one in found]}

    def _uploaded_file(self, file_id: str) -> StoredFile:
        found = self._workspace.files.get(file_id)
        if found is None or file_id in self._expected or found.is_shared:
            raise SlackError("file_not_found")
        return found

    def _share_files(self, place: Conversation, found: list[StoredFile], comment: str, thread: str) -> None:
        for one in found:
            one.about.setdefault(_LISTS[place.kind], []).append(place.id)
        self.pings += pings_in(comment)
        about = [dict(one.about) for one in found]
        self._post_own(place, {"subtype": "file_share", "text": comment, "files": about}, thread)

    def _set_status(self, arguments: Arguments) -> JsonObject:
        place = self._workspace.find(arguments.word("channel_id"))
        ts = arguments.word("thread_ts")
        if not ts:
            raise SlackError("invalid_arguments")
        self._thread_to_post(place, ts)
        self.statuses.append({"channel": place.id, "thread_ts": ts, "status": arguments.word("status")})
        return {}


def _tell_identity(_: Arguments) -> JsonObject:
    names = {"url": "https://house.slack.com/", "team": "House", "user": "house"}
    return {**names, "team_id": TEAM, "user_id": BOT_USER, "bot_id": BOT, "is_enterprise_install": False}
