"""From the gateway to batches: what is known of servers is kept, what was missed is fetched, and the cursor follows.

Called by `channel.py`. A new session begins without what was said before it: then the history is read of each channel
whose last message is newer than the watermark, and of direct chats that are remembered; what arrives meanwhile waits
behind it. Next: `gateway.py`, `events.py` and `cursor.py`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

import structlog
from msgspec.structs import replace

from switchboard.connectors.discord.cursor import (
    MOST_CHATS,
    MOST_PARENTS,
    MOST_UNREAD,
    DiscordCursor,
    latest_first,
    seconds_of,
    snowflake_at,
)
from switchboard.connectors.discord.events import TOKEN, DiscordReader, is_blank_event, split_bulk
from switchboard.connectors.discord.gateway import TOKEN_REFUSED, Dispatch
from switchboard.connectors.discord.passages import time_in
from switchboard.connectors.discord.places import HOLDERS, DiscordPlaces
from switchboard.connectors.discord.rest import DiscordError, RestClient
from switchboard.domain.json_values import JsonObject
from switchboard.ports.connector import Batch, Inbound, SignInRefused, Unreadable
from switchboard.ports.raw import Raw, at, child, integer, word
from switchboard.tasks import cancel_tasks

log = structlog.get_logger(__name__)

SKEW_S: Final = 30.0
"""By so much the order of messages in different channels may differ from that of their ids."""
_TOGETHER: Final = 100
_PAGE: Final = 100
_MOST_PAGES: Final = 5
_MOST_NONCES: Final = 1000
_MOST_READ: Final = 10_000
_BLANK: Final = "messages arrive without text: switch on Message Content Intent, or set message_content = false"
_UNREAD: Final = "Discord does not show what was written in some channels meanwhile; this is tried again"
_UNREAD_S: Final = 300.0
"""How often a channel is tried again whose history Discord did not give."""
_ABOUT_PLACES: Final = frozenset({"CHANNEL_CREATE", "CHANNEL_UPDATE", "THREAD_CREATE", "THREAD_UPDATE"})
_PLACES_GONE: Final = frozenset({"CHANNEL_DELETE", "THREAD_DELETE"})

DiscordEvent = Inbound | Unreadable


@dataclass(slots=True)
class Arrivals:
    """The events of one bot. `cursor`: after all that was returned; `nonces`: our last messages by theirs."""

    rest: RestClient
    reader: DiscordReader
    cursor: DiscordCursor
    nonces: dict[str, str] = field(default_factory=dict)
    _given: str | None = None
    """The cursor of the last batch that had one."""
    _read_before: dict[str, None] = field(default_factory=dict)
    """The last messages of the history: what came while it was read comes once more."""
    _blank: str | None = None
    _try_at: float = 0.0
    """When the next channel is tried again whose history is owed."""
    _answering: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def places(self) -> DiscordPlaces:
        """What is known of where things are written."""
        return self.reader.places

    def answer_press(self, event: Dispatch) -> None:
        """Tell Discord that a press has arrived: it waits for that three seconds only."""
        press, token = integer(event.data.get("id")), word(event.data.get(TOKEN))
        if event.name == "INTERACTION_CREATE" and press and token:
            task = asyncio.create_task(self._take_press(f"/interactions/{press}/{token}/callback"))
            self._answering.add(task)
            task.add_done_callback(self._answering.discard)

    async def _take_press(self, path: str) -> None:
        with suppress(DiscordError, OSError):  # one that came too late is answered by a message
            await self.rest.call("POST", path, {"type": 6})

    async def close(self) -> None:
        """End what is being told."""
        await cancel_tasks(*self._answering)

    async def batches(self, received: asyncio.Queue[Dispatch]) -> AsyncGenerator[Batch, None]:
        """What has arrived, several events together, and what was missed before. Raises SignInRefused, OSError."""
        while True:
            some = [await received.get()]
            while len(some) < _TOGETHER and not received.empty():
                some.append(received.get_nowait())
            events = list[DiscordEvent]()
            for one in some:
                if one.name in ("READY", "GUILD_CREATE"):
                    yield self._make_batch(events)
                    events = []
                    async for missed in self._catch_up(one):
                        yield Batch(missed, trouble=self._tell_trouble())
                events += await self._take(one)
                if one.name:
                    self.cursor = replace(self.cursor, s=one.session, u=one.url, q=one.number)
            yield self._make_batch(events)
            async for missed in self._try_again():
                yield Batch(missed, trouble=self._tell_trouble())

    def _tell_trouble(self) -> str | None:
        return self._blank or (_UNREAD if self.cursor.c else None)

    def _make_batch(self, events: Sequence[DiscordEvent]) -> Batch:
        now = str(self.cursor) if self.cursor.s else None
        changed, self._given = now != self._given, now
        return Batch(tuple(events), now if changed else None, self._tell_trouble())

    # Events -----------------------------------------------------------------------------------------------------------

    async def _take(self, event: Dispatch) -> list[DiscordEvent]:
        self._learn_event(event.name, event.data)
        found = list[DiscordEvent]()
        for name, data in split_bulk(event.name, event.data):
            found += await self._read(name, data)
        return found

    async def _read(self, name: str, data: JsonObject) -> list[DiscordEvent]:
        if not name.startswith(("MESSAGE_", "INTERACTION_")) or self._was_read(name, data):
            return []
        await self._look_up(data)
        if name == "MESSAGE_CREATE":
            self._note_message(data)
        event = self.reader.read(name, data, datetime.now(UTC))
        if event is None:
            return []
        self._note_blank(event)
        return [event]

    def _was_read(self, name: str, data: Raw) -> bool:
        return name == "MESSAGE_CREATE" and integer(data.get("id")) in self._read_before

    def _note_message(self, message: Raw) -> None:
        """What a message says of where we are."""
        snowflake, channel = integer(message.get("id")), integer(message.get("channel_id"))
        if snowflake is None or channel is None:
            return
        own = at(message, "author", "id") == self.places.me
        if own and (nonce := word(message.get("nonce"))):
            self.nonces[nonce] = snowflake
            while len(self.nonces) > _MOST_NONCES:
                del self.nonces[next(iter(self.nonces))]
        known = min(self.cursor.w, snowflake_at(time.time() + SKEW_S))  # our clock may have been ahead
        self.cursor = replace(self.cursor, w=max(known, int(snowflake)))
        place = self.places.places.get(channel)
        if place is not None and place.is_direct:
            self.cursor = replace(self.cursor, d=latest_first(channel, self.cursor.d, MOST_CHATS))
        elif place is not None and place.is_thread and place.parent:
            self.cursor = replace(self.cursor, p=latest_first(place.parent, self.cursor.p, MOST_PARENTS))

    def _note_blank(self, event: DiscordEvent) -> None:
        """Whether Discord shows what people write, where we want to read it."""
        if is_blank_event(event):
            self._blank = _BLANK if self.reader.settings.message_content else None
        elif isinstance(event, Inbound) and not event.direct and not event.envelope.control.addressed:
            self._blank = None

    # What is known ----------------------------------------------------------------------------------------------------

    def _learn_event(self, name: str, data: JsonObject) -> None:
        guild = integer(data.get("guild_id"))
        if name in ("GUILD_CREATE", "GUILD_UPDATE"):
            self.places.learn_guild(data)
        elif name == "GUILD_DELETE":
            self._leave_guild(integer(data.get("id")) or "", will_return=data.get("unavailable") is True)
        elif name in ("GUILD_ROLE_CREATE", "GUILD_ROLE_UPDATE") and guild:
            self.places.learn_roles(guild, child(data, "role"))
        elif name in _ABOUT_PLACES:
            self.places.learn_place(data)
        elif name in _PLACES_GONE:
            self.places.places.pop(integer(data.get("id")) or "", None)
        elif name == "THREAD_LIST_SYNC" and isinstance(data.get("threads"), list):
            for one in data["threads"]:
                self.places.learn_place({**child(one), "guild_id": guild})

    def _leave_guild(self, guild: str, *, will_return: bool) -> None:
        """Discord has an outage there, after which its history is read; or we were removed."""
        if will_return:
            self._note_owed([guild])
        else:
            self.places.forget_guild(guild)

    def _note_owed(self, guilds: Iterable[str]) -> None:
        """The history of these servers is still to be read."""
        after = self.cursor.a if self.cursor.o or self.cursor.c else self.cursor.w
        self.cursor = replace(self.cursor, o=tuple(dict.fromkeys((*self.cursor.o, *guilds))), a=after)

    def _settle_owed(self, *, guild: str = "", channel: str = "") -> None:
        """Its history has been read."""
        guilds = tuple(one for one in self.cursor.o if one != guild)
        channels = tuple(one for one in self.cursor.c if one != channel)
        self.cursor = replace(self.cursor, o=guilds, c=channels, a=self.cursor.a if guilds or channels else 0)

    def _note_unread(self, channel: str, begin: int, error: OSError) -> None:
        """Its history is still to be read. Raises the error if there are so many that Discord seems to be away."""
        others = tuple(one for one in self.cursor.c if one != channel)
        if len(others) >= MOST_UNREAD:
            raise error
        log.warning("Discord does not show the history of a channel", channel=channel, why=str(error))
        self._try_at = asyncio.get_running_loop().time() + _UNREAD_S
        self.cursor = replace(self.cursor, c=(*others, channel), a=self.cursor.a or begin)

    async def _look_up(self, about: Raw) -> None:
        """Ask for the server and the channel of an event if we have not heard of them, as after a resumption."""
        guild, channel = integer(about.get("guild_id")), integer(about.get("channel_id"))
        if guild and guild not in self.places.guilds:
            await self._look_up_guild(guild)
        if channel is None or channel in self.places.places:
            return
        author = integer(at(about, "author", "id"))
        if guild is None and author not in (None, self.places.me):
            self.places.learn_place({"id": channel, "type": 1, "recipients": [{"id": author}]})
            return
        found = child(await self._ask(f"/channels/{channel}"))
        self.places.learn_place(found or {"id": channel, "type": 0 if guild else 1, "guild_id": guild})

    async def _look_up_guild(self, guild: str) -> None:
        about = child(await self._ask(f"/guilds/{guild}"))
        channels = await self._ask(f"/guilds/{guild}/channels")
        threads = child(await self._ask(f"/guilds/{guild}/threads/active")).get("threads")
        self.places.learn_guild({**about, "id": guild, "channels": channels, "threads": threads})

    async def _ask(self, path: str) -> Any:
        """What Discord answers; None if it refuses to. Raises SignInRefused, OSError."""
        try:
            return await self.rest.read(path)
        except DiscordError as error:
            if error.status == 401:
                raise SignInRefused(TOKEN_REFUSED) from None
            log.info("Discord does not tell", path=path, why=str(error))
            return None

    # History ----------------------------------------------------------------------------------------------------------

    async def _catch_up(self, event: Dispatch) -> AsyncGenerator[tuple[DiscordEvent, ...], None]:
        """What was missed, after the first event of a session, or that of one of its servers."""
        if event.name == "READY":
            guilds = event.data.get("guilds")
            ids = [integer(at(one, "id")) for one in guilds] if isinstance(guilds, list) else []
            begin = self._begin_of(self.cursor.a or self.cursor.w)
            self._note_owed(one for one in ids if one)
            for chat in self.cursor.d:
                async for page in self._missed_in(chat, begin):
                    yield page
            return
        guild = integer(event.data.get("id"))
        if guild not in self.cursor.o:
            return
        self._learn_event(event.name, event.data)
        begin = self._begin_of(self.cursor.a)
        for place in await self._newer_places(guild, begin):
            async for page in self._missed_in(place, begin):
                yield page
        self._settle_owed(guild=guild)

    async def _try_again(self) -> AsyncGenerator[tuple[DiscordEvent, ...], None]:
        """What was missed in channels that are owed, one after the other until one fails again."""
        while self.cursor.c and asyncio.get_running_loop().time() >= self._try_at:
            async for page in self._missed_in(self.cursor.c[0], self._begin_of(self.cursor.a)):
                yield page

    def _begin_of(self, after: int) -> int:
        """Where the history is read from: a little before the watermark, but not long ago."""
        oldest = snowflake_at(time.time() - self.reader.settings.catch_up_h * 3600)
        return max(snowflake_at(min(seconds_of(after) - SKEW_S, time.time())), oldest)

    async def _newer_places(self, guild: str, begin: int) -> list[str]:
        """The channels and threads of a server whose last message is newer, also of threads that were put away."""
        for parent in self.cursor.p:
            place = self.places.places.get(parent)
            if place is not None and place.guild == guild and place.kind in HOLDERS and not place.is_hidden:
                await self._look_up_archived(guild, parent, begin)
        return [one.id for one in self.places.places_of(guild) if one.last_message > begin]

    async def _look_up_archived(self, guild: str, parent: str, begin: int) -> None:
        before = ""
        for _ in range(_MOST_PAGES):
            found = child(await self._ask(f"/channels/{parent}/threads/archived/public?limit={_PAGE}{before}"))
            threads = found.get("threads")
            told = [child(one) for one in threads] if isinstance(threads, list) else []
            for one in told:
                self.places.learn_place({**one, "guild_id": guild})
            oldest = word(at(told[-1], "thread_metadata", "archive_timestamp")) if told else None
            since = time_in(oldest)
            if found.get("has_more") is not True or since is None or since.timestamp() < seconds_of(begin):
                return
            before = f"&before={since:%Y-%m-%dT%H:%M:%SZ}"

    async def _missed_in(self, channel: str, begin: int) -> AsyncGenerator[tuple[DiscordEvent, ...], None]:
        """The messages of a channel, oldest first; if Discord fails to give them, they are owed."""
        while True:
            try:
                found = await self._ask(f"/channels/{channel}/messages?after={begin}&limit={_PAGE}")
            except OSError as error:
                self._note_unread(channel, begin, error)
                yield ()
                return
            page = [child(one) for one in reversed(found)] if isinstance(found, list) else []
            events = list[DiscordEvent]()
            for one in page:
                # An edit is not known to be one where its message may never have been read.
                events += await self._read("MESSAGE_CREATE", {**one, "edited_timestamp": None})
            if events:
                yield tuple(events)
            self._read_before |= {snowflake: None for one in page if (snowflake := integer(one.get("id")))}
            while len(self._read_before) > _MOST_READ:
                del self._read_before[next(iter(self._read_before))]
            newest = max((int(integer(one.get("id")) or 0) for one in page), default=0)
            if len(page) < _PAGE or newest <= begin:
                self._settle_owed(channel=channel)
                return
            begin = newest
