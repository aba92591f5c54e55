"""Access tokens of a signed-in account, renewed before they expire.

Whoever opens an account with a `token_file` takes an `AccessTokens`: `connectors/email`, modules, `transport/google`.
In: the file; out: a token for the next request. New tokens are on the disk before they are used. Next: `requests.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, Protocol

import structlog

from switchboard.domain.errors import ConfigurationError
from switchboard.ports.connector import SignInRefused
from switchboard.transport.oauth.providers import PROVIDERS
from switchboard.transport.oauth.requests import GrantEnded, IssuedTokens, refresh_tokens
from switchboard.transport.oauth.token_file import KeptTokens, hold_token_lock, read_tokens, write_tokens

_AHEAD: Final = timedelta(minutes=2)
"""A token that expires sooner is renewed first."""
_SOON: Final = timedelta(days=1)
_WEEK: Final = (timedelta(days=6.5), timedelta(days=7.5))


log = structlog.get_logger(__name__)


class AccessTokens(Protocol):
    """The tokens of one sign-in."""

    async def access_token(self, refused: str = "") -> str:
        """A token that is good for a minute at least; `refused`: one that a server did not accept, so another one.

        Raises SignInRefused that names the command with which to sign in again, ConfigurationError for a file that
        cannot be used, and OSError if the provider cannot be asked now. The same error comes again at no cost to the
        provider, once it has said that the sign-in has ended.
        """
        ...


class TokenFile:
    """`AccessTokens` of a file. Any number of them may be open at one file, in any number of processes."""

    def __init__(self, file: Path, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self.file = file
        self._clock = clock
        self._renewing: set[asyncio.Task[str]] = set()

    async def access_token(self, refused: str = "") -> str:
        """As in the protocol. Cancelling it does not lose tokens that are on their way."""
        kept = self._read_signed_in()
        if self._is_good(kept, refused):
            return kept.access_token
        renewing = asyncio.create_task(self._renew_tokens(refused))
        self._renewing.add(renewing)
        renewing.add_done_callback(self._renewing.discard)
        return await asyncio.shield(renewing)

    def _read_signed_in(self) -> KeptTokens:
        kept = read_tokens(self.file)
        if kept.failed:
            raise SignInRefused(describe_end(kept))
        return kept

    def _is_good(self, kept: KeptTokens, refused: str) -> bool:
        return kept.access_token != refused and kept.expires_at - self._clock() > _AHEAD

    async def _renew_tokens(self, refused: str) -> str:
        async with hold_token_lock(self.file):
            kept = self._read_signed_in()  # another process may have renewed it meanwhile
            if self._is_good(kept, refused):
                return kept.access_token
            now = self._clock()
            try:
                issued = await refresh_tokens(kept.client, kept.refresh_token, now)
            except GrantEnded as error:
                ended = replace(kept, failed=explain_trial(kept, now) or error.message)
                self._keep(ended)
                log.warning("a sign-in has ended", user=kept.user, why=ended.failed, do=kept.sign_in)
                raise SignInRefused(describe_end(ended)) from None
            except SignInRefused as error:
                raise SignInRefused(f"{error.message}; then sign in again: `{kept.sign_in}`") from None
            renewed = renewed_tokens(kept, issued)
            self._keep(renewed)
            if (end := coming_end(renewed, now)) is not None:
                log.warning("a sign-in ends soon", user=kept.user, at=str(end), do=kept.sign_in)
            return renewed.access_token

    def _keep(self, kept: KeptTokens) -> None:
        """At once: between an answer and the disk, nothing may cancel it. It takes milliseconds, once an hour."""
        try:
            write_tokens(self.file, kept)
        except OSError as error:
            raise ConfigurationError(f"the token file {self.file} cannot be written: {error.strerror}") from error


def renewed_tokens(kept: KeptTokens, issued: IssuedTokens) -> KeptTokens:
    """What is kept after a refresh. A provider that says nothing new of the refresh token lets it stay as it was."""
    return replace(
        kept,
        access_token=issued.access_token,
        expires_at=issued.expires_at,
        refresh_token=issued.refresh_token or kept.refresh_token,
        refresh_expires_at=issued.refresh_expires_at or kept.refresh_expires_at,
        failed="",
    )


def describe_end(kept: KeptTokens) -> str:
    """That a sign-in has ended, why, and what to do."""
    return f"the sign-in of {kept.user or 'the account'} has ended ({kept.failed}): sign in again: `{kept.sign_in}`"


def coming_end(kept: KeptTokens, now: datetime) -> datetime | None:
    """When the sign-in ends, if the provider has said that it will within a day."""
    end = kept.refresh_expires_at
    return end if end is not None and end - now < _SOON else None


def explain_trial(kept: KeptTokens, end: datetime) -> str:
    """Why a sign-in ends then, and what to do, if that is a week after the consent, as in a trial; else empty."""
    least, most = _WEEK
    provider = PROVIDERS.get(kept.client.provider)
    if provider is None or not provider.one_week or not least <= end - kept.consented_at <= most:
        return ""
    return (
        f"after seven days, as all do while your {provider.title} project is in Testing: publish it first, under "
        "Audience, Publish app"
    )
