"""An open Discord bot: receives over the gateway, and sends by the REST API. Called by the kernel; `open_session` signs
in.

Discord gives again what came after an event that we name, so an event needs no answer, and the cursor names the last
one that is settled. Next: `arriving.py` for what arrives, `sending.py` for what leaves.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, suppress
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import urlsplit

from switchboard.connectors.discord.arriving import SKEW_S, Arrivals
from switchboard.connectors.discord.cursor import DiscordCursor, snowflake_at
from switchboard.connectors.discord.events import KINDS, TOKEN, DiscordReader
from switchboard.connectors.discord.files import url_of
from switchboard.connectors.discord.gateway import (
    CONTENT,
    GUILDS,
    MESSAGES,
    NO_CONTENT,
    REACTIONS,
    TOKEN_REFUSED,
    Gateway,
    GatewayPlace,
    GatewayWanted,
    about_gateway,
    ask_own,
)
from switchboard.connectors.discord.places import DiscordPlaces
from switchboard.connectors.discord.rest import DiscordError, RestClient, RouteUsedUp
from switchboard.connectors.discord.sending import (
    THREAD_EXISTS,
    is_same,
    message_of,
    new_buttons,
    nonce_of,
    outcome_of,
    press_is_over,
    sent_of,
    whisper_of,
)
from switchboard.connectors.discord.settings import DiscordAccountSettings
from switchboard.connectors.kernel.posted import batches_while
from switchboard.domain.json_values import JsonMapping, JsonObject
from switchboard.ports.connector import (
    PRESS,
    Account,
    Batch,
    FileIn,
    Identity,
    Inbound,
    Later,
    Outcome,
    Part,
    Refused,
    Sent,
    Session,
    SignInRefused,
    Unreadable,
)
from switchboard.ports.raw import child, first_word, integer, word

_TOKEN: Final = re.compile(r"[\w-]{1,100}\.[\w-]{1,100}\.[\w-]{1,200}", re.ASCII)
_READS_CONTENT: Final = 1 << 18 | 1 << 19
_PAGE: Final = 100
_MOST_PAGES: Final = 5
_MOST_BEGUN: Final = 10_000
_NO_SUCH_MESSAGE: Final = frozenset({10008, 50024})
"""The message was deleted, or is where no thread can begin."""
_EXPIRED: Final = frozenset({403, 404})
_SOON_S: Final = 2.0
_ARCHIVE_MIN: Final = 1440


async def open_session(account: Account) -> DiscordSession:
    """Sign in. Raises SignInRefused, OSError."""
    logging.getLogger("httpx2").setLevel(logging.WARNING)  # it logs URLs, which contain the tokens of presses
    settings, token = account.settings, account.secrets["token"].strip().removeprefix("Bot ")
    if not isinstance(settings, DiscordAccountSettings):
        raise TypeError("these are not the settings of Discord")
    if not _TOKEN.fullmatch(token):
        raise SignInRefused(TOKEN_REFUSED)
    rest = RestClient(settings.api_url, token)
    try:
        return await _sign_in(rest, settings, token)
    except BaseException:
        await rest.close()
        raise


async def _sign_in(rest: RestClient, settings: DiscordAccountSettings, token: str) -> DiscordSession:
    """Ask who the bot is, and whether it could open the gateway. Raises SignInRefused, OSError."""
    me, about = await ask_own(rest, "/users/@me"), await ask_own(rest, "/applications/@me")
    await about_gateway(rest)
    flags, bot = about.get("flags"), integer(me.get("id"))
    if settings.message_content and isinstance(flags, int) and not flags & _READS_CONTENT:
        raise SignInRefused(NO_CONTENT)
    if bot is None:
        raise OSError("Discord does not say who the bot is")
    name = first_word(me, ("global_name",), ("username",))
    return DiscordSession(rest, settings, token, Identity(f"bot:{bot}", f"@{name}" if name else ""), about)


class DiscordSession(Session):
    """One bot, signed in."""

    def __init__(
        self, rest: RestClient, settings: DiscordAccountSettings, token: str, identity: Identity, about: JsonObject
    ) -> None:
        self.identity = identity
        self._me = identity.endpoint.partition(":")[2]
        self._rest, self._settings, self._token = rest, settings, token
        self._application = integer(about.get("id")) or self._me
        self._reader = DiscordReader(settings, DiscordPlaces(self._me))
        self._nonces: dict[str, str] = {}
        self._begun: dict[str, None] = {}
        """Threads that we have begun."""

    def receive(self, cursor: str | None) -> AsyncIterator[Batch]:
        """Yield events as they arrive; after a gap that Discord does not bridge, what the history has of it."""
        return self._receive(DiscordCursor.read(cursor))

    async def _receive(self, cursor: DiscordCursor) -> AsyncGenerator[Batch, None]:
        arrivals = Arrivals(self._rest, self._reader, cursor, self._nonces)
        place = GatewayPlace(cursor.s, cursor.u, cursor.q) if cursor.s else None
        gateway = Gateway(self._rest, self._token, self._wanted_session(), place, arrivals.answer_press)
        try:
            async with aclosing(batches_while(gateway.run, arrivals.batches(gateway.received))) as batches:
                async for batch in batches:
                    yield batch
        finally:
            await arrivals.close()

    def _wanted_session(self) -> GatewayWanted:
        settings = self._settings
        intents = GUILDS | MESSAGES | REACTIONS | (CONTENT if settings.message_content else 0)
        hosts = frozenset(urlsplit(url).hostname for url in (settings.api_url, settings.gateway_url) if url)
        return GatewayWanted(intents, settings.gateway_url, hosts)

    async def read(self, raw: bytes) -> Inbound | Unreadable:
        """An event from quarantine."""
        try:
            frame = child(json.loads(raw))
        except (ValueError, RecursionError):
            frame = {}
        name = word(frame.get("t"))
        found = self._reader.read(name, frame.get("d"), datetime.now(UTC)) if name in KINDS else None
        mark = f"unreadable:{hashlib.sha256(raw).hexdigest()[:32]}"
        return found or Unreadable(mark, raw, "it is no event that is read")

    async def send(self, part: Part, key: str) -> Outcome:
        """Send a text, files, or both; a press is answered where it happened."""
        if word(part.address.get("channel")) is None:
            return Refused("the message that is answered names no channel")
        try:
            if word(part.address.get(PRESS)) is not None and await self._answer_press(part):
                return Sent(word(part.address.get("message")) or "")
            channel = await self._channel_for(part)
            return channel if isinstance(channel, Later) else await self._post_message(channel, part, key)
        except (DiscordError, OSError) as error:
            return outcome_of(error, part)

    async def _post_message(self, channel: str, part: Part, key: str) -> Outcome:
        body = message_of(part, key, self._settings.quote)
        return sent_of(child(await self._rest.call("POST", f"/channels/{channel}/messages", body, part.files)))

    async def _channel_for(self, part: Part) -> str | Later:
        """Where the part goes: into the thread of the message that it answers, if it is to have one."""
        channel, parent = str(part.address["channel"]), word(part.address.get("parent"))
        if parent is None or channel in self._begun:
            return channel
        body = {"name": word(part.address.get("title")) or "Answer", "auto_archive_duration": _ARCHIVE_MIN}
        try:
            await self._rest.call("POST", f"/channels/{parent}/messages/{channel}/threads", body)
        except DiscordError as error:
            if error.code in _NO_SUCH_MESSAGE:
                return parent
            if error.code != THREAD_EXISTS:
                raise
        except RouteUsedUp:
            raise
        except OSError as error:  # nothing of the part was sent
            return Later(_SOON_S, str(error))
        self._begun[channel] = None
        while len(self._begun) > _MOST_BEGUN:
            del self._begun[next(iter(self._begun))]
        return channel

    async def _answer_press(self, part: Part) -> bool:
        """Show whoever pressed a button the text, and its message's new buttons; harmless if done again.

        False: it came too late for that, and is to be a message. Raises DiscordError, OSError.
        """
        heard, token = False, word(part.address.get(TOKEN))
        if token and part.text.strip():
            heard = await self._try_call("POST", f"/webhooks/{self._application}/{token}", whisper_of(part))
        if part.choices is None:
            return heard
        path = f"/channels/{part.address['channel']}/messages/{part.address.get('message')}"
        return await self._try_call("PATCH", path, new_buttons(part)) or heard

    async def _try_call(self, verb: str, path: str, body: JsonMapping) -> bool:
        """Whether Discord has done it; False if it no longer can. Raises DiscordError, OSError."""
        try:
            await self._rest.call(verb, path, body)
        except DiscordError as error:
            if not press_is_over(error):
                raise
            return False
        return True

    async def find(self, part: Part, key: str) -> Sent | None:
        """By its nonce, which our own messages bring; else by its words, behind the message that it answers."""
        if (known := self._nonces.get(nonce_of(key))) is not None:
            return Sent(known)
        channel, after = word(part.address.get("channel")), integer(part.address.get("message")) or "0"
        others = set(self._nonces.values())
        for _ in range(_MOST_PAGES):
            page = await self._read_page(f"/channels/{channel}/messages?after={after}&limit={_PAGE}")
            for one in reversed(page):
                found = integer(child(one).get("id"))
                if found and found not in others and is_same(child(one), part, self._settings.quote, self._me):
                    return Sent(found)
            if len(page) < _PAGE:
                return None
            after = integer(child(page[0]).get("id")) or after
        return None  # too much was written since

    async def _read_page(self, path: str) -> list[Any]:
        try:
            found = await self._rest.read(path)
        except DiscordError as error:
            if error.status == 401:
                raise
            return []  # a thread that was never begun, or a channel that is gone, or which we may not see any more
        return found if isinstance(found, list) else []

    async def typing(self, address: JsonObject) -> None:
        """Show the indicator for ten seconds; failures do not matter."""
        channel = word(address.get("channel")) or ""
        if "parent" in address and channel not in self._begun:
            channel = word(address["parent"]) or channel
        with suppress(DiscordError, OSError):
            await self._rest.call("POST", f"/channels/{channel}/typing")

    async def fetch(self, file: FileIn) -> AsyncIterator[bytes]:
        """The bytes of a file. Its URL is valid for a day; then the message has another. Raises OSError, ValueError."""
        url = file.handle.get("url")
        try:
            async for piece in self._stream_file(url if isinstance(url, str) else await self._fresh_url(file)):
                yield piece
        except DiscordError as error:
            if error.status not in _EXPIRED:
                raise OSError(str(error)) from None
        else:
            return
        try:
            async for piece in self._stream_file(await self._fresh_url(file)):
                yield piece
        except DiscordError as error:
            if error.status in _EXPIRED:
                raise FileNotFoundError(str(error)) from None
            raise OSError(str(error)) from None

    async def _stream_file(self, url: str) -> AsyncGenerator[bytes, None]:
        async with self._rest.download(url) as pieces:
            async for piece in pieces:
                yield piece

    async def _fresh_url(self, file: FileIn) -> str:
        """Raises OSError; FileNotFoundError if the message or its file is gone."""
        channel, message = file.handle.get("channel"), file.handle.get("message")
        try:
            about = child(await self._rest.read(f"/channels/{channel}/messages/{message}"))
        except DiscordError as error:
            if error.status in _EXPIRED:
                raise FileNotFoundError(str(error)) from None
            raise OSError(str(error)) from None
        url = url_of(about, str(file.handle.get("attachment")))
        if url is None:
            raise FileNotFoundError("the message no longer has the file")
        return url

    async def latest(self) -> str | None:
        """The present cursor. The history is read from a little before a cursor, which therefore is a little later."""
        return str(DiscordCursor(w=snowflake_at(time.time() + SKEW_S)))

    async def close(self) -> None:
        """Close all connections."""
        await self._rest.close()
