"""What is known of servers: their channels, threads and roles; and of direct chats. No I/O; filled by `arriving.py`.

Ids in a text become the names that are kept here, and a thread tells here who has begun it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

from msgspec import Struct

from switchboard.domain.json_values import JsonObject
from switchboard.ports.raw import Raw, at, child, integer, word

THREADS: Final = frozenset({10, 11, 12})
"""The types of channels that are threads."""
HOLDERS: Final = frozenset({0, 5, 15, 16})
"""The types of channels that have threads or posts."""
SPOKEN_IN: Final = frozenset({0, 2, 5, 13}) | THREADS
"""The types of channels in which messages are."""
_OBFUSCATED: Final = 1 << 17
"""The flag of channels of which the gateway tells though we may not see them."""
_VIEW: Final = 1 << 10
"""The permission to see a channel."""
_PRIVATE_THREAD: Final = 12
_DIRECT: Final = frozenset({1, 3})
_MOST_PLACES: Final = 20_000
_MOST_AUTHORS: Final = 10_000

_T = TypeVar("_T")


class DiscordPlace(Struct, frozen=True):
    """A channel, a thread or a direct chat; `guild`: its server; `owner`: who has begun the thread.

    `is_hidden`: the bot may not see it; `is_private`: not everybody in the server may.
    """

    id: str
    kind: int
    guild: str | None = None
    parent: str | None = None
    name: str | None = None
    owner: str | None = None
    last_message: int = 0
    is_hidden: bool = False
    is_private: bool = False
    with_whom: str | None = None
    """The other person of a direct chat."""

    @property
    def is_thread(self) -> bool:
        """Whether it is a thread, or a post in a forum."""
        return self.kind in THREADS

    @property
    def is_direct(self) -> bool:
        """Whether it is in no server."""
        return self.kind in _DIRECT


class DiscordGuild(Struct, frozen=True):
    """A server: its name, its roles with their names, and those of them that are the bot's alone."""

    name: str | None
    roles: Mapping[str, str]
    own_roles: frozenset[str]


@dataclass(slots=True)
class DiscordPlaces:
    """Everything of one bot. `me`: its id."""

    me: str
    places: dict[str, DiscordPlace] = field(default_factory=dict)
    guilds: dict[str, DiscordGuild] = field(default_factory=dict)
    authors: dict[str, tuple[str, str | None]] = field(default_factory=dict)
    """Who wrote the last messages, by their ids: a deletion does not say it."""

    def learn_guild(self, about: Raw) -> None:
        """A server with its roles and all else that came with them."""
        guild = integer(about.get("id"))
        if guild is None:
            return
        roles = {role: one for one in _objects_in(about.get("roles")) if (role := integer(one.get("id")))}
        names = {role: word(one.get("name")) or "" for role, one in roles.items()}
        own = frozenset(role for role, one in roles.items() if at(one, "tags", "bot_id") == self.me)
        self.guilds[guild] = DiscordGuild(word(about.get("name")) or self._name_of(guild), names, own)
        for one in (*_objects_in(about.get("channels")), *_objects_in(about.get("threads"))):
            self.learn_place({**one, "guild_id": guild})

    def learn_roles(self, guild: str, changed: Raw) -> None:
        """One role is new, or another now."""
        before = self.guilds.get(guild)
        role = integer(changed.get("id"))
        if before is None or role is None:
            return
        own = before.own_roles | ({role} if at(changed, "tags", "bot_id") == self.me else set())
        roles = {**before.roles, role: word(changed.get("name")) or ""}
        self.guilds[guild] = DiscordGuild(before.name, roles, own)

    def learn_place(self, about: Raw) -> DiscordPlace | None:
        """A channel, a thread or a direct chat."""
        place, kind = integer(about.get("id")), about.get("type")
        if place is None or not isinstance(kind, int):
            return None
        known = self.places.pop(place, None)
        made = DiscordPlace(
            place,
            kind,
            integer(about.get("guild_id")) or (known.guild if known else None),
            integer(about.get("parent_id")),
            word(about.get("name")),
            integer(about.get("owner_id")),
            int(integer(about.get("last_message_id")) or 0),
            bool(_bits_in(about.get("flags")) & _OBFUSCATED),
            kind == _PRIVATE_THREAD or _is_closed(about),
            integer(at(about, "recipients", 0, "id")) or (known.with_whom if known else None),
        )
        self.places[place] = made
        _drop_oldest(self.places, _MOST_PLACES)
        return made

    def forget_guild(self, guild: str) -> None:
        """We are there no longer."""
        self.guilds.pop(guild, None)
        self.places = {name: one for name, one in self.places.items() if one.guild != guild}

    def note_author(self, message: str, author: str, name: str | None) -> None:
        """Who wrote a message."""
        self.authors[message] = author, name
        _drop_oldest(self.authors, _MOST_AUTHORS)

    def places_of(self, guild: str) -> Iterator[DiscordPlace]:
        """Those of a server in which messages are that the bot may see."""
        found = (one for one in list(self.places.values()) if one.guild == guild and one.kind in SPOKEN_IN)
        return (one for one in found if not one.is_hidden)

    def shown_name(self, guild: str | None, place: str) -> str | None:
        """The name of a channel, if everybody in this server may know it."""
        known = self.places.get(place)
        if known is None or known.guild != guild or known.is_hidden or known.is_private:
            return None
        parent = self.places.get(known.parent or "") if known.is_thread else None
        return None if parent is not None and parent.is_private else known.name

    def role_name(self, guild: str | None, role: str) -> str | None:
        """The name of a role, without an `@`."""
        known = self.guilds.get(guild or "")
        name = known.roles.get(role) if known else None
        return name.removeprefix("@") if name else None

    def own_roles(self, guild: str | None) -> frozenset[str]:
        """The roles that are the bot's alone."""
        known = self.guilds.get(guild or "")
        return known.own_roles if known else frozenset()

    def around(self, message: Raw) -> JsonObject:
        """What a message does not say of its place, and its readers want to know."""
        place = self.places.get(integer(message.get("channel_id")) or "")
        if place is None or place.guild is None:
            return {}
        channel = {"id": place.id, "type": place.kind, "parent_id": place.parent, "name": place.name}
        return {"guild_id": place.guild, "channel": channel, "guild": {"name": self._name_of(place.guild)}}

    def _name_of(self, guild: str) -> str | None:
        known = self.guilds.get(guild)
        return known.name if known else None


def _bits_in(value: object) -> int:
    return int(integer(value) or 0)


def _is_closed(about: Raw) -> bool:
    """Whether the role that everybody has, whose id is the server's, is denied to see the channel."""
    guild = integer(about.get("guild_id"))
    overwrites = _objects_in(about.get("permission_overwrites"))
    return any(integer(one.get("id")) == guild and _bits_in(one.get("deny")) & _VIEW for one in overwrites)


def _objects_in(found: object) -> Iterable[Raw]:
    return map(child, found) if isinstance(found, list) else ()


def _drop_oldest(known: dict[str, _T], most: int) -> None:
    while len(known) > most:
        del known[next(iter(known))]
