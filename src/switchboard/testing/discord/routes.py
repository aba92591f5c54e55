"""The routes of the REST API: their effects on the world, and their errors.

Called by `server.py` with a request. Out: the body of the answer, None for an empty one, or RestError.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from msgspec import Struct, field

from switchboard.domain.json_values import JsonMapping, JsonObject
from switchboard.testing.discord.checks import check_mentions, check_message, pings_of
from switchboard.testing.discord.errors import (
    ARCHIVED_THREAD,
    INTERACTION_HEARD,
    INVALID_PRESS,
    MISSING_ACCESS,
    MISSING_PERMISSIONS,
    THREAD_EXISTS,
    UNKNOWN_GUILD,
    UNKNOWN_INTERACTION,
    FormError,
    RestError,
)
from switchboard.testing.discord.gateway import IDENTIFIES, Sessions
from switchboard.testing.discord.limits import AccountLimit
from switchboard.testing.discord.people import People
from switchboard.testing.discord.world import (
    ANN,
    BOT,
    Channel,
    DiscordWorld,
    about_channel,
    about_guild,
    channels_of,
    threads_of,
)
from switchboard.testing.platform_server import Upload

NONCE_S: Final = 120.0
"""For how long a nonce is remembered. Discord says: a few minutes."""
HEARING_S: Final = 3.0
"""Within which a press must be said to have been heard of."""
ANSWERING_S: Final = 900.0
"""For how long it can be answered then."""
_LATER: Final = 6
_MAX_PAGE: Final = 100
_LIMITED_CONTENT: Final = 1 << 19
_Answer = JsonObject | list[JsonObject] | None


class RestRequest(Struct, frozen=True):
    """One request: the values in its path, its query, its body and the files that came with it."""

    path: Mapping[str, str]
    query: Mapping[str, str]
    body: JsonMapping
    files: tuple[Upload, ...] = field(default=())


class RestRoute(Struct, frozen=True):
    """A verb and a path, and what it does; `name` is both, as calls and faults name it."""

    name: str
    run: Callable[[RestRequest], _Answer]


class Routes:
    """All routes. `reads_content`: whether the intent to read contents was switched on for the bot."""

    def __init__(
        self, world: DiscordWorld, people: People, sessions: Sessions, reads_content: Callable[[], bool]
    ) -> None:
        self._world, self._people, self._sessions, self._reads_content = world, people, sessions, reads_content
        self.pings: list[str] = []
        """Whom the messages of the bot have notified, by creating and by editing."""
        self.typing: list[str] = []
        """The channels in which the bot was shown to type, in order."""
        self.account = AccountLimit(world.clock)
        self._nonces: dict[str, tuple[float, Channel, str]] = {}
        messages = "/channels/{channel}/messages"
        self.table: Sequence[RestRoute] = (
            RestRoute("GET /users/@me", lambda _: dict(BOT)),
            RestRoute("GET /applications/@me", lambda _: self.about_application()),
            RestRoute("GET /oauth2/applications/@me", lambda _: self.about_application()),
            RestRoute("GET /gateway/bot", self._tell_gateway),
            RestRoute("POST /users/@me/channels", self._open_direct_chat),
            RestRoute("GET /channels/{channel}", lambda request: about_channel(self._find_channel(request))),
            RestRoute(f"GET {messages}", self._read_messages),
            RestRoute(f"POST {messages}", self._post_message),
            RestRoute(f"GET {messages}/{{message}}", self._read_message),
            RestRoute(f"PATCH {messages}/{{message}}", self._edit_message),
            RestRoute(f"POST {messages}/{{message}}/threads", self._begin_thread),
            RestRoute("GET /channels/{channel}/threads/archived/public", self._list_archived),
            RestRoute("POST /channels/{channel}/typing", self._show_typing),
            RestRoute("GET /guilds/{guild}", lambda request: about_guild(world, self._find_guild(request))),
            RestRoute("GET /guilds/{guild}/channels", lambda request: channels_of(world, self._find_guild(request))),
            RestRoute("GET /guilds/{guild}/threads/active", self._list_active),
            RestRoute("POST /interactions/{press}/{token}/callback", self._hear_press),
            RestRoute("POST /webhooks/{application}/{token}", self._post_whisper),
        )

    def about_application(self) -> JsonObject:
        """The application of the bot; its flags say whether it may read contents."""
        about: JsonObject = {"id": BOT["id"], "name": "house", "icon": None, "description": "", "summary": ""}
        about |= {"bot_public": True, "bot_require_code_grant": False, "verify_key": "0" * 64, "owner": ANN}
        return about | {"team": None, "flags": _LIMITED_CONTENT if self._reads_content() else 0}

    def _tell_gateway(self, _: RestRequest) -> JsonObject:
        limit: JsonObject = {"total": IDENTIFIES, "remaining": self._sessions.left, "max_concurrency": 1}
        limit["reset_after"] = int(self._sessions.reset_after * 1000)
        return {
            "url": f"{self._world.url().replace('http', 'ws', 1)}/gateway",
            "shards": 1,
            "session_start_limit": limit,
        }

    def _open_direct_chat(self, request: RestRequest) -> JsonObject:
        user = self._world.users.get(str(request.body.get("recipient_id")))
        if user is None or user["bot"]:
            raise FormError(recipient_id="Unknown user.")
        return about_channel(self._world.direct_chat(user))

    def _find_channel(self, request: RestRequest) -> Channel:
        found = self._world.find(request.path["channel"])
        if found.is_hidden:
            raise MISSING_ACCESS
        return found

    def _read_messages(self, request: RestRequest) -> list[JsonObject]:
        """Newest first; with `after`, those next to it."""
        channel = self._find_channel(request)
        limit = _as_number(request.query, "limit", 50)
        if not 1 <= limit <= _MAX_PAGE:
            raise FormError(limit="int value should be between 1 and 100.")
        after, before = (_as_number(request.query, name, -1) for name in ("after", "before"))
        found = [
            one
            for one in channel.messages.values()
            if int(one["id"]) > after and (before < 0 or int(one["id"]) < before)
        ]
        page = found[:limit] if after >= 0 and before < 0 else found[-limit:]
        return [self._shown_message(one) for one in reversed(page)]

    def _shown_message(self, message: JsonMapping) -> JsonObject:
        shown = self._world.show_message(message, reads_content=self._reads_content())
        return {key: value for key, value in shown.items() if key != "nonce"}

    def _read_message(self, request: RestRequest) -> JsonObject:
        channel = self._find_channel(request)
        return self._shown_message(self._world.find_message(channel, request.path["message"]))

    def _post_message(self, request: RestRequest) -> JsonObject:
        channel, body = self._find_channel(request), request.body
        self.account.check()
        if channel.posting is not None:
            raise channel.posting
        check_message(body, request.files)
        if (known := self._message_of_nonce(body)) is not None:
            return known
        content = self._content_of(channel, request)
        answered = content.get("referenced_message")
        self.pings += pings_of(body, answered["author"]["id"] if answered else None)
        channel.archived_at = None
        message = self._world.post(channel, BOT, content)
        if body.get("enforce_nonce") and body.get("nonce"):
            self._nonces[str(body["nonce"])] = (self._world.clock() + NONCE_S, channel, message["id"])
        self._people.tell_message(channel, message)
        return self._world.show_message(message, reads_content=True)

    def _message_of_nonce(self, body: JsonMapping) -> JsonObject | None:
        """The message that was made with the nonce, in whatever channel: nonces are the author's."""
        until, channel, message_id = self._nonces.get(str(body.get("nonce")), (0.0, None, ""))
        if not body.get("enforce_nonce") or channel is None or until < self._world.clock():
            return None
        return self._world.show_message(self._world.find_message(channel, message_id), reads_content=True)

    def _content_of(self, channel: Channel, request: RestRequest) -> JsonObject:
        body = request.body
        kept = {key: body[key] for key in ("content", "embeds", "components", "flags", "nonce") if key in body}
        files = [self._world.add_file(channel, one.filename, one.media_type, one.data) for one in request.files]
        return {**kept, "content": body.get("content") or "", "attachments": files, **self._reference_of(channel, body)}

    def _reference_of(self, channel: Channel, body: JsonMapping) -> JsonObject:
        reference = body.get("message_reference")
        if not reference:
            return {}
        found = channel.messages.get(str(reference.get("message_id")))
        if found is None and reference.get("fail_if_not_exists", True):
            raise FormError(message_reference="Unknown message")
        if found is None:
            return {}
        return {"message_reference": {"message_id": found["id"], "channel_id": channel.id}, "referenced_message": found}

    def _edit_message(self, request: RestRequest) -> JsonObject:
        channel, body = self._find_channel(request), request.body
        before = self._world.find_message(channel, request.path["message"])
        if before["author"]["id"] != BOT["id"]:
            raise RestError(403, 50005, "Cannot edit a message authored by another user")
        content = body.get("content", before["content"])
        check_message({"content": content or "", "embeds": before["attachments"]}, ())
        check_mentions(body.get("allowed_mentions"))
        self.pings += pings_of({**body, "content": content}, None)
        changes = {"content": content, "edited_timestamp": self._world.now(), **self._world.mentions_in(content)}
        changes |= {"components": body["components"]} if "components" in body else {}
        after = channel.messages[before["id"]] = {**before, **changes}
        self._people.tell_change(channel, after)
        return self._shown_message(after)

    def _begin_thread(self, request: RestRequest) -> JsonObject:
        channel, name = self._find_channel(request), str(request.body.get("name") or "")
        message = self._world.find_message(channel, request.path["message"])
        if message["id"] in self._world.channels:
            raise THREAD_EXISTS
        if not 1 <= len(name) <= 100:
            raise FormError(name="Must be between 1 and 100 in length.")
        if channel.guild is None:
            raise MISSING_PERMISSIONS
        made = self._world.add_thread(channel, name, BOT, message)
        message |= {"flags": message["flags"] | 1 << 5, "thread": about_channel(made)}
        self._people.tell_thread(made)
        return about_channel(made)

    def _list_archived(self, request: RestRequest) -> JsonObject:
        parent = self._find_channel(request)
        found = [one for one in self._world.channels.values() if one.parent == parent.id and one.archived_at]
        found.sort(key=lambda one: one.archived_at or "", reverse=True)
        return {"threads": [about_channel(one) for one in found], "members": [], "has_more": False}

    def _find_guild(self, request: RestRequest) -> str:
        if request.path["guild"] not in self._world.guilds:
            raise UNKNOWN_GUILD
        return request.path["guild"]

    def _list_active(self, request: RestRequest) -> JsonObject:
        return {"threads": threads_of(self._world, self._find_guild(request)), "members": []}

    def _hear_press(self, request: RestRequest) -> JsonObject | None:
        """Of the callbacks only the one that changes nothing for now is known here."""
        press = self._world.presses.get(request.path["token"])
        if press is None or press.id != request.path["press"] or self._world.clock() > press.at + HEARING_S:
            raise UNKNOWN_INTERACTION
        if press.heard:
            raise INTERACTION_HEARD
        if request.body.get("type") != _LATER:
            raise FormError(type="Value must be one of {6}.")
        press.heard = True
        wanted = request.query.get("with_response") in ("true", "1")
        return {"interaction": {"id": press.id, "type": 3}} if wanted else None

    def _post_whisper(self, request: RestRequest) -> JsonObject:
        press = self._world.presses.get(request.path["token"])
        if press is None or not press.heard or self._world.clock() > press.at + ANSWERING_S:
            raise INVALID_PRESS
        check_message(request.body, request.files)
        self.pings += pings_of(request.body, None)
        message = self._world.new_message(self._world.channels[press.channel], BOT, request.body)
        self._world.whispers.append(message)
        return message

    def _show_typing(self, request: RestRequest) -> None:
        channel = self._find_channel(request)
        if channel.archived_at is not None:
            raise ARCHIVED_THREAD
        self.typing.append(channel.id)


def _as_number(query: Mapping[str, str], name: str, default: int) -> int:
    value = query.get(name)
    if value is None:
        return default
    if not value.isdecimal():
        raise FormError(**{name: f'Value "{value}" is not snowflake.'})
    return int(value)
