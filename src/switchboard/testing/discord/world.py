"""Discord's state: one server ("guild"), its channels and threads, direct chats, messages and files.

Called by `routes.py` for the bot, and by `people.py` for those who write to it. No I/O; `clock` returns seconds since
1970.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from switchboard.domain.json_values import JsonMapping, JsonObject
from switchboard.testing.discord.errors import UNKNOWN_CHANNEL, UNKNOWN_MESSAGE, RestError

GUILD: Final = "10"
ROLE: Final = "11"
"""The role that Discord makes for the bot, and that people take for the bot itself."""
EPOCH_MS: Final = 1420070400000
TEXT, DIRECT, FORUM, THREAD = 0, 1, 15, 11
"""Types of channels."""
OBFUSCATED: Final = 1 << 17
"""The flag of a channel that the bot may not see: of it the gateway tells that it is there."""
FILE_S: Final = 86_400
"""For how long the URL of a file is valid."""
_ABSENT: Final = frozenset(
    {"afk_channel_id", "application_id", "banner", "description", "discovery_splash", "icon", "icon_hash", "splash"}
    | {"public_updates_channel_id", "rules_channel_id", "system_channel_id", "vanity_url_code", "widget_channel_id"}
    | {"safety_alerts_channel_id"}
)
_LEVELS: Final = frozenset(
    {"verification_level", "default_message_notifications", "explicit_content_filter", "mfa_level", "nsfw_level"}
    | {"system_channel_flags", "premium_tier"}
)
"""Fields of a guild that are null, and zero, here."""
_USER: Final = re.compile(r"<@!?(\d+)>")
_ROLE: Final = re.compile(r"<@&(\d+)>")


def new_user(user: str, name: str, *, is_bot: bool = False) -> JsonObject:
    """A user as Discord shows it."""
    about: JsonObject = {"id": user, "username": name, "discriminator": "0", "avatar": None, "bot": is_bot}
    return about | {"global_name": None if is_bot else name.title(), "public_flags": 0, "flags": 0}


BOT: Final = new_user("900", "house", is_bot=True)
ANN: Final = new_user("901", "ann")


@dataclass(slots=True)
class Channel:
    """A channel, a thread, or a direct chat. `messages` by id, in order; the guild is None for direct chats."""

    id: str
    kind: int
    name: str = ""
    guild: str | None = GUILD
    parent: str | None = None
    owner: str | None = None
    recipient: JsonObject | None = None
    messages: dict[str, JsonObject] = field(default_factory=dict)
    last_message: str | None = None
    archived_at: str | None = None
    is_hidden: bool = False
    """The bot may not see it: it hears nothing of it, and is refused."""
    posting: RestError | None = None
    """With what Discord refuses messages of the bot here, such as MISSING_PERMISSIONS."""


@dataclass(slots=True)
class Press:
    """Of a button; `heard`: the bot has said that it has heard of it."""

    id: str
    channel: str
    at: float
    heard: bool = False


@dataclass(slots=True)
class DiscordWorld:
    """Everything in Discord that one bot can see."""

    clock: Callable[[], float]
    url: Callable[[], str]
    """Where files are."""
    channels: dict[str, Channel] = field(default_factory=dict)
    files: dict[str, tuple[str, bytes]] = field(default_factory=dict)
    """By id: the media type and the content."""
    users: dict[str, JsonObject] = field(default_factory=lambda: {BOT["id"]: BOT, ANN["id"]: ANN})
    guilds: dict[str, str] = field(default_factory=lambda: {GUILD: "House"})
    """The names of the servers that the bot is in, by id."""
    presses: dict[str, Press] = field(default_factory=dict)
    """By the token with which they are answered."""
    whispers: list[JsonObject] = field(default_factory=list)
    """What the bot has shown to those alone who pressed a button."""
    _last_id: int = 0

    def next_id(self) -> str:
        """A snowflake of now; no two are equal, and later ones are greater."""
        self._last_id = max(self._last_id + 1, (int(self.clock() * 1000) - EPOCH_MS) << 22)
        return str(self._last_id)

    def now(self) -> str:
        """The time as Discord writes it."""
        return datetime.fromtimestamp(self.clock(), UTC).isoformat(timespec="microseconds")

    def add_channel(self, kind: int = TEXT, name: str = "general", guild: str = GUILD) -> Channel:
        """A channel of a guild."""
        made = Channel(self.next_id(), kind, name, guild)
        self.channels[made.id] = made
        return made

    def add_thread(self, parent: Channel, name: str, owner: JsonObject, message: JsonMapping | None = None) -> Channel:
        """A thread in a channel; one on a message has its id."""
        thread_id = message["id"] if message is not None else self.next_id()
        made = Channel(thread_id, THREAD, name, parent.guild, parent=parent.id, owner=owner["id"])
        self.channels[made.id] = made
        return made

    def direct_chat(self, user: JsonObject) -> Channel:
        """The direct chat of a person with the bot."""
        for one in self.channels.values():
            if one.recipient is not None and one.recipient["id"] == user["id"]:
                return one
        made = Channel(self.next_id(), DIRECT, guild=None, recipient=user)
        self.channels[made.id] = made
        return made

    def find(self, channel_id: str) -> Channel:
        """Raises RestError."""
        if channel_id not in self.channels:
            raise UNKNOWN_CHANNEL
        return self.channels[channel_id]

    def find_message(self, channel: Channel, message_id: str) -> JsonObject:
        """Raises RestError."""
        if message_id not in channel.messages:
            raise UNKNOWN_MESSAGE
        return channel.messages[message_id]

    def post(self, channel: Channel, author: JsonObject, content: JsonMapping) -> JsonObject:
        """A new message in a channel."""
        message = self.new_message(channel, author, content)
        channel.messages[message["id"]] = message
        channel.last_message = message["id"]
        return message

    def new_message(self, channel: Channel, author: JsonObject, content: JsonMapping) -> JsonObject:
        """A message, which may be a reply; whom it mentions follows from its text. It is nowhere yet."""
        text = content.get("content", "")
        message: JsonObject = {"id": self.next_id(), "channel_id": channel.id, "author": author, "content": text}
        message |= {"timestamp": self.now(), "edited_timestamp": None, "tts": False, "pinned": False, "type": 0}
        message |= {"attachments": [], "embeds": [], "components": [], "flags": 0, **self.mentions_in(text), **content}
        if message.get("message_reference") and "referenced_message" in message:
            message["type"] = 19
        return message

    def mentions_in(self, text: str, answered: JsonObject | None = None) -> JsonObject:
        """The fields of a message that say whom its text mentions, and whom it answers."""
        named = _USER.findall(text) + ([answered["id"]] if answered is not None else [])
        people = [self.users[one] for one in dict.fromkeys(named) if one in self.users]
        everyone = "@everyone" in text or "@here" in text
        return {"mentions": people, "mention_roles": _ROLE.findall(text), "mention_everyone": everyone}

    def add_file(self, channel: Channel, name: str, media_type: str, data: bytes, **more: object) -> JsonObject:
        """An attachment, without its URL, which is signed whenever it is shown."""
        file_id = self.next_id()
        self.files[file_id] = (media_type, data)
        about: JsonObject = {"id": file_id, "filename": name, "size": len(data), "content_type": media_type}
        return {**about, "place": f"{channel.id}/{file_id}/{name}", **more}

    def show_file(self, attachment: JsonMapping) -> JsonObject:
        """The attachment with a URL that is valid for a day."""
        shown = {key: value for key, value in attachment.items() if key != "place"}
        expiry = f"{int(self.clock()) + FILE_S:x}"
        place = f"{self.url()}/attachments/{attachment['place']}"
        url = f"{place}?ex={expiry}&is={int(self.clock()):x}&hm={sign_file(attachment['id'], expiry)}&"
        return {**shown, "url": url, "proxy_url": url}

    def show_message(self, message: JsonMapping, *, reads_content: bool) -> JsonObject:
        """The message as the bot may read it; without the intent, only what is direct, its own, or mentions it."""
        channel = self.channels[message["channel_id"]]
        own = message["author"]["id"] == BOT["id"] or any(one["id"] == BOT["id"] for one in message["mentions"])
        shown = {**message, "attachments": [self.show_file(one) for one in message["attachments"]]}
        if isinstance(message.get("referenced_message"), dict):
            root = message["referenced_message"]
            shown["referenced_message"] = self.show_message(root, reads_content=reads_content)
        if reads_content or own or channel.guild is None:
            return shown
        return {**shown, "content": "", "attachments": [], "embeds": [], "components": []}


def sign_file(file_id: str, expiry: str) -> str:
    """The signature in the URL of a file."""
    return hashlib.sha256(f"{file_id} {expiry}".encode()).hexdigest()


def about_channel(channel: Channel) -> JsonObject:
    """What Discord tells of it."""
    about: JsonObject = {"id": channel.id, "type": channel.kind, "last_message_id": channel.last_message, "flags": 0}
    if channel.is_hidden:
        about["flags"] = OBFUSCATED
    if channel.recipient is not None:
        return about | {"recipients": [channel.recipient]}
    about |= {"guild_id": channel.guild, "name": channel.name, "parent_id": channel.parent, "rate_limit_per_user": 0}
    if channel.kind != THREAD:
        about |= {"position": 0, "permission_overwrites": [], "nsfw": False, "topic": None}
        return about | ({"available_tags": [], "default_auto_archive_duration": 1440} if channel.kind == FORUM else {})
    since = channel.archived_at or "2026-01-01T00:00:00+00:00"
    state = {"archived": channel.archived_at is not None, "auto_archive_duration": 1440, "archive_timestamp": since}
    about |= {"thread_metadata": {**state, "locked": False}, "owner_id": channel.owner, "applied_tags": []}
    return about | {"message_count": len(channel.messages), "member_count": 2, "total_message_sent": 0}


def about_guild(world: DiscordWorld, guild: str) -> JsonObject:
    """GUILD_CREATE: the guild with its channels, and the threads that are not archived."""
    roles = [_about_role(guild, "@everyone"), {**_about_role(ROLE, "house"), "managed": True}]
    roles[1]["tags"] = {"bot_id": BOT["id"]}
    places, threads = _all_channels(world, guild), threads_of(world, guild)
    member = {"roles": [ROLE], "joined_at": "2026-01-01T00:00:00+00:00", "deaf": False, "mute": False, "flags": 0}
    counts = {"member_count": len(world.users), "premium_subscription_count": 0, "afk_timeout": 300}
    none = dict.fromkeys(_ABSENT)
    levels = dict.fromkeys(_LEVELS, 0)
    empty = ("emojis", "features", "voice_states", "presences", "stage_instances", "guild_scheduled_events", "stickers")
    lists: JsonObject = {name: [] for name in (*empty, "soundboard_sounds")}
    flags = {"large": False, "unavailable": False, "premium_progress_bar_enabled": False, "widget_enabled": False}
    about: JsonObject = {"id": guild, "name": world.guilds[guild], "owner_id": ANN["id"], "region": ""}
    about |= {"preferred_locale": "en-US", "joined_at": member["joined_at"], "roles": roles}
    about |= {**counts, **none, **levels, **lists, **flags}
    return {**about, "members": [{**member, "user": BOT}], "channels": places, "threads": threads}


def channels_of(world: DiscordWorld, guild: str) -> list[JsonObject]:
    """The channels of a guild, without its threads and those that the bot may not see."""
    return [one for one in _all_channels(world, guild) if not one["flags"] & OBFUSCATED]


def _all_channels(world: DiscordWorld, guild: str) -> list[JsonObject]:
    return [about_channel(one) for one in world.channels.values() if one.guild == guild and one.kind != THREAD]


def threads_of(world: DiscordWorld, guild: str) -> list[JsonObject]:
    """The threads of a guild that are not archived."""
    threads = [one for one in world.channels.values() if one.guild == guild and one.kind == THREAD]
    return [about_channel(one) for one in threads if not one.is_hidden and one.archived_at is None]


def _about_role(role: str, name: str) -> JsonObject:
    about: JsonObject = {"id": role, "name": name, "color": 0, "hoist": False, "position": 0, "managed": False}
    colors = {"primary_color": 0, "secondary_color": None, "tertiary_color": None}
    return about | {"permissions": "1071698660929", "mentionable": False, "flags": 0, "colors": colors}
