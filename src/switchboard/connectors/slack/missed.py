"""What was said while nobody listened, from the history. Called by `channel.py`.

Slack gives events again for six minutes only. Later, the history of each conversation is asked, and each thread that is
known, or that has new replies: the history does not have them. What was heard already comes again, and is recognised.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Final

import structlog
from msgspec import Struct, field

from switchboard.connectors.slack.api import SlackApi, SlackRefusal
from switchboard.connectors.slack.events import SlackBot, time_of
from switchboard.connectors.slack.names import NameBook, name_of
from switchboard.connectors.slack.refusals import error_of, is_passing
from switchboard.connectors.slack.threads import ThreadKey
from switchboard.domain.json_values import JsonMapping, JsonObject
from switchboard.ports.raw import Raw, at, child, word

log = structlog.get_logger(__name__)

AGAIN_S: Final = 420.0
"""For how long Slack gives an event again: for so long, one may come after others that happened later."""
_PAGE: Final = 200
_MOST_PAGES: Final = 50
_JOINED: Final = ("channel_join", "group_join")
_PLACES: Final = {"im": "im", "mpim": "mpim", "groups": "private_channel", "channels": "public_channel"}
"""By the beginning of the scopes for them, the types of conversations; direct chats come first."""
_TYPES: Final = (("is_im", "im"), ("is_mpim", "mpim"), ("is_private", "group"), ("is_channel", "channel"))


class SlackChat(Struct, frozen=True):
    """A conversation that the app is in; `type` is as in events."""

    id: str
    type: str


class ChatHistory(Struct, frozen=True):
    """What was missed in a conversation, oldest first, and the messages with which threads began."""

    events: Sequence[bytes] = ()
    roots: Mapping[ThreadKey, Raw] = field(default_factory=dict)


class MissedMessages:
    """Asks for what was missed in one workspace."""

    def __init__(self, api: SlackApi, me: SlackBot, names: NameBook) -> None:
        self._api, self._me, self._names = api, me, names
        self._told = False

    async def chats(self) -> list[SlackChat]:
        """The conversations that the app is in, direct chats first. Raises SlackRefusal, OSError."""
        found = list[SlackChat]()
        granted = self._api.scopes  # empty if Slack, or a proxy, does not say
        wanted = [kind for prefix, kind in _PLACES.items() if not granted or f"{prefix}:read" in granted]
        asked = {"types": ",".join(wanted), "exclude_archived": "true", "limit": str(_PAGE)}
        async for page in self._api.pages("users.conversations", asked, "channels", _MOST_PAGES):
            found += filter(None, map(self._chat_of, page))
        return sorted(found, key=lambda one: one.type != "im")

    def _chat_of(self, about: object) -> SlackChat | None:
        raw = child(about)
        chat, kind = word(raw.get("id")), next((kind for flag, kind in _TYPES if raw.get(flag)), None)
        if chat is not None and (name := name_of(raw)):
            self._names.note(chat, name)
        return SlackChat(chat, kind) if chat and kind else None

    async def messages(self, chat: SlackChat, since: float, threads: Sequence[str]) -> ChatHistory:
        """The messages of a conversation since a time, in the form of events; `threads` are asked, too.

        Raises OSError.
        """
        about: JsonMapping = {"channel": chat.id, "oldest": f"{since:.6f}", "limit": str(_PAGE)}
        try:
            found = {str(one.get("ts")): one async for one in self._read_pages("conversations.history", about)}
        except SlackRefusal as error:
            if is_passing(error):
                raise error_of(error) from None
            log.info("a conversation cannot be asked", chat=chat.id, why=str(error))
            return ChatHistory()
        begun = [
            ts for ts, one in found.items() if one.get("reply_count") and _is_after(one.get("latest_reply"), since)
        ]
        roots = found.copy()
        for thread in dict.fromkeys((*threads, *begun)):
            replies = await self._read_replies(thread, about)
            roots |= replies
            found |= {ts: one for ts, one in replies.items() if ts != thread}
        joined = max((_seconds_of(ts) for ts, one in found.items() if self._is_own_join(one)), default=0.0)
        known = sorted((ts for ts in found if _seconds_of(ts) >= joined), key=_seconds_of)
        events = [raw for ts in known for raw in self._as_events(found[ts], chat, since)]
        return ChatHistory(events, {(chat.id, ts): one for ts, one in roots.items() if one.get("reply_count")})

    def _is_own_join(self, message: Raw) -> bool:
        """Whether we were invited: what was said before was not said to us."""
        return message.get("subtype") in _JOINED and message.get("user") == self._me.user

    async def _read_replies(self, thread: str, about: JsonMapping) -> dict[str, Raw]:
        """The messages of a thread with its first. Where Slack refuses them, it says so once."""
        try:
            pages = self._read_pages("conversations.replies", {**about, "ts": thread})
            return {str(one.get("ts")): one async for one in pages}
        except SlackRefusal as error:
            if is_passing(error):
                raise error_of(error) from None
            if error.code not in ("thread_not_found", "message_not_found") and not self._told:
                self._told = True
                log.warning("replies in threads cannot be fetched after an outage of six minutes", why=str(error))
            return {}

    async def _read_pages(self, method: str, asked: JsonMapping) -> AsyncIterator[Raw]:
        async for page in self._api.pages(method, asked, "messages", _MOST_PAGES):
            for one in map(child, page):
                yield one

    def _as_events(self, message: Raw, chat: SlackChat, since: float) -> list[bytes]:
        """A message as the event that Slack sends of it; and its edit, if the message was perhaps heard before that."""
        content = {**message, "channel": chat.id, "channel_type": chat.type}
        found: list[JsonObject] = [{"type": "message", **content}]
        if time_of(at(message, "edited", "ts")) is not None and _seconds_of(message.get("ts")) <= since + AGAIN_S:
            edit = {"subtype": "message_changed", "message": dict(message), "previous_message": {}}
            found.append({"type": "message", **edit, "channel": chat.id, "channel_type": chat.type})
        return [json.dumps({"team_id": self._me.team, "event": one}).encode() for one in found]


async def find_message(
    read: Callable[[str, JsonMapping], Awaitable[JsonObject]], channel: str, ts: str, thread: str | None = None
) -> Raw:
    """A message, perhaps of a thread; empty if nobody can read it. Raises OSError."""
    asked = {"channel": channel, "latest": ts, "oldest": ts, "inclusive": "true", "limit": "1"}
    in_thread = thread is not None and thread != ts
    method, more = ("conversations.replies", {"ts": thread}) if in_thread else ("conversations.history", {})
    try:
        answer = await read(method, {**asked, **more})
    except SlackRefusal:
        return {}
    found = answer.get("messages")
    messages = map(child, found if isinstance(found, list) else ())
    return next((one for one in messages if one.get("ts") == ts), {})


def _seconds_of(ts: object) -> float:
    found = time_of(ts)
    return found.timestamp() if found else 0.0


def _is_after(ts: object, since: float) -> bool:
    return _seconds_of(ts) > since
