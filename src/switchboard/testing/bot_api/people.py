"""The other side of the bot: people's actions in Telegram, as calls of a test; each returns what it created."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from switchboard.domain.json_values import JsonObject
from switchboard.testing.bot_api.world import ANN, Chat, Pressed, World

_OGG: Final = b"OggS" + bytes(28)
_SERVICE_ID: Final = {"id": 1087968824, "is_bot": True, "first_name": "Group", "username": "GroupAnonymousBot"}

_TELEGRAM: Final = {"id": 777000, "is_bot": False, "first_name": "Telegram"}


class People:
    """People's actions; `changed` is called after each, since the bot may be waiting for it."""

    def __init__(self, world: World, changed: Callable[[], None]) -> None:
        self._world, self._changed = world, changed

    def group(
        self, chat_id: int = -100200300, *, title: str = "Home", kind: str = "supergroup", **more: object
    ) -> Chat:
        """A group that the bot is in."""
        return self._world.chat({"id": chat_id, "type": kind, "title": title, **more})

    def topic(self, chat: Chat, name: str = "Garden") -> int:
        """A new topic of a forum: its message_thread_id."""
        chat.about["is_forum"] = True
        made = {"forum_topic_created": {"name": name, "icon_color": 7322096}}
        message = self._world.posted(chat, ANN, made)
        thread: int = message["message_id"]
        message |= {"message_thread_id": thread, "is_topic_message": True}
        chat.topics[thread] = name
        self._add_update("message", message)
        return thread

    def say(
        self,
        text: str,
        chat: Chat | None = None,
        *,
        user: JsonObject = ANN,
        topic: int | None = None,
        reply_to: JsonObject | None = None,
        **more: object,
    ) -> JsonObject:
        """Write a message; `more` are further fields, such as `entities`."""
        return self._post_message({"text": text, **more}, chat, user=user, topic=topic, reply_to=reply_to)

    def send(self, content: JsonObject, chat: Chat | None = None, *, user: JsonObject = ANN) -> JsonObject:
        """Send content of any kind, such as `{"checklist": …}`; or what Telegram tells of the chat by such a field."""
        return self._post_message(content, chat, user=user)

    def channel(self, chat_id: int = -100500600, *, title: str = "News") -> Chat:
        """A channel of which the bot is an administrator."""
        return self._world.chat({"id": chat_id, "type": "channel", "title": title})

    def post(self, channel: Chat, text: str, *, group: Chat | None = None, **more: object) -> list[JsonObject]:
        """Post in a channel; Telegram copies the post into the group where it is discussed. Returns post and copy."""
        post = self._world.posted(channel, {}, {"sender_chat": channel.about, "text": text, **more})
        del post["from"]
        self._add_update("channel_post", post)
        if group is None:
            return [post]
        origin = {"type": "channel", "chat": channel.about, "message_id": post["message_id"], "date": post["date"]}
        about = {"sender_chat": channel.about, "forward_origin": origin, "is_automatic_forward": True}
        copy = self._world.posted(group, _TELEGRAM, {**about, "text": text, **more})
        self._add_update("message", copy)
        return [post, copy]

    def edit(self, message: JsonObject, text: str) -> JsonObject:
        """Edit a message."""
        edited = {**message, "text": text, "edit_date": int(self._world.clock())}
        self._world.chats[message["chat"]["id"]].messages[message["message_id"]] = edited
        self._add_update("edited_message", edited)
        return edited

    def photo(self, data: bytes = b"\xff\xd8\xff", chat: Chat | None = None, **more: object) -> JsonObject:
        """Send a photo, which comes in two sizes."""
        return self._post_message({"photo": self._photo_sizes(data), **more}, chat)

    def album(self, photos: Sequence[bytes], caption: str = "", chat: Chat | None = None) -> list[JsonObject]:
        """Send several photos as one album; the caption belongs to the first."""
        group = f"album-{self._world.next_update}"
        first = {"caption": caption} if caption else {}
        return [
            self._post_message(
                {"media_group_id": group, "photo": self._photo_sizes(data), **({} if n else first)}, chat
            )
            for n, data in enumerate(photos)
        ]

    def voice(
        self, data: bytes = _OGG, chat: Chat | None = None, *, seconds: int = 3, user: JsonObject = ANN
    ) -> JsonObject:
        """Send a voice message."""
        about = {**self._store_file(data, "voice"), "mime_type": "audio/ogg", "duration": seconds}
        return self._post_message({"voice": about}, chat, user=user)

    def document(
        self,
        data: bytes,
        filename: str,
        media_type: str,
        chat: Chat | None = None,
        *,
        user: JsonObject = ANN,
        **more: object,
    ) -> JsonObject:
        """Send a file."""
        about = {**self._store_file(data, "documents"), "file_name": filename, "mime_type": media_type}
        return self._post_message({"document": about, **more}, chat, user=user)

    def lose_files(self) -> None:
        """Make all files sent so far unavailable."""
        self._world.files.clear()

    def press(self, message: JsonObject, data: str, *, user: JsonObject = ANN) -> Pressed:
        """Press a button below a message of the bot. As with a forged app, no button needs to have these data."""
        name = f"query-{self._world.next_update}"
        pressed = self._world.presses[name] = Pressed(user, self._world.clock())
        self._add_update(
            "callback_query", {"id": name, "from": user, "message": message, "chat_instance": "1", "data": data}
        )
        return pressed

    def block(self, user: JsonObject = ANN) -> None:
        """Block the bot: it may no longer write to this person."""
        chat = self._world.private(user)
        chat.closed = "Forbidden: bot was blocked by the user"
        self._change_membership(chat, user, "member", "kicked")

    def unblock(self, user: JsonObject = ANN) -> None:
        """Unblock the bot."""
        chat = self._world.private(user)
        chat.closed = None
        self._change_membership(chat, user, "kicked", "member")

    def kick(self, chat: Chat, user: JsonObject = ANN) -> None:
        """Remove the bot from a group."""
        chat.closed = f"Forbidden: bot was kicked from the {chat.about['type']} chat"
        self._change_membership(chat, user, "member", "kicked")

    def delete(self, message: JsonObject) -> None:
        """Delete a message; bots are not notified of this."""
        del self._world.chats[message["chat"]["id"]].messages[message["message_id"]]

    def migrate(self, chat: Chat, new_id: int = -100777888) -> Chat:
        """Turn a group into a supergroup, with one service message in each."""
        new = self._world.chat({**chat.about, "id": new_id, "type": "supergroup"})
        self._add_update("message", self._world.posted(chat, _SERVICE_ID, {"migrate_to_chat_id": new_id}))
        self._add_update("message", self._world.posted(new, _SERVICE_ID, {"migrate_from_chat_id": chat.id}))
        chat.moved_to = new_id
        return new

    def _post_message(
        self,
        content: JsonObject,
        chat: Chat | None,
        *,
        user: JsonObject = ANN,
        topic: int | None = None,
        reply_to: JsonObject | None = None,
    ) -> JsonObject:
        chat = chat or self._world.private(user)
        if topic is not None:
            content = {**content, "message_thread_id": topic, "is_topic_message": True}
        if reply_to is not None:
            content = {**content, "reply_to_message": {k: v for k, v in reply_to.items() if k != "reply_to_message"}}
        message = self._world.posted(chat, user, content)
        self._add_update("message", message)
        return message

    def _photo_sizes(self, data: bytes) -> list[JsonObject]:
        large = {**self._store_file(data, "photos"), "width": 1280, "height": 960}
        return [{**self._store_file(data[:1], "photos"), "width": 90, "height": 67}, large]

    def _store_file(self, data: bytes, folder: str) -> JsonObject:
        file_id = self._world.stored(data, folder)
        return {"file_id": file_id, "file_unique_id": f"u-{file_id}", "file_size": len(data)}

    def _change_membership(self, chat: Chat, user: JsonObject, old: str, new: str) -> None:
        states = {
            f"{age}_chat_member": {"user": self._world.bot, "status": status, "until_date": 0}
            for age, status in (("old", old), ("new", new))
        }
        self._add_update(
            "my_chat_member", {"chat": chat.about, "from": user, "date": int(self._world.clock()), **states}
        )

    def _add_update(self, kind: str, payload: object) -> None:
        self._world.tell(kind, payload)
        self._changed()
