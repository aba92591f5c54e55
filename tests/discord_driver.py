"""The other side of Discord, for the checks of connectors."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from switchboard.connectors.discord.manifest import MANIFEST as DISCORD
from switchboard.connectors.kernel.accounts import Configured
from switchboard.domain.json_values import JsonObject
from switchboard.ports.connector import Account
from switchboard.testing.connectors import Received, Shown
from switchboard.testing.discord import BOT, GUILD, TOKEN, Channel, DiscordServer, too_many_requests
from switchboard.testing.discord.gateway import IDENTIFIES, RESUME_S
from tests.drivers import ANSWERED, without_pauses

POST: Final = "POST /channels/{channel}/messages"


@dataclass(slots=True)
class DiscordDriver:
    """People who write to a bot, each in a channel of their own: Discord lists no direct chats to a new session."""

    discord: DiscordServer
    channels: dict[str, Channel] = field(default_factory=dict)
    places: dict[str, Channel] = field(default_factory=dict)
    last: dict[str, JsonObject] = field(default_factory=dict)
    longest: int = 2000
    window_s: float = RESUME_S

    @property
    def configured(self) -> Configured:
        """Everything that is said there is answered, as in direct chats."""
        settings = DISCORD.settings.model_validate(
            {"api_url": self.discord.api_url, "gateway_url": self.discord.gateway_url}
        )
        handling = ANSWERED.model_copy(update={"groups": "all"})
        return Configured(without_pauses(DISCORD), Account("house", settings, {"token": TOKEN}), handling)

    async def says(self, thread: str, text: str) -> None:
        self.last[thread] = self.discord.people.say(text, self._channel(thread), user=self._person(thread))

    async def edits(self, thread: str, text: str) -> None:
        self.discord.people.edit(self.last[thread], text)

    async def deletes(self, thread: str) -> None:
        self.discord.people.delete(self.last[thread])

    async def own_says(self, thread: str, text: str) -> None:
        self.discord.people.say(text, self._channel(thread), user=BOT)

    async def bot_says(self, thread: str, text: str) -> None:
        self.discord.people.say(text, self._channel(thread), user=self._person(thread) | {"bot": True})

    async def brings(self, thread: str, text: str, data: bytes) -> None:
        file = "a.bin", "application/octet-stream"
        self.last[thread] = self.discord.people.attach(data, *file, self._channel(thread), content=text)

    def loses_files(self) -> None:
        self.discord.world.files.clear()

    async def calls(self, place: str, thread: str, text: str) -> None:
        """In a thread of a channel of a server, which is the place."""
        people = self.discord.people
        if place not in self.places:
            guild = people.guild(str(20 + len(self.places)), place)
            self.places[place] = people.channel(place, guild=guild)
        if thread not in self.channels:
            self.channels[thread] = people.thread(self.places[place], thread)
        people.say(f"<@{BOT['id']}> {text}", self.channels[thread], user=self._person("somebody"))

    async def shown(self) -> Sequence[Shown]:
        names = {channel.id: thread for thread, channel in self.channels.items()}
        return [Shown(names.get(one["channel_id"], ""), one["content"]) for one in self.discord.sent]

    async def received(self) -> Sequence[Received]:
        return [Received(one["content"], self._files(one)) for one in self.discord.sent]

    def _files(self, message: JsonObject) -> tuple[tuple[str, bytes], ...]:
        return tuple((str(one["filename"]), self.discord.world.files[one["id"]][1]) for one in message["attachments"])

    async def buttons(self, thread: str) -> Sequence[str]:
        return [one["label"] for one in self._buttons(thread)[1]]

    async def presses(self, thread: str, label: str) -> None:
        message, buttons = self._buttons(thread)
        value = next(one["custom_id"] for one in buttons if one["label"] == label)
        self.discord.people.press(message, value, user=self._person(thread))

    def _buttons(self, thread: str) -> tuple[JsonObject, list[JsonObject]]:
        where = self._channel(thread).id
        message = next(one for one in reversed(self.discord.sent) if one["channel_id"] == where)
        return message, [one for row in message["components"] for one in row["components"]]

    @asynccontextmanager
    async def away(self) -> AsyncIterator[None]:
        async with self.discord.closed():
            yield

    def goes_deaf(self) -> None:
        self.discord.deafen_links()

    def cuts(self, seconds: float) -> None:
        self.discord.refuse_links(seconds)

    def drops_socket(self) -> None:
        """With its session."""
        self.discord.sessions.clear()
        self.discord.cut_links()

    def leaves_sign_ins(self, left: int) -> None:
        self.discord.sessions.identified = [self.discord.clock()] * (IDENTIFIES - left)

    def overdrawn(self) -> bool:
        return self.discord.sessions.left <= 0

    async def starts_over(self) -> None:
        """No session can be resumed any more, so that its last messages are read again, as Discord shows them now."""
        self.discord.sessions.clear()

    def puts_off(self, times: int, seconds: float) -> None:
        self.discord.spoil(POST, *(too_many_requests(seconds) for _ in range(times)))

    def given_keys(self) -> Sequence[str]:
        return [str(call.request.body["nonce"]) for call in self.discord.calls_of(POST)]

    def limits_account(self, seconds: float) -> None:
        self.discord.limit_account(seconds)

    def hasty(self) -> int:
        return self.discord.hasty

    def asked(self) -> int:
        return len(self.discord.calls)

    def _channel(self, thread: str) -> Channel:
        if thread not in self.channels:
            self.channels[thread] = self.discord.people.channel(thread, guild=GUILD)
        return self.channels[thread]

    def _person(self, thread: str) -> JsonObject:
        user = str(1000 + sum(thread.encode()))
        return self.discord.world.users.get(user) or self.discord.people.person(user, thread)
