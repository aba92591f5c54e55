"""Slack's state: a workspace with people, conversations, messages and files.

Called by `methods.py` for the app, and by `people.py` for those who write to it. No I/O; `clock` returns seconds since
1970.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, Literal

from switchboard.domain.json_values import JsonMapping, JsonObject
from switchboard.testing.slack.errors import SlackError

TEAM: Final = "T0HOUSE"
APP: Final = "A0HOUSE"
BOT_USER: Final = "U0BOT"
BOT: Final = "B0BOT"
ANN: Final = "U0ANN"

Kind = Literal["channel", "group", "im", "mpim"]
"""As in `channel_type` of events: public and private channels, and direct chats of one or of several people."""

PREFIXES: Final = {"channel": "channels", "group": "groups", "im": "im", "mpim": "mpim"}
"""The beginning of scopes, by kind."""


@dataclass(slots=True)
class Conversation:
    """A channel or a direct chat. `messages` by `ts`, in order; `members` are ids of users."""

    id: str
    kind: Kind
    name: str = ""
    members: set[str] = field(default_factory=set)
    messages: dict[str, JsonObject] = field(default_factory=dict)
    is_archived: bool = False
    posting: str | None = None
    """The code with which Slack refuses what the app posts here, such as `restricted_action`."""

    def thread_of(self, ts: str) -> list[JsonObject]:
        """The message, and the replies to it, in order."""
        return [one for one in self.messages.values() if ts in (one["ts"], one.get("thread_ts"))]


@dataclass(slots=True)
class StoredFile:
    """A file: what Slack tells of it, and what it contains. `is_shared`: the last step of its upload has been made."""

    about: JsonObject
    data: bytes
    is_shared: bool = True


@dataclass(slots=True)
class Workspace:
    """Everything in Slack that one app can see."""

    clock: Callable[[], float]
    url: Callable[[], str]
    """Where files are."""
    people: dict[str, JsonObject] = field(default_factory=dict)
    conversations: dict[str, Conversation] = field(default_factory=dict)
    files: dict[str, StoredFile] = field(default_factory=dict)
    _last_ts: int = 0
    _made: int = 0

    def __post_init__(self) -> None:
        self.add_person(BOT_USER, "house", is_bot=True)
        self.add_person(ANN, "Ann")

    def add_person(self, user: str, name: str, *, team: str = TEAM, is_bot: bool = False) -> JsonObject:
        """A user; one of another `team` is there by Slack Connect."""
        profile = {"real_name": name, "display_name": name, "team": team, "avatar_hash": "0", "email": ""}
        about: JsonObject = {"id": user, "team_id": team, "name": name.lower(), "real_name": name, "deleted": False}
        about |= {"is_bot": is_bot, "is_app_user": False, "profile": profile, "tz": "Europe/Vienna", "tz_offset": 3600}
        self.people[user] = about
        return about

    def add_conversation(self, name: str, kind: Kind, *members: str) -> Conversation:
        """A conversation with these members."""
        letter = {"channel": "C", "group": "C", "im": "D", "mpim": "G"}[kind]
        made = Conversation(f"{letter}0{self.next_number():04d}", kind, name, set(members))
        self.conversations[made.id] = made
        return made

    def direct_chat(self, user: str) -> Conversation:
        """The direct chat of a person with the app."""
        for one in self.conversations.values():
            if one.kind == "im" and user in one.members:
                return one
        return self.add_conversation("", "im", user, BOT_USER)

    def find(self, name: str) -> Conversation:
        """The conversation that the app names, by its id, or by that of a person. Raises SlackError."""
        if name in self.people:
            return self.direct_chat(name)
        found = self.conversations.get(name)
        if found is None or (found.kind != "channel" and BOT_USER not in found.members):
            raise SlackError("channel_not_found")
        return found

    def next_ts(self) -> str:
        """The time as the id of a message; no two are equal."""
        self._last_ts = max(self._last_ts + 1, int(self.clock() * 1_000_000))
        return f"{self._last_ts // 1_000_000}.{self._last_ts % 1_000_000:06d}"

    def next_number(self) -> int:
        """A number for the id of anything."""
        self._made += 1
        return self._made

    def post(self, conversation: Conversation, content: JsonMapping, thread_ts: str = "") -> JsonObject:
        """A new message; in a thread, its root is told of it."""
        message: JsonObject = {"type": "message", "ts": self.next_ts(), "team": TEAM, **content}
        if thread_ts:
            root = conversation.messages[thread_ts]
            message |= {"thread_ts": thread_ts, "parent_user_id": root.get("user", "")}
            count = root.get("reply_count", 0) + 1
            root |= {"thread_ts": thread_ts, "reply_count": count, "latest_reply": message["ts"]}
        conversation.messages[message["ts"]] = message
        return message

    def add_file(self, user: str, name: str, media_type: str, data: bytes, **more: object) -> StoredFile:
        """A file of a user."""
        file_id = f"F0{self.next_number():04d}"
        place = f"{self.url()}/files-pri/{TEAM}-{file_id}"
        now = int(self.clock())
        about: JsonObject = {"id": file_id, "created": now, "timestamp": now, "name": name, "title": name}
        about |= {"mimetype": media_type, "filetype": name.rpartition(".")[2], "pretty_type": "", "user": user}
        about |= {"user_team": TEAM, "size": len(data), "mode": "hosted", "is_external": False, "is_public": False}
        about |= {"file_access": "visible", "url_private": f"{place}/{name}"}
        about |= {"url_private_download": f"{place}/download/{name}", "permalink": f"{place}/shown/{name}", **more}
        self.files[file_id] = StoredFile(about, data)
        return self.files[file_id]

    def own_messages(self) -> Iterator[tuple[Conversation, JsonObject]]:
        """The messages of the app, in order."""
        found = [(one, message) for one in self.conversations.values() for message in one.messages.values()]
        yield from sorted((pair for pair in found if pair[1].get("bot_id") == BOT), key=lambda pair: pair[1]["ts"])


def is_top_level(message: JsonMapping) -> bool:
    """Whether it is shown in its channel, and not only in a thread."""
    return message.get("thread_ts", message["ts"]) == message["ts"] or message.get("subtype") == "thread_broadcast"


def about_conversation(conversation: Conversation) -> JsonObject:
    """What Slack tells of it."""
    kind = conversation.kind
    about: JsonObject = {"id": conversation.id, "is_channel": kind == "channel", "is_group": kind == "group"}
    about |= {"is_im": kind == "im", "is_mpim": kind == "mpim", "is_private": kind != "channel"}
    about |= {"is_archived": conversation.is_archived, "is_member": BOT_USER in conversation.members, "created": 0}
    if kind == "im":
        return about | {"user": next(iter(conversation.members - {BOT_USER})), "is_user_deleted": False}
    return about | {"name": conversation.name, "name_normalized": conversation.name, "is_general": False}
