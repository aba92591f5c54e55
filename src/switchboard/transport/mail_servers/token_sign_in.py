"""Signing in at a server of mail with the access token of a token file (XOAUTH2).

Connectors and modules call it with what opens a connection. A token that the server does not accept is renewed once;
after that a person must act. Next: `transport/oauth/tokens.py`, `mailbox.py`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from switchboard.ports.connector import SignInRefused
from switchboard.transport.mail_servers.mailbox import SignIn
from switchboard.transport.oauth.token_file import read_tokens
from switchboard.transport.oauth.tokens import TokenFile

_T = TypeVar("_T")


async def sign_in_with_token(tokens: TokenFile, user: str, connect: Callable[[SignIn], Awaitable[_T]]) -> _T:
    """What `connect` returns. Raises what it raises, and as `AccessTokens`.

    `connect` raises SignInRefused before it has done anything, if the server does not accept the sign-in.
    """
    token = await tokens.access_token()
    remedy = (
        f"see whether the mailbox may be used by programs; if so, sign in again: `{read_tokens(tokens.file).sign_in}`"
    )
    try:
        return await connect(SignIn(user, token, token=True, remedy=remedy))
    except SignInRefused:
        renewed = await tokens.access_token(refused=token)
    return await connect(SignIn(user, renewed, token=True, remedy=remedy))
