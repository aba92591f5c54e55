"""Verifies that a posted update comes from Telegram. Pure; imports no client.

`manifest.py` verifies with it; `webhook.py` gives Telegram the secret to send.
"""

from __future__ import annotations

import hmac
from datetime import datetime
from typing import Final

from switchboard.connectors.telegram.settings import TelegramAccountSettings
from switchboard.ports.connector import Account, Hook, Posted

_HEADER: Final = "x-telegram-bot-api-secret-token"


def secret_word(token: str) -> str:
    """The secret that Telegram sends with every update, derived from the token so that there is only one."""
    return hmac.digest(token.encode(), b"switchboard: updates by webhook", "sha256").hex()


def hook_of(account: Account) -> Hook | None:
    """How updates are posted; None if this bot polls."""
    settings, bot = account.settings, account.secrets["token"].strip().partition(":")[0]
    if not (isinstance(settings, TelegramAccountSettings) and settings.webhook and bot.isdecimal()):
        return None
    return Hook(f"bot:{bot}", _verify, None)


def _verify(account: Account, posted: Posted, now: datetime) -> str | None:  # noqa: ARG001  Telegram signs no time
    right, given = secret_word(account.secrets["token"].strip()), posted.headers.get(_HEADER, "")
    if not given:
        return "the header X-Telegram-Bot-Api-Secret-Token is missing"
    same = hmac.compare_digest(given.encode("utf-8", "surrogatepass"), right.encode())
    return None if same else "the header X-Telegram-Bot-Api-Secret-Token does not fit"
