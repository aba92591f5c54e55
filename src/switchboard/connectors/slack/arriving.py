"""What arrives: events are kept, acknowledged and read, and what was missed is fetched. Called by `channel.py`.

Slack forgets what was not acknowledged after six minutes, so the history is asked when a session begins, and when a
socket may have brought nothing. What an event does not say itself is looked up before it is read. Next: `events.py`.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from itertools import takewhile
from typing import Final

import structlog
from msgspec.structs import replace

from switchboard.connectors.kernel.posted import batches_while
from switchboard.connectors.slack.api import SlackApi, SlackRefusal
from switchboard.connectors.slack.events import (
    Lookup,
    SlackBot,
    SlackContext,
    is_addressed,
    kind_of,
    payload_of,
    read_event,
    root_passage,
    time_of,
)
from switchboard.connectors.slack.files import unknown_files
from switchboard.connectors.slack.missed import AGAIN_S, ChatHistory, MissedMessages, SlackChat, find_message
from switchboard.connectors.slack.names import NameBook
from switchboard.connectors.slack.refusals import error_of
from switchboard.connectors.slack.scopes import SCOPES, missing_in_words
from switchboard.connectors.slack.settings import SlackAccountSettings
from switchboard.connectors.slack.socket_mode import SocketMode
from switchboard.connectors.slack.texts import channels_in, source_of, users_in
from switchboard.connectors.slack.threads import DAY_S, SlackPlace, SlackThread, ThreadKey
from switchboard.core.channels.slack import author_of, event_of, message_of, place_of, thread_of
from switchboard.domain.envelope import Passage
from switchboard.domain.json_values import JsonMapping, JsonObject
from switchboard.ports.connector import Batch, Inbound, PostedEvents, SignInRefused, Unreadable
from switchboard.ports.raw import Raw, at, child, word
from switchboard.tasks import cancel_tasks

log = structlog.get_logger(__name__)

_POSTED_S: Final = 20.0
"""Seconds for which the server is asked for what it keeps."""
_MEANWHILE_S: Final = 2.0
"""Seconds between two looks at what is said while Slack makes us wait."""
_AT_ONCE: Final = 200
"""Messages of a conversation that are given in one batch."""
_SECRETS: Final = ("token", "response_url", "trigger_id")
"""Fields of events by which one could pass for Slack, or for the app; nobody needs them."""
_OTHER_APP: Final = "the app_token is that of another app than the bot_token: copy both from the same app"


class SlackArrivals:
    """What arrives at one app."""

    def __init__(self, api: SlackApi, settings: SlackAccountSettings, me: SlackBot, names: NameBook) -> None:
        self._api, self._settings, self._me, self._names = api, settings, me, names
        self._missed = MissedMessages(api, me, names)
        self._place = SlackPlace()
        self._roots: Mapping[ThreadKey, Raw] = {}
        """Of the conversation that was fetched last, the messages with which threads began."""
        self._heard = 0.0
        """When the latest event happened; it counts once everything from before it was fetched."""
        self._posted: PostedEvents | None = None
        self._gap = True
        """Something may have been missed."""
        self._limited = False
        """Slack does not give us all events."""

    def receive(self, cursor: str | None, posted: PostedEvents) -> AsyncIterator[Batch]:
        """What was missed, and what is pushed."""
        self._posted, self._place, self._gap = posted, SlackPlace.read(cursor), True

        async def take(payload: JsonObject) -> None:
            await self._keep(payload, posted)

        socket = SocketMode(self._api, take, self._note_gap)
        return batches_while(socket.run, self._all_batches(posted))

    async def _keep(self, payload: JsonObject, posted: PostedEvents) -> None:
        if payload.get("type") == "app_rate_limited":
            self._limited = True
            return
        receiver = child(at(payload, "authorizations", 0))
        if word(receiver.get("team_id")) not in (None, self._me.team):
            log.info("an event of another workspace is left out", team=receiver.get("team_id"))
            return
        if receiver.get("is_bot") is True and receiver.get("user_id") != self._me.user:
            raise SignInRefused(_OTHER_APP)
        raw = json.dumps({name: one for name, one in payload.items() if name not in _SECRETS}).encode()
        await posted.keep(raw, word(payload.get("event_id")) or hashlib.sha256(raw).hexdigest())

    def _note_gap(self) -> None:
        self._gap = True

    async def _all_batches(self, posted: PostedEvents) -> AsyncGenerator[Batch, None]:
        while True:
            if self._gap:
                self._gap = False
                async for batch in self._catch_up(posted):
                    yield batch
            kept = await posted.posted(self._place.posted, _POSTED_S)
            if self._gap:  # what was missed comes before what is said over the next socket
                continue
            async for batch in self._read_batches(kept):
                self._place.note_time(self._heard)
                yield replace(batch, cursor=str(self._place) if kept else None)

    async def _read_batches(self, kept: Sequence[tuple[int, bytes]]) -> AsyncGenerator[Batch, None]:
        """At least one batch, without its cursor. What is slow to look up holds up nothing before it."""
        events, began = list[Inbound | Unreadable](), time.monotonic()
        for number, raw in kept:
            events.append(await self.read(raw))
            self._place.posted = max(number, self._place.posted)
            if len(events) == _AT_ONCE or time.monotonic() - began > _MEANWHILE_S:
                yield Batch(tuple(events), trouble=self._tell_trouble())
                events, began = [], time.monotonic()
        yield Batch(tuple(events), trouble=self._tell_trouble())

    def _tell_trouble(self) -> str | None:
        if self._limited:
            self._limited = False
            return "Slack gives the app at most 30,000 events an hour, and there were more"
        return missing_in_words(self._api.scopes, SCOPES)

    async def _catch_up(self, posted: PostedEvents) -> AsyncGenerator[Batch, None]:
        """What was said since the last event. Conversations in which something is said meanwhile come first.

        What is said meanwhile in those that were fetched waits for no others.
        """
        now = time.time()
        self._place.mend_time(now + DAY_S)
        since = max((self._place.heard or 0.0) - AGAIN_S, now - 3600 * self._settings.catch_up_h)
        left = {one.id: one for one in await self._find_chats()}
        chat, fetching = "", None
        try:
            while left:
                kept = await posted.posted(self._place.posted, 0.0)
                ready = list(takewhile(lambda one: _place_in(one[1]) not in left, kept))
                async for batch in self._read_batches(ready):
                    yield replace(batch, cursor=str(self._place) if ready else None)
                if fetching is None:
                    urgent = _place_in(kept[len(ready)][1]) if kept[len(ready) :] else None
                    chat = urgent or next(iter(left))
                    fetching = asyncio.create_task(self._fetch_missed(left[chat], since))
                await asyncio.wait((fetching,), timeout=_MEANWHILE_S)
                if fetching.done():
                    found = fetching.result()
                    self._roots = found.roots
                    async for batch in self._read_batches([(0, raw) for raw in found.events]):
                        yield batch
                    self._roots = {}
                    del left[chat]
                    fetching = None
        finally:
            if fetching is not None:
                await cancel_tasks(fetching)
        if not self._gap:  # else it begins again where it began now
            self._place.note_time(max(now, self._heard))
        yield Batch((), str(self._place))

    async def _fetch_missed(self, chat: SlackChat, since: float) -> ChatHistory:
        threads = list(self._place.latest_threads(chat.id, time.time()))
        return await self._missed.messages(chat, since, threads)

    async def _find_chats(self) -> list[SlackChat]:
        try:
            return await self._missed.chats()
        except SlackRefusal as error:
            raise error_of(error) from None

    async def read(self, raw: bytes) -> Inbound | Unreadable:
        """An event that was kept, fetched, or in quarantine; raises nothing."""
        payload = payload_of(raw)
        if isinstance(payload, dict) and "team_id" in payload:
            # In channels that are shared it may be that of others, and the history does not say which.
            payload["team_id"] = self._me.team
        known = await self._look_up(payload) if isinstance(payload, dict) else Lookup()
        return read_event(payload, raw, SlackContext(self._me, self._settings, datetime.now(UTC), known))

    async def _look_up(self, payload: JsonObject) -> Lookup:
        """What an event does not say itself."""
        event = event_of(payload)
        if kind_of(event) is None:
            return Lookup()
        message, author = message_of(event), author_of(event)
        if (when := time_of(event.get("event_ts"))) is not None:
            self._heard = max(self._heard, when.timestamp())
        thread = self._note_thread(event)
        follows = thread is not None and thread.ours and self._settings.follow_threads
        source = source_of(message)
        files = await self._find_files(message) if is_addressed(event, self._me, follows=follows) else {}
        root = await self._find_root(event, thread, follows=follows) if thread is not None else None
        people = (author, *users_in(source)) if author and author[0] in "UW" else users_in(source)
        names = await self._names.find(filter(None, people), channels_in(source))
        return Lookup(names, files, follows, root)

    def _note_thread(self, event: Raw) -> SlackThread | None:
        """The thread of a message, which is noted. One that is said to us at the top of a channel begins its own."""
        place, message = place_of(event), message_of(event)
        when, ts, began = time_of(message.get("ts")), word(message.get("ts")), thread_of(event)
        if place is None or when is None or ts is None or kind_of(event) != "message":
            return None
        own = message.get("bot_id") == self._me.bot
        if began is not None:
            ours = own or message.get("parent_user_id") == self._me.user
            return self._place.note_thread((place, began), when.timestamp(), ours=ours)
        if is_addressed(event, self._me) and event.get("channel_type") != "im":
            self._place.note_thread((place, ts), when.timestamp()).told = ts
        return None

    async def _find_root(self, event: Raw, thread: SlackThread, *, follows: bool) -> Passage | None:
        """The message with which a thread began, for the first one in it that is said to us."""
        place, began, ts = place_of(event), thread_of(event), word(message_of(event).get("ts")) or ""
        own = message_of(event).get("bot_id") == self._me.bot
        if own or thread.told not in ("", ts) or not is_addressed(event, self._me, follows=follows):
            return None
        try:
            known = self._roots.get((place or "", began or ""))
            root = known or await find_message(self._api.read_now, place or "", began or "")
        except OSError:
            return None
        thread.told = ts
        names = await self._names.find([*users_in(source_of(root)), *filter(None, (author_of(root),))], ())
        return root_passage(root, names, self._me)

    async def _find_files(self, message: Raw) -> Mapping[str, Raw]:
        """What the event does not say of its files; what Slack does not say now is looked up when they are fetched."""
        found = dict[str, Raw]()
        for file_id in unknown_files(message):
            with suppress(SlackRefusal, OSError):
                found[file_id] = child(await self._api.read_now("files.info", {"file": file_id}), "file")
        return found

    async def confirm(self, cursor: str) -> None:
        """What is settled is kept no longer."""
        if self._posted is not None:
            await self._posted.settle_posted(SlackPlace.read(cursor).posted)

    def note_sent(self, address: JsonMapping) -> None:
        """We have written to this address: what people say in that thread from now on is said to us."""
        channel, thread = word(address.get("channel")), word(address.get("thread"))
        if channel and thread:
            self._place.note_thread((channel, thread), time.time(), ours=True)


def _place_in(raw: bytes) -> str | None:
    payload = payload_of(raw)
    return None if isinstance(payload, str) else place_of(event_of(payload))
