"""The other side of the bot: what people do in Discord, as calls of a test; each returns what it created."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from switchboard.domain.json_values import JsonMapping, JsonObject
from switchboard.testing.discord.checks import MAX_FILE
from switchboard.testing.discord.gateway import (
    DIRECT_MESSAGES,
    DIRECT_REACTIONS,
    GUILD_MESSAGES,
    GUILD_REACTIONS,
    GUILDS,
    Sessions,
)
from switchboard.testing.discord.world import (
    ANN,
    BOT,
    GUILD,
    TEXT,
    Channel,
    DiscordWorld,
    Press,
    about_channel,
    about_guild,
    new_user,
)

_MEMBER: Final = {"roles": [], "joined_at": "2026-01-01T00:00:00+00:00", "deaf": False, "mute": False, "flags": 0}
VOICE: Final = 1 << 13


class People:
    """People's actions; `wake` is called after each, since the bot may be waiting for it."""

    def __init__(self, world: DiscordWorld, sessions: Sessions, wake: Callable[[], None]) -> None:
        self._world, self._sessions, self._wake_all = world, sessions, wake

    def person(self, user: str, name: str) -> JsonObject:
        """Somebody else, with this id."""
        self._world.users[user] = new_user(user, name)
        return self._world.users[user]

    def guild(self, guild: str, name: str) -> str:
        """Another server, to which the bot is invited."""
        self._world.guilds[guild] = name
        self._tell_event("GUILD_CREATE", GUILDS, about_guild(self._world, guild))
        return guild

    def channel(self, name: str = "general", *, kind: int = TEXT, guild: str = GUILD) -> Channel:
        """A channel of a server, which the bot may see."""
        made = self._world.add_channel(kind, name, guild)
        self._tell_event("CHANNEL_CREATE", GUILDS, about_channel(made))
        return made

    def direct_chat(self, user: JsonObject = ANN) -> Channel:
        """The direct chat of a person with the bot."""
        return self._world.direct_chat(user)

    def thread(self, place: Channel, name: str = "Garden", message: JsonMapping | None = None) -> Channel:
        """A thread in a channel, or a post in a forum; one on a message has its id."""
        made = self._world.add_thread(place, name, ANN, message)
        self.tell_thread(made)
        return made

    def tell_thread(self, thread: Channel) -> None:
        """There is a new thread."""
        self._tell_event("THREAD_CREATE", GUILDS, {**about_channel(thread), "newly_created": True})

    def archive(self, thread: Channel) -> None:
        """Put a thread away, until somebody writes in it."""
        thread.archived_at = self._world.now()
        self._tell_event("THREAD_UPDATE", GUILDS, about_channel(thread))

    def say(
        self,
        text: str,
        place: Channel | None = None,
        *,
        user: JsonObject = ANN,
        reply_to: JsonObject | None = None,
        pings: bool = True,
        **more: object,
    ) -> JsonObject:
        """Write a message, in a direct chat unless a place is given; `<@900>` mentions the bot, `<@&11>` its role.

        A reply mentions whom it answers, unless that is switched off by `pings`. `more` are further fields, such as
        `message_snapshots`.
        """
        where = place or self.direct_chat(user)
        content: JsonObject = {"content": text, **more}
        if reply_to is not None:
            content |= {"message_reference": {"message_id": reply_to["id"], "channel_id": where.id}}
            content |= {"referenced_message": reply_to}
            content |= self._world.mentions_in(text, reply_to["author"] if pings else None)
        return self.put(content, where, user=user)

    def put(self, content: JsonMapping, place: Channel | None = None, *, user: JsonObject = ANN) -> JsonObject:
        """A message of any content and type, such as one of a webhook."""
        where = place or self.direct_chat(user)
        where.archived_at = None
        message = self._world.post(where, user, content)
        self.tell_message(where, message)
        return message

    def attach(
        self, data: bytes, name: str, media_type: str, place: Channel | None = None, **more: object
    ) -> JsonObject:
        """A message with a file; with `flags=VOICE` and `duration_secs` it is a voice message."""
        where = place or self.direct_chat()
        flags = more.pop("flags", 0)
        return self.put(
            {"attachments": [self._world.add_file(where, name, media_type, data, **more)], "flags": flags}, where
        )

    def edit(self, message: JsonMapping, text: str) -> JsonObject:
        """Change the text of a message."""
        changes = {"content": text, "edited_timestamp": self._world.now(), **self._world.mentions_in(text)}
        return self._change_message(message, changes)

    def preview(self, message: JsonMapping) -> JsonObject:
        """Discord shows what a link in the message leads to, which changes it without an edit."""
        return self._change_message(message, {"embeds": [{"type": "link", "url": "https://example.org/"}]})

    def delete(self, message: JsonMapping) -> None:
        """Delete a message, of a person or of the bot."""
        where = self._world.channels[message["channel_id"]]
        del where.messages[message["id"]]
        about = {"id": message["id"], "channel_id": where.id, **({"guild_id": where.guild} if where.guild else {})}
        self._tell_of(where, "MESSAGE_DELETE", lambda _: about)

    def react(self, message: JsonMapping, emoji: str = "👍", *, user: JsonObject = ANN) -> None:
        """React to a message."""
        where = self._world.channels[message["channel_id"]]
        about = {"user_id": user["id"], "channel_id": where.id, "message_id": message["id"], "burst": False, "type": 0}
        about |= {"emoji": {"id": None, "name": emoji}, "message_author_id": message["author"]["id"]}
        about |= {"guild_id": where.guild, "member": {**_MEMBER, "user": user}} if where.guild else {}
        intent = GUILD_REACTIONS if where.guild else DIRECT_REACTIONS
        self._sessions.add("MESSAGE_REACTION_ADD", intent, lambda _: about)
        self._wake_all()

    def press(self, message: JsonMapping, custom_id: str, *, user: JsonObject = ANN) -> JsonObject:
        """Press a button of the bot, which has three seconds to say that it has heard of it."""
        where = self._world.channels[message["channel_id"]]
        press: JsonObject = {"id": self._world.next_id(), "application_id": BOT["id"], "type": 3, "version": 1}
        press |= {"token": f"press-{press['id']}", "channel_id": where.id, "message": dict(message), "locale": "en-US"}
        press |= {"channel": about_channel(where), "data": {"component_type": 2, "custom_id": custom_id}}
        press |= {"app_permissions": "0", "entitlements": [], "authorizing_integration_owners": {}, "context": 0}
        press["attachment_size_limit"] = MAX_FILE
        press |= {"guild_id": where.guild, "member": {**_MEMBER, "user": user}} if where.guild else {"user": user}
        self._world.presses[press["token"]] = Press(press["id"], where.id, self._world.clock())
        self._tell_event("INTERACTION_CREATE", GUILDS, press)
        return press

    def tell_message(self, place: Channel, message: JsonMapping) -> None:
        """There is a new message, of anybody."""
        self._tell_of(place, "MESSAGE_CREATE", self._show_later(place, message))

    def tell_change(self, place: Channel, message: JsonMapping) -> None:
        """A message is another now."""
        self._tell_of(place, "MESSAGE_UPDATE", self._show_later(place, message))

    def _change_message(self, message: JsonMapping, changes: JsonMapping) -> JsonObject:
        where = self._world.channels[message["channel_id"]]
        after = where.messages[message["id"]] = {**where.messages[message["id"]], **changes}
        self.tell_change(where, after)
        return after

    def _show_later(self, place: Channel, message: JsonMapping) -> Callable[[bool], JsonMapping]:
        more: JsonObject = {"guild_id": place.guild} if place.guild else {}
        if place.guild and message["author"]["id"] in self._world.users:
            more["member"] = _MEMBER
        snapshot = dict(message)
        return lambda reads: {**self._world.show_message(snapshot, reads_content=reads), **more}

    def _tell_of(self, place: Channel, name: str, show: Callable[[bool], JsonMapping]) -> None:
        if not place.is_hidden:
            self._sessions.add(name, GUILD_MESSAGES if place.guild else DIRECT_MESSAGES, show)
        self._wake_all()

    def _tell_event(self, name: str, intent: int, data: JsonMapping) -> None:
        self._sessions.add(name, intent, lambda _: data)
        self._wake_all()
