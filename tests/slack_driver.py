"""The other side of Slack for the checks of connectors: people in direct chats and channels of a strict workspace."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from switchboard.connectors.kernel.accounts import Configured
from switchboard.connectors.slack.manifest import MANIFEST as SLACK
from switchboard.connectors.slack.texts import escape_text, in_words
from switchboard.domain.json_values import JsonMapping, JsonObject
from switchboard.ports.connector import Account
from switchboard.testing.connectors import Received, Shown
from switchboard.testing.slack import APP_TOKEN, BOT, BOT_TOKEN, BOT_USER, Conversation, SlackError, SlackServer
from tests.drivers import ANSWERED, without_pauses

SECRETS: Final = {"app_token": APP_TOKEN, "bot_token": BOT_TOKEN}
AGAIN_AFTER_S: Final = (0.0, *(5.0 for _ in range(72)))
"""Slack's six minutes, in which events come again so often that nobody has to wait for one."""
_OPEN: Final = "apps.connections.open"
_ESCAPED: Final = re.compile(r"\\([^\w\s])")


@dataclass(slots=True)
class SlackDriver:
    """People who write to an app, each in a direct chat of their own, and in threads of channels."""

    slack: SlackServer
    last: dict[str, JsonObject] = field(default_factory=dict)
    threads: list[str] = field(default_factory=list)
    longest: int = 40_000
    window_s: float = 360.0
    places: dict[str, Conversation] = field(default_factory=dict)
    roots: dict[tuple[str, str], str] = field(default_factory=dict)
    """The names of threads, by their channel and first message."""

    @property
    def configured(self) -> Configured:
        settings = SLACK.settings.model_validate({"api_url": self.slack.api_url})
        return Configured(without_pauses(SLACK), Account("house", settings, SECRETS), ANSWERED)

    async def says(self, thread: str, text: str) -> None:
        user = self._person(thread)
        self.last[thread] = self.slack.people.say(escape_text(text), self.slack.people.direct_chat(user), user=user)

    async def brings(self, thread: str, text: str, data: bytes) -> None:
        user = self._person(thread)
        about = self.slack.workspace.add_file(user, "a.bin", "application/octet-stream", data).about
        content = {"user": user, "text": escape_text(text), "subtype": "file_share", "files": [about], "upload": True}
        self.slack.people.put(content, self.slack.people.direct_chat(user))

    def loses_files(self) -> None:
        self.slack.workspace.files.clear()

    async def edits(self, thread: str, text: str) -> None:
        self.slack.people.edit(self.last[thread], escape_text(text))

    async def deletes(self, thread: str) -> None:
        self.slack.people.delete(self.last[thread])

    async def own_says(self, thread: str, text: str) -> None:
        """Another program with the token of the app."""
        chat = self.slack.people.direct_chat(self._person(thread))
        self.slack.people.put({"user": BOT_USER, "bot_id": BOT, "text": text}, chat)

    async def bot_says(self, thread: str, text: str) -> None:
        chat = self.slack.people.direct_chat(self._person(thread))
        self.slack.people.put({"subtype": "bot_message", "bot_id": "B0OTHER", "text": text}, chat)

    async def buttons(self, thread: str) -> Sequence[str]:
        return [one["text"]["text"] for one in self._buttons(thread)[1]]

    async def presses(self, thread: str, label: str) -> None:
        message, buttons = self._buttons(thread)
        value = next(one["value"] for one in buttons if one["text"]["text"] == label)
        self.slack.people.press(message, value, user=self._person(thread))

    def _buttons(self, thread: str) -> tuple[JsonObject, list[JsonObject]]:
        message = next(one for one in reversed(self.slack.sent) if self._thread_of(one) == thread)
        return message, [one for block in message["blocks"] if block["type"] == "actions" for one in block["elements"]]

    async def calls(self, place: str, thread: str, text: str) -> None:
        """By a mention at the top of a channel, and then in its thread."""
        people = self.slack.people
        if place not in self.places:
            self.places[place] = people.channel(place, users=(self._person("somebody"),))
        channel = self.places[place]
        root = next((ts for (there, ts), name in self.roots.items() if (there, name) == (channel.id, thread)), "")
        said = people.say(f"<@{BOT_USER}> {text}", channel, user=self._person("somebody"), thread=root)
        self.roots.setdefault((channel.id, root or said["ts"]), thread)

    async def shown(self) -> Sequence[Shown]:
        return [Shown(self._thread_of(one), as_read(one)) for one in self.slack.sent]

    async def received(self) -> Sequence[Received]:
        return [Received(as_read(one), tuple(map(self._file, one.get("files", ())))) for one in self.slack.sent]

    def _file(self, about: JsonMapping) -> tuple[str, bytes]:
        return about["name"], self.slack.workspace.files[about["id"]].data

    def _thread_of(self, message: JsonMapping) -> str:
        """A message outside its thread is in none."""
        place = self.slack.workspace.conversations[message["channel"]]
        if place.kind != "im":
            return self.roots.get((place.id, message.get("thread_ts", "")), "")
        return next(name for name in self.threads if self._user_of(name) in place.members)

    def acknowledged(self) -> int:
        said = [one for one in self.slack.deliveries.acknowledged if not _is_own(one)]
        return len({one["event_id"] for one in said})

    def pushes_again(self) -> None:
        deliveries = self.slack.deliveries
        told = [*deliveries.acknowledged, *(one.payload for one in deliveries.waiting)]
        self.slack.put(next(one for one in reversed(told) if not _is_own(one)))

    def drops_socket(self) -> None:
        self.slack.cut_sockets()

    def goes_deaf(self) -> None:
        self.slack.deafen_sockets()

    def cuts(self, seconds: float) -> None:
        self.slack.refusals[_OPEN] = "internal_error"
        self.slack.cut_sockets()
        asyncio.get_running_loop().call_later(seconds, self.slack.refusals.pop, _OPEN)

    def puts_off(self, times: int, seconds: float) -> None:
        self.slack.spoil(
            "chat.postMessage", *(SlackError("ratelimited", retry_after=int(seconds)) for _ in range(times))
        )

    def given_keys(self) -> Sequence[str]:
        calls = self.slack.calls_of("chat.postMessage")
        return [str(call.arguments.tree("metadata")["event_payload"]["key"]) for call in calls]  # type: ignore[index]

    @asynccontextmanager
    async def away(self) -> AsyncIterator[None]:
        async with self.slack.closed():
            yield

    def asked(self) -> int:
        return len(self.slack.calls)

    def _person(self, thread: str) -> str:
        if thread not in self.threads:
            self.threads.append(thread)
            self.slack.people.person(self._user_of(thread), thread)
        return self._user_of(thread)

    def _user_of(self, thread: str) -> str:
        return f"U{1000 + self.threads.index(thread)}"


def as_read(message: JsonMapping) -> str:
    """What people read: Slack takes a backslash out of Markdown, and decodes the text of a plain message."""
    text = str(message["text"])
    marked = any(one["type"] == "markdown" for one in message.get("blocks", ()))
    return _ESCAPED.sub(r"\1", text) if marked else in_words(text, {}, BOT_USER)


def _is_own(payload: JsonMapping) -> bool:
    return bool(payload["event"].get("bot_id") == BOT)
