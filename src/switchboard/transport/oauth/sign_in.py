"""A sign-in with a person: consent in a browser, here or elsewhere, then the tokens.

At a terminal it is `sign_in_person`, which wizards and `switchboard channels login` call; `app/accounts/consents.py`
makes the request and redeems its code at different times. In: what is asked for; out: `KeptTokens` that the caller
writes, or an error that says what to do. Next: `consent.py`, `arrivals.py`, `requests.py`.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final, Protocol

from msgspec import Struct

from switchboard.domain.errors import InvalidInput
from switchboard.tasks import cancel_tasks
from switchboard.transport.oauth.arrivals import ConsentArrivals, listen_for_consent
from switchboard.transport.oauth.consent import ConsentFailed, ConsentRequest
from switchboard.transport.oauth.providers import OAuthProvider
from switchboard.transport.oauth.requests import GrantEnded, IssuedTokens, check_endpoint, exchange_code
from switchboard.transport.oauth.token_file import KeptTokens, OAuthClient

_PATIENCE_S: Final = 900.0


class ConsentDesk(Protocol):
    """A terminal at which somebody signs in."""

    def say(self, text: str) -> None:
        """Tell the person something."""
        ...

    def open_page(self, address: str) -> None:
        """Show the address, and open it in a browser if there is one here."""
        ...

    async def pasted_line(self) -> str:
        """The next line that the person enters; if nobody can, it does not return."""
        ...


class AskedAccess(Struct, frozen=True):
    """What a sign-in asks for. `user`: who must consent; empty: anybody. `sign_in`: the command that does it again."""

    client: OAuthClient
    provider: OAuthProvider
    scopes: tuple[str, ...]
    sign_in: str
    user: str = ""


async def sign_in_person(
    asked: AskedAccess, desk: ConsentDesk, clock: Callable[[], datetime] = lambda: datetime.now(UTC)
) -> KeptTokens:
    """Have a person consent, and get the tokens. Raises InvalidInput, SignInRefused, ConfigurationError, OSError."""
    async with listen_for_consent(asked.provider.redirect_host) as arrivals:
        request = new_request(asked, arrivals.redirect_uri)
        code = await _await_code(request, arrivals, asked.provider, desk)
    return await redeem_code(asked, request, code, clock())


def new_request(asked: AskedAccess, redirect_uri: str) -> ConsentRequest:
    """A request whose secrets are new: each is good for one consent. Raises ConfigurationError."""
    for endpoint in (asked.client.authorization_endpoint, asked.client.token_endpoint):
        check_endpoint(endpoint)
    state, verifier = secrets.token_urlsafe(32), secrets.token_urlsafe(64)
    return ConsentRequest(asked.client, asked.scopes, redirect_uri, state, verifier, asked.user)


async def redeem_code(asked: AskedAccess, request: ConsentRequest, code: str, now: datetime) -> KeptTokens:
    """The tokens for a code of this request. Raises InvalidInput, SignInRefused, ConfigurationError, OSError."""
    try:
        issued = await exchange_code(asked.client, code, request.verifier, request.redirect_uri, now)
    except GrantEnded as error:
        raise InvalidInput(f"{asked.provider.title} does not accept the code ({error}): sign in again") from None
    return _checked_tokens(asked, issued, now)


async def _await_code(
    request: ConsentRequest, arrivals: ConsentArrivals, provider: OAuthProvider, desk: ConsentDesk
) -> str:
    """From the browser or from the terminal, whichever is first."""
    desk.say(f"Open this page, sign in to {provider.title} there, and consent:")
    desk.open_page(request.page(provider))
    desk.say(
        "If the browser runs on another machine, its last page cannot be opened. Then paste the address of that page "
        f"here; it begins with {request.redirect_uri}"
    )
    waiting = (
        asyncio.create_task(arrivals.code(request.code_in)),
        asyncio.create_task(_pasted_code(request, desk)),
    )
    try:
        done, _ = await asyncio.wait(waiting, timeout=_PATIENCE_S, return_when=asyncio.FIRST_COMPLETED)
        if not done:
            raise InvalidInput("nobody has consented within 15 minutes: sign in again")
        return done.pop().result()
    finally:
        await cancel_tasks(*waiting)


async def _pasted_code(request: ConsentRequest, desk: ConsentDesk) -> str:
    """Lines are read until one is the address that is meant. Raises ConsentFailed."""
    while True:
        line = (await desk.pasted_line()).strip()
        if not line:
            continue
        try:
            return request.code_in(line)
        except InvalidInput as error:
            if isinstance(error, ConsentFailed):
                raise
            desk.say(error.message)


def _checked_tokens(asked: AskedAccess, issued: IssuedTokens, now: datetime) -> KeptTokens:
    title = asked.provider.title
    granted = asked.scopes if issued.scopes is None else issued.scopes
    known = {scope.lower() for scope in granted}
    if missing := [scope for scope in asked.scopes if scope.lower() not in known]:
        raise InvalidInput(
            f"{title} has not granted all that was asked for; missing: {', '.join(missing)}. Sign in again, and leave "
            "every box ticked; to give less, ask for less"
        )
    if asked.provider.opens_own and asked.user and issued.user and issued.user != asked.user.lower():
        raise InvalidInput(
            f"the wrong one: {issued.user} has signed in, and the account is that of {asked.user}: sign in as them"
        )
    if not issued.refresh_token:
        raise InvalidInput(
            f"{title} has given no refresh token, so the sign-in would end within an hour: take Switchboard's access "
            f"away in the settings of the {title} account, then sign in again"
        )
    return KeptTokens(
        client=asked.client,
        user=asked.user or issued.user,
        scopes=asked.scopes,
        sign_in=asked.sign_in,
        refresh_token=issued.refresh_token,
        access_token=issued.access_token,
        expires_at=issued.expires_at,
        consented_at=now,
        refresh_expires_at=issued.refresh_expires_at,
    )
