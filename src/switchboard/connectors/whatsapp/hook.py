"""Answers Meta's challenge, and verifies that a webhook comes from Meta. Pure; imports no client.

`manifest.py` verifies with it; `registering.py` tells Meta the word of the challenge.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from datetime import datetime
from typing import Final

from switchboard.connectors.whatsapp.settings import WhatsAppAccountSettings
from switchboard.ports.connector import Account, Hook, Posted

_HEADER: Final = "x-hub-signature-256"
_MAX_CHALLENGE: Final = 512


def challenge_word(account: Account) -> str:
    """What Meta says in its challenge, derived from the secret of the app so that there is only one secret."""
    name = f"switchboard: webhooks of {account.name}"
    return hmac.digest(_secret_of(account), name.encode(), "sha256").hex()


def secret_proof(account: Account) -> str:
    """What shows Meta that the secret belongs to the token: a wrong one would refuse all webhooks, unseen."""
    return hmac.digest(_secret_of(account), account.secrets["token"].strip().encode(), "sha256").hex()


def hook_of(account: Account) -> Hook | None:
    """How webhooks are posted to a number."""
    settings = account.settings
    if not isinstance(settings, WhatsAppAccountSettings):
        return None
    return Hook(settings.phone_number_id, _verify_signature, None, _answer_challenge)


def _verify_signature(account: Account, posted: Posted, now: datetime) -> str | None:  # noqa: ARG001  Meta signs no time
    """Of the bytes as they came: Meta escapes text as no JSON writer does."""
    given = posted.headers.get(_HEADER, "")
    if not given:
        return "the header X-Hub-Signature-256 is missing"
    right = f"sha256={hmac.digest(_secret_of(account), posted.body, 'sha256').hex()}"
    same = hmac.compare_digest(given.encode("utf-8", "surrogatepass"), right.encode())
    return None if same else "the header X-Hub-Signature-256 does not fit: is the app secret that of this app?"


def _answer_challenge(account: Account, asked: Mapping[str, str], now: datetime) -> str | None:  # noqa: ARG001
    given = asked.get("hub.verify_token", "").encode("utf-8", "surrogatepass")
    same = hmac.compare_digest(given, challenge_word(account).encode())
    challenge = asked.get("hub.challenge", "")
    right = same and asked.get("hub.mode") == "subscribe" and 0 < len(challenge) <= _MAX_CHALLENGE
    return challenge if right else None


def _secret_of(account: Account) -> bytes:
    return account.secrets["app_secret"].strip().encode()
