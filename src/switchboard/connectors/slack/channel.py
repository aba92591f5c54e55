"""An open app of Slack: receives by Socket Mode, sends by the Web API. Called by the kernel; `open_session` signs in.

Next: `arriving.py` for what arrives, `leaving.py` for what leaves.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Sequence
from typing import Final

from switchboard.connectors.slack.api import SlackApi, SlackRefusal
from switchboard.connectors.slack.arriving import SlackArrivals
from switchboard.connectors.slack.events import SlackBot
from switchboard.connectors.slack.files import fetch_file
from switchboard.connectors.slack.leaving import SlackReplies
from switchboard.connectors.slack.missed import AGAIN_S
from switchboard.connectors.slack.names import NameBook
from switchboard.connectors.slack.refusals import error_of
from switchboard.connectors.slack.scopes import BASIC_SCOPES, SCOPES, missing_in_words
from switchboard.connectors.slack.settings import SlackAccountSettings
from switchboard.connectors.slack.socket_mode import open_socket
from switchboard.connectors.slack.threads import SlackPlace
from switchboard.domain.json_values import JsonObject
from switchboard.ports.connector import (
    Account,
    Batch,
    FileIn,
    Identity,
    Inbound,
    Outcome,
    Part,
    PostedEvents,
    Sent,
    Session,
    SignInRefused,
    Unreadable,
)
from switchboard.ports.raw import Raw, word

_PREFIXES: Final = {"app_token": "xapp-", "bot_token": "xoxb-"}


async def open_session(account: Account) -> SlackSession:
    """Sign in. Raises SignInRefused, OSError."""
    logging.getLogger("httpx2").setLevel(logging.WARNING)
    logging.getLogger("websockets.client").setLevel(logging.INFO)  # else the URL of a socket, and what is said over it
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
        if error.retry_after is not None:
            await asyncio.sleep(error.retry_after)
        raise error_of(error) from None


def _bot_in(about: Raw) -> SlackBot:
    team, user, bot = (word(about.get(name)) for name in ("team_id", "user_id", "bot_id"))
    if not (team and user and bot):
        raise SignInRefused("the bot_token is not that of a bot: copy the Bot User OAuth Token")
    return SlackBot(team, user, bot)


def _require_scopes(api: SlackApi, needed: Sequence[str]) -> None:
    """Raise SignInRefused if one of them is missing; it names all that are missing, so that one look is enough."""
    if missing_in_words(api.scopes, needed):
        raise SignInRefused(missing_in_words(api.scopes, SCOPES) or "")


class SlackSession(Session):
    """One app, signed in."""

    def __init__(self, api: SlackApi, settings: SlackAccountSettings, me: SlackBot, name: str) -> None:
        self.identity = Identity(me.endpoint, f"@{name}" if name else "")
        self._api = api
        names = NameBook(api)
        names.note(me.user, name or me.user)
        self._arrivals = SlackArrivals(api, settings, me, names)
        self._replies = SlackReplies(api, me, self._arrivals.note_sent)

    async def check(self) -> None:
        """Check the other token, and the scopes that are not indispensable. Raises SignInRefused, OSError."""
        await open_socket(self._api)
        _require_scopes(self._api, SCOPES)

    def receive_posted(self, cursor: str | None, posted: PostedEvents) -> AsyncIterator[Batch]:
        """What was missed, and what is pushed."""
        return self._arrivals.receive(cursor, posted)

    async def read(self, raw: bytes) -> Inbound | Unreadable:
        """An event from quarantine."""
        return await self._arrivals.read(raw)

    async def confirm(self, cursor: str) -> None:
        """What is settled is kept no longer."""
        await self._arrivals.confirm(cursor)

    async def latest(self) -> str | None:
        """Now: nothing from before is fetched."""
        return str(SlackPlace(heard=time.time() + AGAIN_S))

    async def send(self, part: Part, key: str) -> Outcome:
        """Send a text, or files, or answer a press."""
        return await self._replies.send(part, key)

    async def find(self, part: Part, key: str) -> Sent | None:
        """A part of ours by its key; files by their names and sizes. Raises OSError."""
        return await self._replies.find(part, key)

    async def typing(self, address: JsonObject) -> None:
        """Show in a thread that an answer is being written."""
        await self._replies.typing(address)

    def fetch(self, file: FileIn) -> AsyncIterator[bytes]:
        """The bytes of a file. Raises OSError; ValueError if Slack will never deliver it."""
        return fetch_file(self._api, file)

    async def close(self) -> None:
        """Close all connections."""
        await self._api.close()
