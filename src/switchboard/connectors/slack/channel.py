"""An open app of Slack: receives by Socket Mode, sends by the Web API. Called by the kernel; `open_session` signs in.

Each event is kept by the server before it is acknowledged, and read afterwards. Slack forgets what was not acknowledged
after six minutes, so the history is asked when a session begins, and when a socket may have brought nothing. Next:
`events.py` for what arrives, `sending.py` for what leaves.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from itertools import takewhile
from typing import Final

from switchboard.connectors.kernel.posted import batches_while
from switchboard.connectors.slack.api import CallNotAnswered, CallNotWritten, SlackApi, SlackRefusal
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
from switchboard.connectors.slack.files import begin_uploads, fetch_file, shared_file, unknown_files
from switchboard.connectors.slack.missed import AGAIN_S, MissedMessages, SlackChat
from switchboard.connectors.slack.names import NameBook
from switchboard.connectors.slack.presses import updated_message, whisper_of
from switchboard.connectors.slack.refusals import is_thread_gone, outcome_of, words_of_sign_in
from switchboard.connectors.slack.scopes import BASIC_SCOPES, SCOPES
from switchboard.connectors.slack.sending import has_key, message_of_part, thread_of_part
from switchboard.connectors.slack.settings import SlackAccountSettings
from switchboard.connectors.slack.socket_mode import SocketMode, open_socket
from switchboard.connectors.slack.texts import channels_in, source_of, users_in
from switchboard.connectors.slack.threads import SlackPlace, SlackThread
from switchboard.core.channels.slack import author_of, event_of, message_of, place_of, thread_of
from switchboard.domain.envelope import Passage
from switchboard.domain.json_values import JsonMapping, JsonObject
from switchboard.ports.connector import (
    PRESS,
    Account,
    Batch,
    FileIn,
    Identity,
    Inbound,
    Outcome,
    Part,
    PostedEvents,
    Refused,
    Sent,
    Session,
    SignInRefused,
    Uncertain,
    Unreadable,
)
from switchboard.ports.raw import Raw, at, child, word
from switchboard.tasks import cancel_tasks

_POSTED_S: Final = 20.0
"""Seconds for which the server is asked for what it keeps."""
_MEANWHILE_S: Final = 2.0
"""Seconds between two looks at what is said while Slack makes us wait."""
_AT_ONCE: Final = 200
"""Messages of a conversation that are given in one batch."""
_LOOK_UP: Final = 200
_LOOK_UP_PAGES: Final = 5
_FIND_S: Final = 2 * 86_400.0
"""A part is not older when it is looked up."""
_OTHER_APP: Final = "the app_token is that of another app than the bot_token: copy both from the same app"
_THINKING: Final = "is thinking…"
_PREFIXES: Final = {"app_token": "xapp-", "bot_token": "xoxb-"}


async def open_session(account: Account) -> SlackSession:
    """Sign in. Raises SignInRefused, OSError."""
    logging.getLogger("httpx2").setLevel(logging.WARNING)
    settings = account.settings
    if not isinstance(settings, SlackAccountSettings):
        raise TypeError("these are not the settings of Slack")
    api = SlackApi(settings.api_url, *(_token_of(account, name) for name in _PREFIXES))
    try:
        about = await _sign_in(api)
        _require_scopes(api, BASIC_SCOPES)
        return SlackSession(api, settings, _bot_in(about), word(about.get("user")) or "")
    except BaseException:
        await api.close()
        raise


async def check_app(account: Account) -> None:
    """Check both tokens and all scopes. Raises SignInRefused, OSError."""
    session = await open_session(account)
    try:
        await session.check()
    finally:
        await session.close()


def _token_of(account: Account, name: str) -> str:
    token = account.secrets[name].strip()
    if not token.startswith(_PREFIXES[name]) or not token.isascii() or not token.isprintable():
        raise SignInRefused(f"the {name} begins with {_PREFIXES[name]}: perhaps the two tokens are swapped")
    return token


async def _sign_in(api: SlackApi) -> JsonObject:
    try:
        return await api.call("auth.test")
    except SlackRefusal as error:
        if (why := words_of_sign_in(error, "bot_token")) is not None:
            raise SignInRefused(why) from None
        if error.retry_after is not None:
            await asyncio.sleep(error.retry_after)
        raise OSError(str(error)) from None


def _bot_in(about: Raw) -> SlackBot:
    team, user, bot = (word(about.get(name)) for name in ("team_id", "user_id", "bot_id"))
    if not (team and user and bot):
        raise SignInRefused("the bot_token is not that of a bot: copy the Bot User OAuth Token")
    return SlackBot(team, user, bot)


def _require_scopes(api: SlackApi, needed: Sequence[str]) -> None:
    if missing := _missing_scopes(api, needed):
        raise SignInRefused(_describe_missing(missing))


def _missing_scopes(api: SlackApi, needed: Sequence[str]) -> list[str]:
    """The scopes that the app lacks; none if Slack does not say which it has."""
    return [one for one in needed if one not in api.scopes] if api.scopes else []


def _describe_missing(scopes: Sequence[str]) -> str:
    return f"the app lacks {', '.join(scopes)}: add them under OAuth & Permissions, and reinstall the app"


class SlackSession(Session):
    """One app, signed in."""

    def __init__(self, api: SlackApi, settings: SlackAccountSettings, me: SlackBot, name: str) -> None:
        self.identity = Identity(me.endpoint, f"@{name}" if name else "")
        self._api, self._settings, self._me = api, settings, me
        self._names = NameBook(api)
        self._names.note(me.user, name or me.user)
        self._missed = MissedMessages(api, me, self._names)
        self._place = SlackPlace()
        self._heard = 0.0
        """When the latest event happened; it counts once everything from before it was fetched."""
        self._posted: PostedEvents | None = None
        self._gap = True
        """Something may have been missed."""
        self._limited = False
        """Slack does not give us all events."""

    async def check(self) -> None:
        """Check the other token, and the scopes that are not indispensable. Raises SignInRefused, OSError."""
        await open_socket(self._api)
        _require_scopes(self._api, SCOPES)

    # Receiving --------------------------------------------------------------------------------------------------------

    def receive(self, cursor: str | None) -> AsyncIterator[Batch]:
        """What Slack pushes must be kept first."""
        raise TypeError(f"without a server that keeps events, none can be received after {cursor}")

    def receive_posted(self, cursor: str | None, posted: PostedEvents) -> AsyncIterator[Batch]:
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
        if receiver.get("is_bot") is True and receiver.get("user_id") != self._me.user:
            raise SignInRefused(_OTHER_APP)
        raw = json.dumps(payload).encode()
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
            events = await self._kept_events(kept)
            self._place.note_time(self._heard)
            yield Batch(events, str(self._place) if kept else None, self._tell_trouble())

    async def _kept_events(self, kept: Sequence[tuple[int, bytes]]) -> tuple[Inbound | Unreadable, ...]:
        events = [await self._read(raw) for _, raw in kept]
        self._place.posted = kept[-1][0] if kept else self._place.posted
        return tuple(events)

    def _tell_trouble(self) -> str | None:
        if self._limited:
            self._limited = False
            return "Slack gives the app at most 30,000 events an hour, and there were more"
        missing = _missing_scopes(self._api, SCOPES)
        return _describe_missing(missing) if missing else None

    async def _catch_up(self, posted: PostedEvents) -> AsyncGenerator[Batch, None]:
        """What was said since the last event. Conversations in which something is said meanwhile come first.

        What is said meanwhile in those that were fetched waits for no others.
        """
        now = time.time()
        since = max((self._place.heard or 0.0) - AGAIN_S, now - self._settings.catch_up_s)
        left = {one.id: one for one in await self._find_chats()}
        chat, fetching = "", None
        try:
            while left:
                kept = await posted.posted(self._place.posted, 0.0)
                ready = list(takewhile(lambda one: _place_in(one[1]) not in left, kept))
                yield Batch(await self._kept_events(ready), str(self._place) if ready else None, self._tell_trouble())
                if fetching is None:
                    urgent = _place_in(kept[len(ready)][1]) if kept[len(ready) :] else None
                    chat = urgent or next(iter(left))
                    fetching = asyncio.create_task(self._fetch_missed(left[chat], since))
                await asyncio.wait((fetching,), timeout=_MEANWHILE_S)
                if fetching.done():
                    async for batch in self._missed_batches(fetching.result()):
                        yield batch
                    del left[chat]
                    fetching = None
        finally:
            if fetching is not None:
                await cancel_tasks(fetching)
        self._place.note_time(max(now, self._heard))
        yield Batch((), str(self._place))

    async def _missed_batches(self, found: Sequence[bytes]) -> AsyncGenerator[Batch, None]:
        for start in range(0, len(found), _AT_ONCE):
            events = [await self._read(raw) for raw in found[start : start + _AT_ONCE]]
            yield Batch(tuple(events), trouble=self._tell_trouble())

    async def _fetch_missed(self, chat: SlackChat, since: float) -> list[bytes]:
        threads = list(self._place.latest_threads(chat.id, time.time()))
        return await self._missed.messages(chat, since, threads)

    async def _find_chats(self) -> list[SlackChat]:
        try:
            return await self._missed.chats()
        except SlackRefusal as error:
            raise OSError(f"Slack does not say where the app is: {error}") from None

    async def read(self, raw: bytes) -> Inbound | Unreadable:
        """An event from quarantine."""
        return await self._read(raw)

    async def _read(self, raw: bytes) -> Inbound | Unreadable:
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
        source, files = source_of(message), {one: await self._whole_file(one) for one in unknown_files(message)}
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
            root = await self._missed.message(place or "", began or "")
        except OSError:
            return None
        thread.told = ts
        names = await self._names.find([*users_in(source_of(root)), *filter(None, (author_of(root),))], ())
        return root_passage(root, names, self._me)

    async def _whole_file(self, file_id: str) -> Raw:
        with suppress(SlackRefusal, OSError):
            return child(await self._api.read("files.info", {"file": file_id}), "file")
        return {}

    async def confirm(self, cursor: str) -> None:
        """What is settled is kept no longer."""
        if self._posted is not None:
            await self._posted.settle_posted(SlackPlace.read(cursor).posted)

    async def latest(self) -> str | None:
        """Now."""
        return str(SlackPlace(heard=time.time() + AGAIN_S))

    # Sending ----------------------------------------------------------------------------------------------------------

    async def send(self, part: Part, key: str) -> Outcome:
        """Send a text, or files; leaves a thread whose first message is gone. A press is answered where it happened."""
        if not word(part.address.get("channel")):
            return Refused("the message that is answered names no channel")
        try:
            answered = await self._answer_press(part) if PRESS in part.address else None
            return answered or await self._send(part, key)
        except (SlackRefusal, CallNotWritten, CallNotAnswered) as error:
            return outcome_of(error)

    async def _send(self, part: Part, key: str) -> Outcome:
        try:
            return await self._send_message(part, key, in_thread=True)
        except SlackRefusal as error:
            if not is_thread_gone(error) or part.reply_to is not None:
                raise
        return await self._send_message(part, key, in_thread=False)

    async def _send_message(self, part: Part, key: str, *, in_thread: bool) -> Outcome:
        if part.files:
            return await self._send_files(part, in_thread=in_thread)
        answer = await self._api.call("chat.postMessage", message_of_part(part, key, in_thread=in_thread))
        self._note_sent(part)
        ts = word(answer.get("ts"))
        return Sent(ts) if ts else Uncertain("Slack names no message")

    async def _answer_press(self, part: Part) -> Outcome | None:
        """Tell whoever pressed a button, and give its message other buttons. None: it must be said in a message."""
        try:
            told = await self._try_call("chat.postEphemeral", whisper_of(part)) if part.text else False
            shown = part.choices is not None and await self._show_buttons(part)
        except CallNotAnswered as error:  # all of it can be done again
            raise CallNotWritten(str(error)) from error
        return Sent(str(part.address.get("message"))) if told or shown else None

    async def _show_buttons(self, part: Part) -> bool:
        channel, ts = word(part.address.get("channel")) or "", word(part.address.get("message")) or ""
        message = await self._missed.message(channel, ts, word(part.address.get("thread")))
        return bool(message) and await self._try_call("chat.update", updated_message(message, part))

    async def _try_call(self, method: str, arguments: JsonMapping) -> bool:
        """False if Slack will not do it. Raises SlackRefusal if it may do so later, CallNotWritten, CallNotAnswered."""
        try:
            await self._api.call(method, arguments)
        except SlackRefusal as error:
            if isinstance(outcome_of(error), Refused):
                return False
            raise
        return True

    async def _send_files(self, part: Part, *, in_thread: bool) -> Outcome:
        if not all(file.size_bytes for file in part.files):
            return Refused("Slack takes no empty files")
        begun = await begin_uploads(self._api, part.files)
        if not isinstance(begun, list):
            return begun
        where: JsonMapping = {"channel_id": part.address["channel"], **thread_of_part(part, in_thread)}
        await self._api.call("files.completeUploadExternal", {"files": begun, **where})
        self._note_sent(part)
        return Sent(str(begun[0]["id"]))

    def _note_sent(self, part: Part) -> None:
        """What people say in this thread from now on is said to us."""
        channel, thread = word(part.address.get("channel")), word(part.address.get("thread"))
        if channel and thread:
            self._place.note_thread((channel, thread), time.time(), ours=True)

    async def find(self, part: Part, key: str) -> Sent | None:
        """A part of ours by its key; files by their names and sizes. Raises SlackRefusal, OSError."""
        channel, answered = word(part.address.get("channel")), time_of(part.address.get("message"))
        if channel is None:
            return None
        since = max(answered.timestamp() if answered else 0.0, time.time() - _FIND_S)
        if part.files:
            found = await shared_file(self._api, part.files, self._me.user, channel, int(since))
            return Sent(found) if found else None
        thread = word(part.address.get("thread"))
        method = "conversations.replies" if thread else "conversations.history"
        asked = {"channel": channel, "oldest": f"{since:.6f}", "limit": str(_LOOK_UP), "include_all_metadata": "true"}
        asked |= {"ts": thread} if thread else {}
        async for page in self._api.pages(method, asked, "messages", _LOOK_UP_PAGES):
            for one in map(child, page):
                if has_key(one, key, self._me.bot):
                    return Sent(str(one.get("ts")))
        return None

    async def typing(self, address: JsonObject) -> None:
        """Show in a thread that an answer is being written; failures do not matter."""
        channel, thread = word(address.get("channel")), word(address.get("thread"))
        if channel and thread:
            about = {"channel_id": channel, "thread_ts": thread, "status": _THINKING}
            with suppress(SlackRefusal, OSError):
                await self._api.call("assistant.threads.setStatus", about)

    def fetch(self, file: FileIn) -> AsyncIterator[bytes]:
        """The bytes of a file. Raises OSError; ValueError if Slack will never deliver it."""
        return fetch_file(self._api, file)

    async def close(self) -> None:
        """Close all connections."""
        await self._api.close()


def _place_in(raw: bytes) -> str | None:
    payload = payload_of(raw)
    return None if isinstance(payload, str) else place_of(event_of(payload))
