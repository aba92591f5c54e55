"""The webhook of a bot at Telegram: set, checked, and removed. Called by `channel.py`.

No update is ever dropped: `drop_pending_updates` is not used. Next: `posted.py`.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final
from urllib.parse import urlsplit

from msgspec import Struct

from switchboard.connectors.telegram.api import BotApiClient, BotApiError
from switchboard.connectors.telegram.posted import secret_word
from switchboard.connectors.telegram.updates import KINDS
from switchboard.ports.connector import Account, Busy, SignInRefused
from switchboard.ports.raw import at, integer, word

_AT_ONCE: Final = 10
"""Updates that Telegram posts at the same time, each of another chat."""


class BotWebhook(Struct, frozen=True):
    """The webhook of an account's bot."""

    api: BotApiClient
    account: Account

    async def set(self) -> None:
        """Let Telegram post to us. Raises SignInRefused, Busy, OSError."""
        url = self.account.hook_url
        if url is None:
            raise SignInRefused("webhook = true needs public_url in the settings: where Telegram reaches the server")
        now = await self._url()
        if now and not self._is_ours(now):
            raise Busy(_url_without_path(now))
        params = {
            "url": url,
            "secret_token": secret_word(self.account.secrets["token"].strip()),
            "allowed_updates": list(KINDS),
            "max_connections": _AT_ONCE,
        }
        try:
            await self.api.call("setWebhook", params)
        except BotApiError as error:
            if error.code == 400:
                raise SignInRefused(f"Telegram does not post to {url}: {error.description}") from None
            raise OSError(str(error)) from None

    async def trouble(self) -> str | None:
        """Why updates may not arrive; None if Telegram reports no trouble. Raises Busy if it is no longer set."""
        try:
            info = await self._info()
        except OSError as error:
            return f"Telegram does not answer: {error}"
        url = word(at(info, "url")) or ""
        if url != self.account.hook_url:
            raise Busy(_url_without_path(url) if url else "somebody has deleted the webhook of this bot")
        if int(integer(at(info, "pending_update_count")) or 0) and (why := word(at(info, "last_error_message"))):
            return f"Telegram does not reach {url}: {why}"
        return None

    async def remove_webhook(self) -> bool:
        """Remove our own webhook; returns whether there was one. Telegram keeps undelivered updates. Raises OSError."""
        if not self._is_ours(await self._url()):
            return False
        try:
            await self.api.call("deleteWebhook", {})
        except BotApiError as error:
            raise OSError(str(error)) from None
        return True

    async def foreign(self) -> str | None:
        """Who else receives the updates, as far as Telegram reveals it."""
        with suppress(OSError):
            url = await self._url()
            return _url_without_path(url) if url else None
        return None

    def _is_ours(self, url: str) -> bool:
        """Whether it belongs to this account, perhaps at an earlier address of the server."""
        return urlsplit(url).path.endswith(f"/hooks/{self.account.name}")

    async def _url(self) -> str:
        return word(at(await self._info(), "url")) or ""

    async def _info(self) -> object:
        try:
            return await self.api.call("getWebhookInfo", {})
        except BotApiError as error:
            raise OSError(str(error)) from None


def _url_without_path(url: str) -> str:
    """The URL without its path, which is often a secret."""
    return f"a webhook is set for this bot, at {urlsplit(url).hostname}; delete it with deleteWebhook"
