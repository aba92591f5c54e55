"""The two requests to the token endpoint of a provider: a code for tokens, and a refresh token for new ones.

`sign_in.py` makes the first, `tokens.py` the second. In: a client and what is exchanged; out: `IssuedTokens`, or what
the refusal means. Nothing that is said of a failure quotes a secret. Next: `token_file.py`.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Annotated, Final
from urllib.parse import urlsplit

import httpx2
import msgspec
from msgspec import Meta, Struct

from switchboard.core.text.visible import visible_start
from switchboard.domain.errors import ConfigurationError
from switchboard.ports.connector import SignInRefused
from switchboard.transport.oauth.token_file import OAuthClient
from switchboard.transport.signed_post import body_of

_WHOLE_S: Final = 20.0
_MOST: Final = 200_000
"""Bytes of an answer."""
_USUAL_S: Final = 3600
_LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})
_FOR_NOW: Final = frozenset({"temporarily_unavailable", "server_error", "slow_down"})


_ENDED: Final = frozenset({"invalid_grant", "interaction_required", "consent_required", "login_required"})


class GrantEnded(SignInRefused):
    """The provider accepts this code or refresh token no more, and will not again."""


@dataclass(frozen=True, slots=True)
class _Answer:
    access_token: Annotated[str, Meta(min_length=1)] = field(repr=False)
    refresh_token: str = field(default="", repr=False)
    expires_in: float = _USUAL_S
    refresh_token_expires_in: float | None = None
    scope: str | None = None
    id_token: str = field(default="", repr=False)


class _Refusal(Struct, frozen=True):
    error: str
    error_description: str = ""


@dataclass(frozen=True, slots=True)
class IssuedTokens:
    """The answer of a provider. `refresh_token` is empty if the one that was used stays; `scopes` None: as asked."""

    access_token: str = field(repr=False)
    refresh_token: str = field(repr=False)
    expires_at: datetime
    refresh_expires_at: datetime | None
    scopes: tuple[str, ...] | None
    user: str


async def exchange_code(
    client: OAuthClient, code: str, verifier: str, redirect_uri: str, now: datetime
) -> IssuedTokens:
    """Raises SignInRefused, OSError."""
    given = {"grant_type": "authorization_code", "code": code, "code_verifier": verifier, "redirect_uri": redirect_uri}
    return await _ask_tokens(client, given, now)


async def refresh_tokens(client: OAuthClient, refresh_token: str, now: datetime) -> IssuedTokens:
    """Raises GrantEnded, SignInRefused for what is wrong with the client, and OSError for what may pass."""
    return await _ask_tokens(client, {"grant_type": "refresh_token", "refresh_token": refresh_token}, now)


def check_endpoint(url: str) -> str:
    """Raises ConfigurationError for an address that secrets must not be sent to."""
    parts = urlsplit(url)
    if parts.scheme == "https" and parts.hostname:
        return url
    if parts.scheme == "http" and parts.hostname in _LOOPBACK:
        return url
    raise ConfigurationError("the address of an OAuth provider begins with https://")


async def _ask_tokens(client: OAuthClient, given: Mapping[str, str], now: datetime) -> IssuedTokens:
    host = urlsplit(check_endpoint(client.token_endpoint)).hostname
    form = {**given, "client_id": client.client_id}
    form |= {"client_secret": client.client_secret} if client.client_secret else {}
    try:
        async with (
            asyncio.timeout(_WHOLE_S),
            httpx2.AsyncClient(timeout=_WHOLE_S, follow_redirects=False) as http,
            http.stream("POST", client.token_endpoint, data=form, headers={"accept": "application/json"}) as response,
        ):
            body, cut = await body_of(response, _MOST)
    except httpx2.HTTPError as error:
        raise ConnectionError(f"{host} cannot be reached: {type(error).__name__}") from None  # it has the request
    except TimeoutError:
        raise ConnectionError(f"{host} has not answered within {_WHOLE_S:g} s") from None
    status = response.status_code
    if status != 200 or cut:
        raise _refusal_of(str(host), status, body)
    try:
        return _tokens_in(msgspec.json.decode(body, type=_Answer, strict=False), now)
    except (msgspec.DecodeError, ValueError, OverflowError):  # also of a time that there is not
        raise ConnectionError(f"{host} gives an answer that makes no sense, instead of tokens") from None


def _tokens_in(answer: _Answer, asked_at: datetime) -> IssuedTokens:
    left = answer.refresh_token_expires_in
    return IssuedTokens(
        answer.access_token,
        answer.refresh_token,
        asked_at + timedelta(seconds=answer.expires_in),
        asked_at + timedelta(seconds=left) if left else None,
        None if answer.scope is None else tuple(answer.scope.split()),
        _user_of(answer.id_token),
    )


def _refusal_of(host: str, status: int, body: bytes) -> Exception:
    try:
        refusal = msgspec.json.decode(body, type=_Refusal)
    except (msgspec.DecodeError, UnicodeDecodeError):
        refusal = _Refusal("")
    if status == 429 or status >= 500 or refusal.error in _FOR_NOW or not refusal.error:
        return ConnectionError(f"{host} answers {status} {refusal.error}".rstrip())
    said = visible_start(" ".join(refusal.error_description.split()), 200)
    told = f"{refusal.error}: {said}" if said else refusal.error
    if refusal.error in _ENDED:
        return GrantEnded(told)
    return SignInRefused(f"{host} does not accept the OAuth client ({told}); see its settings at the provider")


def _user_of(id_token: str) -> str:
    """The address in an ID token, which came from the provider itself and needs no check of its signature."""
    try:
        payload = id_token.split(".")[1]
        said = msgspec.json.decode(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        found = said.get("email") or said.get("preferred_username") or ""
    except (IndexError, ValueError, AttributeError):
        return ""
    return found.lower() if isinstance(found, str) else ""
