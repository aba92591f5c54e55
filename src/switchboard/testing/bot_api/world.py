"""Telegram's state: chats with their messages, files, and the updates that a bot has not confirmed.

Called by `methods.py` for the bot, and by tests through `server.py` for the people who write to it. No I/O; `clock`
returns seconds since 1970.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from switchboard.domain.json_values import JsonObject
from switchboard.testing.bot_api.faults import ApiError

ANN: Final[JsonObject] = {"id": 42, "is_bot": False, "first_name": "Ann", "username": "ann", "language_code": "en"}
BOT: Final[JsonObject] = {
    "id": 123456,
    "is_bot": True,
    "first_name": "House",
    "username": "house_bot",
    "can_join_groups": True,
    "can_read_all_group_messages": False,
    "supports_inline_queries": False,
}
_UNASKED: Final = frozenset({"chat_member", "message_reaction", "message_reaction_count"})
_GROUPS: Final = frozenset({"group", "supergroup"})
_NUMBERED: Final = frozenset({"supergroup", "channel"})
"""Chats with their own numbers of messages; all others share them."""
_FIRST_UPDATE: Final = 870_000_001
_MAX_PENDING: Final = 100


@dataclass(slots=True)
class Chat:
    """A chat and its state. `closed`: why the bot may not write there; `moved_to`: its supergroup."""

    about: JsonObject
    messages: dict[int, JsonObject] = field(default_factory=dict)
    topics: dict[int, str] = field(default_factory=dict)
    closed: str | None = None
    moved_to: int | None = None

    @property
    def id(self) -> int:
        """The id in the API: negative for groups."""
        number: int = self.about["id"]
        return number

    @property
    def is_group(self) -> bool:
        """Whether several people may be in it."""
        return self.about["type"] in _GROUPS


@dataclass(slots=True)
class Pressed:
    """The press of a button, which the bot can answer once, and only for a while. `toast`: what it has answered."""

    user: JsonObject
    at: float
    toast: str | None = None


@dataclass(slots=True)
class World:
    """Everything on the platform that one bot can see."""

    clock: Callable[[], float]
    bot: JsonObject = field(default_factory=lambda: dict(BOT))
    chats: dict[int, Chat] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    updates: list[JsonObject] = field(default_factory=list)
    allowed: frozenset[str] | None = None
    """Kinds of updates that the bot has requested; None: all except those that must be requested."""
    next_update: int = _FIRST_UPDATE
    presses: dict[str, Pressed] = field(default_factory=dict)
    drafts: dict[int, tuple[int, str]] = field(default_factory=dict)
    """By chat, the draft that is shown there, until the bot sends a message: its id and text."""
    _message_ids: dict[int, int] = field(default_factory=dict)
    _file_count: int = 0

    def chat(self, about: JsonObject) -> Chat:
        """The chat of this id, created if missing."""
        return self.chats.setdefault(about["id"], Chat(dict(about)))

    def private(self, user: JsonObject) -> Chat:
        """The chat of a person with the bot."""
        return self.chat(
            {**{key: user[key] for key in ("id", "first_name", "username") if key in user}, "type": "private"}
        )

    def found(self, chat_id: object) -> Chat:
        """The chat that a bot names, by id or @name."""
        name = str(chat_id)
        for chat in self.chats.values():
            if name == str(chat.id) or (name.startswith("@") and chat.about.get("username") == name[1:]):
                return chat
        raise ApiError(400, "Bad Request: chat not found")

    def posted(self, chat: Chat, sender: JsonObject, content: Mapping[str, object]) -> JsonObject:
        """A new message in a chat."""
        space = chat.id if chat.about["type"] in _NUMBERED else 0
        number = self._message_ids[space] = self._message_ids.get(space, 0) + 1
        shown = {key: sender[key] for key in ("id", "is_bot", "first_name", "username") if key in sender}
        message = {"message_id": number, "from": shown, "chat": chat.about, "date": int(self.clock()), **content}
        chat.messages[number] = message
        if sender.get("id") == self.bot["id"]:
            self.drafts.pop(chat.id, None)
        return message

    def stored(self, data: bytes, folder: str = "documents") -> str:
        """The id of a new file; its path is `folder/ID`."""
        self._file_count += 1
        file_id = f"{folder}-{self._file_count}"
        self.files[file_id] = data
        return file_id

    def tell(self, kind: str, payload: object) -> JsonObject | None:
        """Queue an update for the bot, if it has requested this kind."""
        if (kind in _UNASKED) if self.allowed is None else (kind not in self.allowed):
            return None
        update = {"update_id": self.next_update, kind: payload}
        self.next_update += 1
        self.updates.append(update)
        return update

    def pending(self, offset: int, limit: int) -> list[JsonObject]:
        """The updates from the offset on; those before it are confirmed and forgotten.

        A negative offset keeps that many of the latest updates. Without an offset, nothing is forgotten.
        """
        if offset > 0:
            self.updates = [one for one in self.updates if one["update_id"] >= offset]
        elif offset < 0:
            self.updates = self.updates[offset:]
        return self.updates[: max(1, min(limit or _MAX_PENDING, _MAX_PENDING))]

    def confirmed(self, update_ids: Iterable[int]) -> None:
        """Forget updates that a webhook has accepted."""
        taken = set(update_ids)
        self.updates = [one for one in self.updates if one["update_id"] not in taken]
